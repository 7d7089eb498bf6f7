"""A made-up scene that is cut in two at x = 0: p0, p1, their source, and partition.json."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

from fake_batch import FakeBatch

from splatbatch.config import Offset
from splatbatch.scene.partition.boxes import EVERYWHERE, Box
from splatbatch.scene.partition.record import Core, Partition, write_partition

SCENE = Box((-1.0, -1.0, 2.9), (1.0, 1.0, 3.1))
AXES: tuple[Offset, Offset, Offset] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
TEST = frozenset({"img0.png", "img8.png"})


def halves(folder: Path, at: float = 0.0) -> Partition:
    """The partition of a scene whose patches lie in `folder`."""
    cores = tuple(
        Core(name, box, box.with_overlap((0.3, 0.0, 0.0)), box.clipped(SCENE))
        for name, box in zip(("p0", "p1"), EVERYWHERE.cut(0, at), strict=True)
    )
    source = folder / "sparse" / "0"
    return Partition(
        folder / "patches" / "partition.json", source, AXES, (0.0, 0.0, 0.0), TEST, frozenset(), cores, 0.3
    )


def cut(batch: FakeBatch, at: float = 0.0, **sections: dict[str, Any]) -> FakeBatch:
    """Make the scene of a batch, cut in two."""
    batch.make("p0", "p1", **sections)
    shutil.copytree(batch.folder / "patches/p0/sparse/0", batch.folder / "sparse/0")
    write_partition(halves(batch.folder, at))
    return batch


INF = math.inf
