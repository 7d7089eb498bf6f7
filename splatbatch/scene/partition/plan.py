"""The plan of a split: cores, photographs, hold-out and offset; nothing is written for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from splatbatch.errors import ConfigError, SceneError
from splatbatch.plain_text import counted
from splatbatch.scene.colmap.sightings import Sightings, read_sightings
from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.frame import offset_for, span_between
from splatbatch.scene.holdout import hold_out
from splatbatch.scene.partition.boxes import Box
from splatbatch.scene.partition.cuts import (
    LEAST_PHOTOS,
    LEAST_POINTS,
    Ground,
    Layout,
    NoRoom,
    Part,
    by_grid,
    by_size,
    halves,
    look,
    principal_axes,
)
from splatbatch.scene.partition.options import MAX_IMAGES, Wish, check_overlap
from splatbatch.scene.partition.place import PARTITION
from splatbatch.scene.partition.record import Axes, Core, Partition, absolute, partition_of

POINTS_TRIED = 200_000
"""Points that cuts are tried on; what was found has to hold for all."""
UNEVEN = 1.6


@dataclass(frozen=True, eq=False)
class Plan:
    """A scene with its cuts."""

    sightings: Sightings
    partition: Partition
    parts: Mapping[str, Part]
    """By the name of the patch."""
    before: Partition | None
    """What an earlier split has left where this one goes."""
    notes: tuple[str, ...] = ()
    """What a person should know, in words."""


def plan_split(source: Path, out: Path, wish: Wish) -> Plan:
    """Return how a scene would be cut into patches in the folder `out`.

    An earlier partition there is kept to as far as the wish allows: axes, offset, hold-out, and cores.

    Raises:
        ConfigError: the wish cannot be met; the nearest that can is named.
        SceneError: the model cannot be read, or there is nothing in it to cut.
    """
    check_overlap(wish.overlap)
    before = partition_of(out)
    sightings = read_sightings(source)
    if not sightings.images or not len(sightings.photo):
        lack = f"{counted(len(sightings.images), 'image')} and {counted(len(sightings.points), 'point')}"
        raise SceneError(f"{source}: nothing to cut: {lack}, none of which sees another", "Name a reconstruction.")
    held = hold_out(sightings, wish.block, wish.seed, before)
    axes = _axes(sightings, wish, before)
    tried, ground = (
        Ground(look(one, np.array(axes)), held.is_test(one), wish.overlap)
        for one in (sightings.some(POINTS_TRIED), sightings)
    )
    named, layout = _laid_out(tried, ground, wish, before)
    cores = tuple(_core(name, index, layout) for index, name in enumerate(named))
    offset = before.offset if before else _offset(sightings)
    path = absolute(out) / PARTITION
    partition = Partition(
        path,
        absolute(source),
        axes,
        offset,
        held.test,
        held.contiguous,
        cores,
        wish.overlap,
        held.train,
        _grid(wish, before, len(cores)),
    )
    parts = dict(zip(named, layout.parts, strict=True))
    return Plan(sightings, partition, parts, before, tuple(_notes(sightings, layout, parts, before)))


def _axes(sightings: Sightings, wish: Wish, before: Partition | None) -> Axes:
    if wish.boxes:
        return wish.boxes.axes
    if before and _keeps_up(wish, before):
        return before.axes
    xyz = sightings.points.xyz
    low, high = np.percentile(xyz, (1, 99), axis=0)
    near = ((xyz >= low) & (xyz <= high)).all(axis=1)  # a lone mismatched point would turn any axis
    return principal_axes(sightings.centers(), xyz[near], wish.up)


def _laid_out(tried: Ground, ground: Ground, wish: Wish, before: Partition | None) -> tuple[list[str], Layout]:
    """Return the names of the patches, and where they lie."""
    if wish.boxes:
        names, layout = list(wish.boxes.cores), ground.lay_out(list(wish.boxes.cores.values()))
        return names, _asked_for(ground, names, layout, wish)
    if before and _keeps(wish, before):
        most = wish.max_images or (len(ground.seen.totals) if before.grid else MAX_IMAGES)
        cores = _kept(tried, ground, {core.name: core.core for core in before.cores}, most)
        return list(cores), _asked_for(ground, list(cores), ground.lay_out(list(cores.values())), wish)
    most = wish.max_images or MAX_IMAGES
    layout = by_grid(tried, ground, wish.grid) if wish.grid else by_size(tried, ground, most)
    names = [f"p{index}" for index in range(len(layout.cores))]
    return names, _asked_for(ground, names, layout, wish)


def _grid(wish: Wish, before: Partition | None, num_cores: int) -> tuple[int, int] | None:
    """Return the grid that cores are of, if they are of one."""
    grid = wish.grid or (before.grid if before and _keeps(wish, before) else None)
    return grid if grid and grid[0] * grid[1] == num_cores else None


def _keeps_up(wish: Wish, before: Partition) -> bool:
    """Return whether a wish says nothing else of what is up than an earlier split has done."""
    if wish.up is None:
        return True
    length = float(np.linalg.norm(wish.up)) or 1.0
    return bool(np.allclose(np.array(wish.up) / length, before.axes[2], atol=1e-6))


def _keeps(wish: Wish, before: Partition) -> bool:
    """Return whether the cores of an earlier split are what is wished for, those that are too large apart."""
    return wish.boxes is None and wish.grid in (None, before.grid) and _keeps_up(wish, before)


def _asked_for(ground: Ground, names: list[str], layout: Layout, wish: Wish) -> Layout:
    """Return a layout that can be trained and keeps to --max-images.

    Raises:
        ConfigError: it is none.
    """
    if (lacking := ground.lacks(layout)) is not None:
        part = layout.parts[lacking]
        few = f"{counted(part.num_photos, 'photograph')} and {counted(int(part.in_core.sum()), 'point')}"
        raise ConfigError(
            f"patch {names[lacking]} would have {few}: too few to train ({LEAST_PHOTOS} that are not held out, "
            f"{LEAST_POINTS})",
            "Draw its box larger, or join it to a neighbour; a scene so small needs no split.",
        )
    if wish.max_images and layout.most() > wish.max_images:
        asked = f"--max-images {wish.max_images}: a patch would have {layout.most()}"
        raise ConfigError(asked, f"Nearest possible with these boxes: --max-images {layout.most()}.")
    return layout


def _kept(tried: Ground, ground: Ground, cores: dict[str, Box], most: int) -> dict[str, Box]:
    """Return the cores of an earlier split; one that has become too large is cut, and keeps its name for one half.

    Raises:
        ConfigError: one cannot be cut any more.
    """
    while True:
        layout = ground.lay_out(list(cores.values()))
        large = [name for name, part in zip(cores, layout.parts, strict=True) if part.num_photos > most]
        if not large:
            return cores
        box, others = cores[large[0]], [core for name, core in cores.items() if name != large[0]]
        try:
            below, above, *_ = tried.balanced(partial(_halved, box), box, others).cores
        except NoRoom as error:
            raise ConfigError(f"--max-images {most}: {large[0]} cannot be cut any more") from error
        trial = cores | {large[0]: below, _next_name(cores): above}
        halved = ground.lay_out(list(trial.values()))
        if ground.lacks(halved) is not None or len(trial) > len(ground.seen.totals):
            raise ConfigError(
                f"--max-images {most}: cannot be kept to: {large[0]} cannot be cut any smaller",
                f"Nearest possible: --max-images {layout.most()}.",
            )
        cores = trial


def _halved(box: Box, places: Floats, weights: Floats) -> list[Box]:
    return halves(places, weights, 2, box)


def _next_name(names: Mapping[str, Box]) -> str:
    return next(name for index in range(len(names) + 1) if (name := f"p{index}") not in names)


def _core(name: str, index: int, layout: Layout) -> Core:
    part = layout.parts[index]
    num_core_points = int((part.points & part.in_core).sum())
    counts = (part.num_photos, int(part.points.sum()), num_core_points, round(part.cost, 6))
    return Core(name, layout.cores[index], layout.grown[index], layout.bounds[index], *counts)


def _offset(sightings: Sightings) -> tuple[float, float, float]:
    points, centers = sightings.points.xyz, sightings.centers()
    span = span_between(*(one[np.isfinite(one).all(axis=1)] for one in (points, centers)))
    return offset_for([span] if span else [])


def _notes(sightings: Sightings, layout: Layout, parts: Mapping[str, Part], before: Partition | None) -> list[str]:
    notes = []
    blind = np.sum([part.photos for part in parts.values()], axis=0) == 0
    if blind.any():
        names = [image.name for image, is_blind in zip(sightings.images, blind, strict=True) if is_blind]
        notes.append(f"{counted(len(names), 'photograph')} see no point and are in no patch: {', '.join(names[:5])}")
    if sightings.num_nowhere:
        notes.append(f"{counted(sightings.num_nowhere, 'point')} of the source left out: nowhere to be (NaN, infinity)")
    if len(layout.cores) > 1 and layout.evenness() > UNEVEN:
        remedy = "; to cut anew, split into another folder" if before else ""
        notes.append(f"the dearest patch costs {layout.evenness():.1f} times the cheapest{remedy}")
    return notes
