"""Tasks that merge, publish and certify, made in the process of a test: as quick as a function call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from splatbatch.config import Config
from splatbatch.files import write_json
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.run.follow_up_process import SplatTasks
from splatbatch.scheduler import single
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.task import Task

USUAL = single.make


def make_here(config: Config, task: Task, *others: Any) -> AttemptFolder:
    """Make the product of a task, here if its program is `run.follow_up_process`."""
    kind = task.kind
    if not isinstance(kind, SplatTasks):
        return USUAL(config, task, *others)
    folder = AttemptFolder(task.home(OutputFolder(config.output.folder)).path / "attempt-01")
    folder.path.mkdir(parents=True, exist_ok=True)
    task.maker.command(task.patch, folder)
    told = kind.told
    write_json(folder.metrics, kind.make(open_batch(Path(told.config)), told).to_record())
    return folder
