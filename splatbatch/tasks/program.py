"""Tasks that a process of ours makes; metrics.json of its attempt says what it has found or made."""

from __future__ import annotations

import sys
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from splatbatch.config import Config, Retry, Rung, TaskId
from splatbatch.files import write_json
from splatbatch.outcome import Made, Rejected
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import PatchFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.evaluation import EvaluationSettings
from splatbatch.output.records.metrics import MeasurementRecord
from splatbatch.output.records.quality import InspectionSettings
from splatbatch.scene.patches import Patch
from splatbatch.tasks.product import ProductComparison
from splatbatch.tasks.task import Task, TaskKind, TaskSettings


class RetryImmediately(Retry):
    """What may pass is tried again without a wait."""

    waits: ClassVar[bool] = False


@dataclass(frozen=True)
class BuiltinProgram(TaskKind):
    """What such tasks have in common; what may pass is tried again, at once."""

    attempts: PatchFolder
    """Where attempts lie."""
    tries: ClassVar[int]
    ladders: ClassVar[dict[str, tuple[Rung, ...]]] = {}
    stands_by = False

    @property
    def inputs(self) -> str:
        """The key of the product, which metrics.json repeats; empty where none is compared."""
        return ""

    @abstractmethod
    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        """Prepare an attempt and return the command of its process."""

    def product(self, task: Task, output: OutputFolder) -> ProductComparison:
        """Return that none is recorded: the program itself compares part by part, and leaves what is there."""
        return ProductComparison(self.inputs, None)

    def maker(self, task: Task) -> BuiltinProgram:
        """Return our own program."""
        return self

    def collect(self, folder: AttemptFolder) -> Made | Rejected:
        """Return the product, if metrics.json is of what the process was told."""
        found = MeasurementRecord.read(folder.metrics)
        return Made(folder.metrics) if found and found.inputs == self.inputs else Rejected("")

    def home(self, task: Task, output: OutputFolder) -> PatchFolder:
        """Return where attempts lie."""
        return self.attempts

    def retry(self, task: Task, config: Config) -> Retry:
        """Return that it is tried so often, at once."""
        return RetryImmediately(max_attempts=self.tries).model_copy(update={"ladders": self.ladders})

    def of(self, config: Config, name: str, subject: Patch) -> Task:
        """Return the task of such a name."""
        setup = TaskSettings(config, "")
        return Task(TaskId(name), subject, setup, setup, setup, kind=self)


@dataclass(frozen=True)
class MeasureTasks(BuiltinProgram):
    """Tasks that measure a splat, as settings.json says; what was found is kept beside it."""

    told: InspectionSettings | EvaluationSettings
    record: Path
    """Where what was found is kept."""
    module: ClassVar[str]

    @property
    def inputs(self) -> str:
        """The key of what is found."""
        return self.told.inputs

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        """Write settings.json and return the command of the process."""
        write_json(folder.settings, self.told.to_record())
        return (sys.executable, "-m", self.module, str(folder.path))

    def product(self, task: Task, output: OutputFolder) -> ProductComparison:
        """Return what would be found now beside what was."""
        found = MeasurementRecord.read(self.record)
        return ProductComparison(self.inputs, found.inputs if found else None)

    def keep(self, task: Task, folder: AttemptFolder) -> None:
        """Keep what was found beside the splat."""
        if found := MeasurementRecord.read(folder.metrics):
            write_json(self.record, found.to_record())

    def task(self, config: Config, name: str) -> Task:
        """Return the task of such a name."""
        return self.of(config, name, Patch(self.told.patch, Path(self.told.sparse), Path(self.told.images)))
