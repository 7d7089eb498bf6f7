"""What the loop asks and calls: whether to stop, which tasks are ours, what other workers have done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from splatbatch.isolated import WaitHooks
from splatbatch.scheduler.step_budget import DeadlineBudget
from splatbatch.scheduler.work.other_workers_history import OtherWorkersHistory
from splatbatch.tasks.task import Task


@dataclass
class RunHooks(WaitHooks):
    """What is asked and called in every round of a batch. By itself it claims nothing: there are no other workers."""

    refused: Callable[[], Mapping[str, str]] = dict
    """Tasks that were found unfit since it was asked last, by name with the reasons."""
    requests: Callable[[], list[Path]] | None = None
    """Where requests to end are looked for; None: where those to `train` lie."""
    is_alone: bool = True
    """No other run trains into the folder: processes of the batch at its start are of an earlier run."""
    deadline: DeadlineBudget | None = None
    """Keeps the batch to its deadline; None: it has none."""
    audited: Mapping[str, str] = field(default_factory=dict)
    """State of the files of each task when they were audited."""
    past: OtherWorkersHistory | None = None
    """What tasks have been through with other workers; None: there are none."""

    def claim(self, task: Task) -> Task | float | None:
        """Return a task whose turn it is if it is ours, with what it has been through elsewhere; claim it if it can be.

        A number: another worker has it; it is worth another look after so many seconds. None: another worker is done
        with it, or our time will not hold it.
        """
        return task

    def is_elsewhere(self, name: str) -> bool:
        """Return whether another worker has a task at the moment, also one that is none of ours."""
        return False

    def close(self, name: str) -> None:
        """Say that a task is done with, if it was ours."""

    def lost(self) -> Mapping[str, str]:
        """Return what others have taken over from us since we were asked last, each with who has."""
        return {}
