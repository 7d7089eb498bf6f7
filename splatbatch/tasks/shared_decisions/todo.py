"""What is to be trained while it is decided what its batch shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatbatch.tasks.batch import Batch
from splatbatch.tasks.task import Task

if TYPE_CHECKING:
    from splatbatch.scene.frame import ModelExtent


@dataclass(frozen=True)
class PendingTasks:
    """What is to be trained, as far as that is known while shared decisions are made."""

    tasks: tuple[Task, ...]
    spans: Callable[[], Mapping[str, ModelExtent]]
    """Returns where the patches lie that can be trained, by name."""
    names_in: Callable[[Batch], Sequence[str]] = lambda batch: [task.name for task in batch.tasks]
    """Returns which tasks of a batch would have to be trained; the batch differs in its decisions alone."""
    say: Callable[[str], None] = lambda words: None
    """Tells the person who has started the run."""
