"""What is settled once, before a night, for the whole batch: a record in one file, which tells what it makes stale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from splatbatch.config import Config
from splatbatch.files import write_json
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.output.records.record import TypedRecord
from splatbatch.output.records.result import Result
from splatbatch.tasks.task import Task

if TYPE_CHECKING:
    from splatbatch.scene.frame import ModelExtent

DecisionKind = TypeVar("DecisionKind", bound=TypedRecord)


class WholeBatch(Protocol):
    """A batch, as far as anything that is settled depends on it."""

    @property
    def config(self) -> Config:
        """Its YAML."""
        ...

    @property
    def path(self) -> Path:
        """Of the YAML."""
        ...

    @property
    def every(self) -> tuple[Task, ...]:
        """All its tasks."""
        ...

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Those that a command is about."""
        ...

    @property
    def output(self) -> OutputFolder:
        """Its output folder."""
        ...

    def record(self, thing: SharedDecision[DecisionKind]) -> DecisionKind | None:
        """Return what is settled; None as long as it is not."""
        ...

    def with_record(self, thing: SharedDecision[DecisionKind], record: DecisionKind | None) -> Self:
        """Return the batch with something settled."""
        ...


@dataclass(frozen=True)
class PendingTasks:
    """What is to be trained, as far as that is known while things are settled."""

    tasks: tuple[Task, ...]
    spans: Callable[[], Mapping[str, ModelExtent]]
    """Returns where the patches lie that can be trained, by name."""
    names_in: Callable[[Any], Sequence[str]] = lambda batch: [task.name for task in batch.tasks]
    """Returns which tasks of a batch would have to be trained; the batch differs in its records alone."""
    say: Callable[[str], None] = lambda words: None
    """Tells whoever has started the night."""


class SharedDecision(Generic[DecisionKind]):
    """One thing that is settled for a whole batch."""

    kind: type[DecisionKind]
    """Of its record."""
    name: str
    """In reports: "frame"."""
    what: str
    """In messages: "the frame of the batch"."""
    is_quick = True
    """It takes no time to settle, so that `plan` does so, too."""
    has_section = False
    """A section of the report is about it; else the report has its words."""

    def file(self, output: OutputFolder) -> Path:
        """Return the file that records it."""
        raise NotImplementedError

    def watched(self, config: Config, output: OutputFolder) -> Path:
        """Return the file whose change may mean another record: the one that records it."""
        return self.file(output)

    def is_asked_for(self, tasks: Sequence[Task]) -> bool:
        """Return whether there is anything to settle for tasks that are to be trained."""
        return True

    def settle(self, batch: WholeBatch, todo: PendingTasks) -> DecisionKind | None:
        """Return the record for all that is to be trained; None where nothing is to be settled, or the old one holds.

        Raises:
            SplatbatchError: it cannot be settled.
        """
        raise NotImplementedError

    def recorded(self, output: OutputFolder) -> DecisionKind | None:
        """Return what its file says; None if there is none, or it is no JSON object."""
        return self.kind.read(self.file(output))

    def stored(self, config: Config, output: OutputFolder) -> DecisionKind | None:
        """Return what its file says, if that is what the YAML asks for."""
        return self.recorded(output)

    def known(self, config: Config, output: OutputFolder) -> DecisionKind | None:
        """Return what holds for a batch that is opened: by its YAML, else by the file."""
        return self.stored(config, output)

    def write(self, output: OutputFolder, record: DecisionKind) -> None:
        """Write it down, for every run that goes on with the batch."""
        write_json(self.file(output), record.to_record())

    def apply(self, tasks: Sequence[Task], record: DecisionKind | None) -> tuple[Task, ...]:
        """Return tasks as they are trained under it; those that it changes nothing of as they are."""
        return tuple(tasks)

    def why_stale(self, result: Result, task: Task, record: DecisionKind | None) -> str:
        """Say why a result was trained under another one; empty if it was not."""
        return ""

    def differs(self, then: Fingerprint, now: Fingerprint) -> bool:
        """Return whether what two trainings depend on was settled otherwise."""
        return False

    def key(self, task: Task, record: DecisionKind | None) -> str:
        """Return what tells, beside its file, what holds for a task."""
        return ""

    def in_words(self, record: DecisionKind, tasks: Sequence[Task], todo: Sequence[str]) -> tuple[str, ...]:
        """Return what to tell of it, a line for each matter; of tasks, and the names of those to be trained."""
        return ()
