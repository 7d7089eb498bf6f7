"""One attempt of any trainer through the supervisor, inside this process, and its outcome."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from program_here import Clock, supervise_here

from splatbatch.config import Limits
from splatbatch.files import read_lines
from splatbatch.machine.protocol import GONE, Slot, verdict
from splatbatch.outcome import Outcome, Rejected, Splat
from splatbatch.output.attempt_folder import Attempt, AttemptFolder
from splatbatch.output.records.attempt import JobSpec
from splatbatch.scene.patches import Patch
from splatbatch.scheduler import judge, launch
from splatbatch.scheduler.running_attempt import RunningAttempt
from splatbatch.trainers import Trainer


class Attempted:
    """Runs a trainer on a patch in a folder of its own, by a clock of its own."""

    def __init__(self, trainer: Trainer, patch: Patch, root: Path, **limits: float) -> None:
        self.trainer = trainer
        self.folder = AttemptFolder(root / patch.name / "attempt-01")
        self.folder.path.mkdir(parents=True)
        limits = {"wall_s": 60, "stall_s": 60, "grace_s": 0.3} | limits
        argv = trainer.command(patch, self.folder)
        task: Any = None
        running = RunningAttempt(task, Attempt(patch.name, self.folder, JobSpec("b.p0.a1")), Slot("cpu"), "running")
        launch.write_job(running, argv, Limits(**limits))
        self.clock = Clock()

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        """Do something once the attempt has run for so long."""
        self.clock.alarms.append((seconds, do))

    def run(self) -> None:
        supervise_here(self.folder, self.clock)

    def run_apart(self) -> None:
        """Run it as a night does: a supervisor and a program that are processes."""
        subprocess.run([sys.executable, "-m", "splatbatch.supervisor", self.folder.path], check=False, timeout=60)

    def outcome(self) -> Outcome:
        self.run()
        return self.judged()

    def judged(self) -> Outcome:
        end = verdict(self.folder.read_exit(), GONE)
        assert end is not None
        return judge.judge(self.folder, self.trainer, end)

    def collect(self) -> Splat | Rejected:
        return self.trainer.collect(self.folder)

    def progress(self) -> list[dict[str, Any]]:
        return list(read_lines(self.folder.progress))
