"""Tasks that merge and publish, made in the process of a test: as quick as a function call."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any
from unittest import mock

from splatbatch import cli
from splatbatch.config import Config
from splatbatch.errors import HINT, SplatbatchError
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.processes import MARKER
from splatbatch.run.follow_ups import FollowUpTask
from splatbatch.scheduler import single
from splatbatch.tasks.task import Task

USUAL = single.make


def make_here(config: Config, task: Task, *others: Any) -> AttemptFolder:
    """Make the product of a task, here if its program is a command of ours."""
    if not isinstance(task, FollowUpTask):
        return USUAL(config, task, *others)
    folder = AttemptFolder(task.home.path / "attempt-01")
    folder.path.mkdir(parents=True, exist_ok=True)
    usual = signal.getsignal(signal.SIGTERM)
    try:
        with contextlib.chdir(folder.path), mock.patch.dict(os.environ, {MARKER: f"batch.{task.name}.a1"}):
            cli.app([*task.words], standalone_mode=False)
    except SplatbatchError as error:
        error.message, _, hint = error.message.partition(HINT)
        error.hint = hint or f"See the log of its process: {folder.log}"
        raise
    finally:
        signal.signal(signal.SIGTERM, usual)
    return folder
