"""The quarry with a partition beside its patches: its two cores meet in the middle of its longer side."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.holdout import every_nth
from splatbatch.scene.partition.boxes import EVERYWHERE, Box
from splatbatch.scene.partition.record import PARTITION, Core, Partition, write_partition

QUARRY = Path(__file__).parents[2] / "examples/quarry"
AXES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
OVERLAP = 0.25
"""Of the width of a core."""


def cut_quarry(folder: Path, offset: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Partition:
    """Copy the quarry into a folder and write its partition; photographs are linked."""
    shutil.copytree(QUARRY, folder, ignore=shutil.ignore_patterns("images", "output"))
    (folder / "images").symlink_to(QUARRY / "images")
    model = read_reconstruction(folder / "sparse/0")
    low, high = np.percentile(model.points.xyz, (1, 99), axis=0)
    axis = int((high - low).argmax())
    around = Box(tuple(low.tolist()), tuple(high.tolist()))
    cores = EVERYWHERE.cut(axis, float(np.median(model.points.xyz[:, axis])))
    step = [0.0, 0.0, 0.0]
    step[axis] = OVERLAP * float(high[axis] - low[axis]) / 2
    partition = Partition(
        path=folder / "patches" / PARTITION,
        source=folder / "sparse/0",
        axes=AXES,
        offset=offset,
        test=every_nth([image.name for image in model.images], 8),
        contiguous=frozenset(),
        cores=tuple(Core(f"p{i}", core, core.grown(tuple(step)), core.clipped(around)) for i, core in enumerate(cores)),
        overlap=OVERLAP,
    )
    write_partition(partition)
    return partition
