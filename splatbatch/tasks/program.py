"""Tasks that measure a splat; metrics.json of an attempt says what it has found, and is kept beside the splat."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from splatbatch.config import Config
from splatbatch.files import write_json
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.evaluation import EvaluationSettings
from splatbatch.output.records.metrics import MeasurementRecord
from splatbatch.output.records.quality import InspectionSettings
from splatbatch.scene.patches import Patch
from splatbatch.tasks.patch_state import PatchState
from splatbatch.tasks.product import compare_product
from splatbatch.tasks.task import Task, TaskKind


@dataclass(frozen=True, kw_only=True)
class MeasureTasks(TaskKind):
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

    def product(self, task: Task, output: OutputFolder) -> PatchState:
        """Return what would be found now beside what was."""
        found = MeasurementRecord.read(self.record)
        return compare_product(self.inputs, found.inputs if found else None)

    def keep(self, task: Task, folder: AttemptFolder) -> None:
        """Keep what was found beside the splat."""
        if found := MeasurementRecord.read(folder.metrics):
            write_json(self.record, found.to_record())

    def of(self, config: Config, name: str) -> Task:
        """Return the task of such a name."""
        return self.task(config, name, Patch(self.told.patch, Path(self.told.sparse), Path(self.told.images)))
