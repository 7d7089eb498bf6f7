"""A batch that is touched, copied and restored between commands, as functions: no process is started, no GPU needed."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_attempt
from fake_batch import FakeBatch

from splatbatch.files import write_json
from splatbatch.isolated import ENDLESS
from splatbatch.outcome import Exited
from splatbatch.output.attempt_folder import Attempt
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.attempt import Claim, JobSpec, TimeLimits
from splatbatch.output.records.record import read_as
from splatbatch.scheduler.finalize import CollectResult, collect, write_down
from splatbatch.tasks import upkeep
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.fingerprint import fingerprint
from splatbatch.tasks.patch_state import UpToDate, is_due
from splatbatch.tasks.scene.merge import gather, merge
from splatbatch.tasks.status import read_status
from splatbatch.tasks.upkeep import ContentHasher

LONG_AGO = 1_600_000_000
KINDS = ("images", "patches", "masks", "output", "sparse")


class MovedBatch:
    """What may happen to a batch between two commands, and what the commands say."""

    def __init__(self, batch: FakeBatch, seed: int) -> None:
        self.fake, self.random = batch, random.Random(seed)
        self.places = 0

    @property
    def batch(self) -> Batch:
        return open_batch(self.fake.config)

    def files(self) -> list[Path]:
        """Return the files of one kind, or of all."""
        kinds = self.random.choice([KINDS, *((kind,) for kind in KINDS)])
        return sorted(path for kind in kinds for path in (self.fake.folder / kind).rglob("*") if path.is_file())

    def touch(self) -> None:
        for path in self.files():
            if self.random.random() < 0.7:
                os.utime(path, (LONG_AGO + self.random.randrange(10**6),) * 2 if self.random.random() < 0.5 else None)

    def copy_without_times(self) -> None:
        """Put a copy in the place of each file: another inode, another time."""
        for path in self.files():
            aside = path.with_name(f"{path.name}.copy")
            shutil.copyfile(path, aside)
            aside.replace(path)

    def copy_elsewhere(self, copy: Any = shutil.copyfile) -> None:
        """Go on in a copy of the whole batch in another place."""
        self.places += 1
        folder = self.fake.folder.parent / f"place-{self.places}"
        shutil.copytree(self.fake.folder, folder, copy_function=copy, symlinks=True)
        shutil.rmtree(self.fake.folder)
        self.fake.folder = folder

    def restore(self) -> None:
        """Bring it back as a backup with times does, after times have changed."""
        backup = shutil.copytree(self.fake.folder, self.fake.folder.parent / "backup", symlinks=True)
        self.touch()
        shutil.rmtree(self.fake.folder)
        backup.rename(self.fake.folder)

    def moves(self) -> None:
        self.random.choice((self.touch, self.copy_without_times, self.copy_elsewhere, self.restore))()

    def plan(self) -> dict[str, str]:
        """Return why patches are to be trained."""
        batch = self.batch
        standing = batch.standing("content")
        states = {name: standing.state(name) for name in batch.names}
        return {name: state.reason for name, state in states.items() if is_due(state)}

    def status(self) -> dict[str, str]:
        """Return the patches that are not trained, with their state."""
        batch = self.batch
        found = read_status(batch.output, batch.names, None, batch.standing())
        return {one.patch: f"{one.state} {one.cause}" for one in found if one.state != "trained"}

    def train(self) -> dict[str, str]:
        """Do what `train` does before it trains; return what it would train."""
        batch = self.batch
        for task in batch.tasks:
            upkeep.restore(task)
        standing = batch.standing("content")
        states = {name: standing.state(name) for name in batch.names}
        filled = ContentHasher(batch)
        for task in batch.tasks:
            if isinstance(state := states[task.name], UpToDate) and state.is_outdated:
                upkeep.update_fingerprint(task)
                filled.want(task.name)
        filled.finish(ENDLESS)
        return {name: state.reason for name, state in states.items() if is_due(state)}

    def retry(self) -> dict[str, str]:
        """Train p0 once more, worse than before; return what was said of it unless the better splat is kept."""
        task = next(one for one in self.batch.tasks if one.name == "p0")
        home = self.batch.output.patch("p0")
        before, best = home.read_result(), home.splat.read_bytes()
        claim = Claim(follows=home.newest_accepted())
        job = JobSpec(depends_on=fingerprint(task.patch, task.recipe), is_retry=True, claim=claim)
        attempt = Attempt("p0", home.new_attempt(), job)
        write_json(attempt.folder.job, replace(job, limits=TimeLimits(9, 9, 9)).to_record())
        fake_attempt.leave_splat(attempt.folder, 11, task.recipe.training.max_steps)
        leave_figures(attempt.folder, psnr=20.0)
        said = collect(attempt, Exited(0), task)
        filled = ContentHasher(self.batch)
        write_down(attempt, Exited(0), read_as(CollectResult, said), Ledger(self.batch.output.ledger, filled.tell))
        filled.finish(ENDLESS)
        after = home.read_result()
        is_kept = before and after and before.attempt == after.attempt and home.splat.read_bytes() == best
        return {} if is_kept else {"p0": str(said["said"])}

    def merge(self) -> dict[str, str]:
        """Merge; return what was written though nothing has changed."""
        batch = self.batch
        done, damage = merge(gather(batch, allow_missing=False), batch.output.scene.merged)
        return {"scene": f"{done.parts_written} parts {damage}"} if done.parts_written or damage else {}


def leave_figures(folder: Any, psnr: float) -> None:
    write_json(folder.metrics, {"final": {"psnr": psnr, "ssim": 0.9}})
