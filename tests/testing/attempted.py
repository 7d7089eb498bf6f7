"""One attempt of any trainer through the real supervisor, and what comes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from splatbatch.config import Limits
from splatbatch.files import read_lines
from splatbatch.machine.protocol import Seen, Slot, verdict
from splatbatch.outcome import Outcome, Rejected, Splat
from splatbatch.scene.patches import Patch
from splatbatch.scheduler import judge
from splatbatch.store.attempt_folder import Attempt, AttemptFolder
from splatbatch.trainers import Trainer

PATIENCE_S = 30.0


class Attempted:
    """Starts a trainer on a patch in a folder of its own."""

    def __init__(self, trainer: Trainer, patch: Patch, root: Path, **limits: float) -> None:
        self.trainer = trainer
        self.folder = AttemptFolder(root / patch.name / "attempt-01")
        self.folder.path.mkdir(parents=True)
        limits = {"wall_s": 60, "stall_s": 60, "grace_s": 0.3} | limits
        argv = trainer.command(patch, self.folder)
        order = judge.Order("b.p0.a1", argv, Slot("cpu"))
        judge.write_job(Attempt(patch.name, self.folder), order, Limits(**limits))
        self.process = subprocess.Popen([sys.executable, "-m", "splatbatch.supervisor", str(self.folder.path)])

    def outcome(self) -> Outcome:
        self.process.wait(PATIENCE_S)
        end = verdict(self.folder.read_exit(), Seen(is_running=False))
        assert end is not None
        return judge.judge(self.folder, self.trainer, end)

    def collect(self) -> Splat | Rejected:
        return self.trainer.collect(self.folder)

    def progress(self) -> list[dict[str, Any]]:
        return list(read_lines(self.folder.progress))
