"""An eighth product: how many Gaussians the accepted splats have. All that it takes stands here; a test hands it in."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from splatbatch.config import TaskId
from splatbatch.files import read_json, write_json
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.run import DONE, FollowUpResult
from splatbatch.run.follow_ups import FinishedBatch
from splatbatch.scene.patches import Patch
from splatbatch.splats import read_header
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.patch_state import PatchState, UpToDate
from splatbatch.tasks.product import compare_product, damaged_state, key_of
from splatbatch.tasks.scene.evaluation import MeasureTask
from splatbatch.tasks.task import Task, untrained

VERSION = 1


@dataclass(frozen=True)
class Told:
    splats: dict[str, str]
    inputs: str

    def to_record(self) -> dict[str, Any]:
        return {"splats": self.splats, "inputs": self.inputs}


@dataclass(frozen=True, eq=False, kw_only=True)
class Counting(MeasureTask):
    module = "eighth_product"
    tries = 2
    takes: Literal["gpu", "any", "cpu"] = "cpu"

    def product(self) -> PatchState:
        found = read_json(self.record) or {}
        state = compare_product(self.orders.inputs, found.get("inputs"))
        return damaged_state(self.record.name) if isinstance(state, UpToDate) and "num" not in found else state

    def keep(self, folder: AttemptFolder) -> None:
        write_json(self.record, read_json(folder.metrics) or {})


def counting(batch: Batch) -> Task:
    """Return the task that counts the Gaussians of a batch."""
    folders = {name: batch.output.patch(name) for name in batch.names}
    results = {name: folder.read_result() for name, folder in folders.items()}
    hashes = {name: one.sha256 for name, one in results.items() if one}
    told = Told({name: str(folders[name].splat) for name in hashes}, key_of(VERSION, hashes))
    return Counting(
        TaskId("count"),
        Patch("count", batch.output.path, batch.output.path),
        *untrained(batch.config),
        orders=told,
        attempts=batch.output.following("count"),
        record=batch.output.path / "count.json",
    )


def count_after(trained: FinishedBatch) -> Sequence[FollowUpResult]:
    """Count what was trained, unless that is known."""
    task = counting(trained.batch)
    if not task.is_fresh():
        trained.make(task)
    return (FollowUpResult("count", DONE, "counted", "", time.time()),)


def main(folder: AttemptFolder) -> None:
    told = read_json(folder.settings) or {}
    num = sum(read_header(Path(splat)).num_gaussians for splat in told["splats"].values())
    write_json(folder.metrics, {"inputs": told["inputs"], "num": num})


if __name__ == "__main__":
    main(AttemptFolder(Path(sys.argv[1])))
