"""Two parents at one instant, again and again."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

from fake_batch import FakeBatch
from process_family import PATIENCE_S, wait_until


def races(folder: Path, number: int) -> Counter[tuple[int, int]]:
    """Start two parents at one instant, again and again; count how the pairs ended."""
    batch = FakeBatch(folder).make("p0", limits={"grace_s": 0.5, "free_disk_mib": 0}).script(p0=["await go"])
    return Counter(_race(batch) for _ in range(number))


def _race(batch: FakeBatch) -> tuple[int, int]:
    shutil.rmtree(batch.output, ignore_errors=True)
    for old in (*batch.folder.glob("barrier*"), *batch.folder.glob("go")):
        old.unlink()
    barrier = batch.folder / "barrier"
    environment = {**batch.environment(), "FAKE_TRAINER_BARRIER": str(barrier)}
    command, streams = batch.command("train"), {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    both = [subprocess.Popen(command, env=environment, **streams) for _ in range(2)]
    wait_until(lambda: len(list(batch.folder.glob("barrier.*"))) == 2)
    barrier.touch()
    wait_until(lambda: any(process.poll() is not None for process in both))
    (batch.folder / "go").touch()
    first, second = sorted(process.wait(PATIENCE_S) for process in both)
    return first, second
