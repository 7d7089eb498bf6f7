"""Scenes cut into boxes, and splats of their patches: made without a reconstruction, for tests of the merge."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from splatbatch.scene.partition.boxes import EVERYWHERE, Box
from splatbatch.scene.partition.record import Core, Partition
from splatbatch.splats import Gaussians, offset_comments, write_splat
from splatbatch.splats.merge import MergePart, MergeSource, inside

CONTENT = Box((-10.0, -10.0, -10.0), (10.0, 10.0, 10.0))
UPRIGHT = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
Triple = tuple[float, float, float]


def random_splat(num: int, degree: int = 1, seed: int = 0) -> Gaussians:
    """Return Gaussians with 10 units around the origin, a third of them on whole coordinates: on borders of boxes."""
    rng = np.random.default_rng(seed)
    shapes = [(num, 3), (num, 3), (num, 4), (num,), (num, 3), (num, (degree + 1) ** 2 - 1, 3)]
    means, *others = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    means = np.where(rng.random((num, 1)) < 1 / 3, np.round(means * 4), means * 4).astype(np.float32)
    return Gaussians(means, *others)


def some(splat: Gaussians, chosen: np.ndarray) -> Gaussians:
    return Gaussians(*(np.ascontiguousarray(values[chosen]) for values in vars(splat).values()))


def tiles(cuts: list[tuple[int, int, float]]) -> list[Box]:
    """Return boxes that tile space: everywhere, cut again and again; (which box, along which axis, where)."""
    boxes = [EVERYWHERE]
    for which, axis, at in cuts:
        index = which % len(boxes)
        if boxes[index].lower[axis] < at < boxes[index].upper[axis]:
            boxes[index : index + 1] = boxes[index].cut(axis, at)
    return boxes


def partition_of_boxes(
    folder: Path, boxes: list[Box], axes: tuple[Triple, ...] = UPRIGHT, content: Box = CONTENT, by: float = 1.0
) -> Partition:
    cores = tuple(
        Core(f"p{i}", box, box.with_overlap((by, by, by)), box.clipped(content.with_overlap((100.0,) * 3)))
        for i, box in enumerate(boxes)
    )
    nobody: frozenset[str] = frozenset()
    x, y, z = axes
    return Partition(folder / "partition.json", folder, (x, y, z), (0.0, 0.0, 0.0), nobody, nobody, cores, 0.15)


def write_parts(partition: Partition, splat: Gaussians, offset: Triple = (0.0, 0.0, 0.0)) -> list[MergePart]:
    """Write what each patch has of a splat, its grown core, and return it as parts of a merge."""
    parts, folder = [], partition.path.parent
    places = partition.in_axes(splat.means.astype(np.float64), offset)
    for core in partition.cores:
        own = core.grown.holds(places)
        if core.core.holds(places).any():
            path = folder / f"{core.name}.ply"
            write_splat(path, some(splat, own), 20, comments=offset_comments(offset))
            parts.append(MergePart(MergeSource(path, core.name), inside(partition, offset, core.core), core.name))
    return parts


def rows_of(path: Path) -> np.ndarray:
    """Return the rows of a splat in order of their bytes: two splats have the same Gaussians if these are equal."""
    header, _, body = path.read_bytes().partition(b"end_header\n")
    width = header.count(b"property float ")
    rows = np.frombuffer(body, np.uint32).reshape(-1, width)
    return rows[np.lexsort(rows.T[::-1])]
