"""Plans a split: cores and photographs of the patches, and the hold-out and offset that they share. Nothing is written.

If an option cannot be met, the error names the nearest possible value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from splatbatch.errors import ConfigError, SceneError
from splatbatch.files import MOST_JSON_BYTES, read_regular
from splatbatch.scene.colmap.indexed_model import IndexedModel, read_sightings
from splatbatch.scene.colmap.types import finite, triple
from splatbatch.scene.frame import offset_for, span_between
from splatbatch.scene.holdout import hold_out
from splatbatch.scene.partition import cuts, record
from splatbatch.scene.partition.boxes import Box
from splatbatch.scene.partition.files import PARTITION
from splatbatch.text import plural

MAX_IMAGES = 400
WIDEST_OVERLAP = 0.5
LARGEST_BLOCK = 0.3
WORLD: record.Axes = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
BOXES_LOOK_SO = (
    'Write the file as {"boxes": [{"name": "p0", "lower": [null, null, null], "upper": [3.5, null, null]}, …]}.'
)
POINTS_TRIED = 200_000
"""Approximate number of points on which cuts are tried; the result is then checked on all points."""
UNEVEN = 1.6


@dataclass(frozen=True)
class DrawnBoxes:
    """Cores that were drawn by hand, in the file of --boxes. `axes` are the axes of the boxes."""

    axes: record.Axes
    cores: dict[str, Box]
    """Core of each patch, by its name; together the cores fill all space without overlapping."""


@dataclass(frozen=True)
class SplitOptions:
    """Options of `splatbatch split` that decide where patches lie."""

    max_images: int | None = None
    """Most photographs of a patch (--max-images); None: `MAX_IMAGES`, unless boxes or a grid decide."""
    overlap: float = 0.15
    """Overlap of a patch beyond each side of its core, as a share of the core's width, 0 to `WIDEST_OVERLAP`."""
    grid: tuple[int, int] | None = None
    """Number of patches along the cameras' longest extent, and across (--grid); None: no grid is requested.

    Ignored with `boxes`, except that it is recorded if their number is that of the grid.
    """
    boxes: DrawnBoxes | None = None
    """Cores drawn by hand (--boxes); None: cores are computed, or kept from an earlier split."""
    up: tuple[float, float, float] | None = None
    """Up direction (--axis), along which nothing is cut; ignored with `boxes`, which have axes of their own.

    None: that of an earlier split, else the direction in which the cameras vary least (see `cuts.principal_axes`).
    """
    block: float = 0.0
    """Share of the photographs to hold out as one block, taken side by side, 0 to `LARGEST_BLOCK`; 0: no new block.

    The block of an earlier split is kept whatever this share is.
    """


def parse_grid(text: str) -> tuple[int, int] | None:
    """Return rows and columns of the value of --grid, such as "3x4"; None for an empty text.

    Raises:
        ConfigError: the text is not two whole numbers above 0, of at most four digits.
    """
    if not text:
        return None
    found = re.fullmatch(r"\s*(\d{1,4})\s*[xX×*]\s*(\d{1,4})\s*", text)
    if not found or not (int(found[1]) and int(found[2])):
        raise ConfigError(f"--grid {text}: should be two numbers above 0, as 3x4")
    return int(found[1]), int(found[2])


def parse_axis(text: str) -> tuple[float, float, float] | None:
    """Return the direction in the value of --axis, such as "0,0,1"; None for an empty text. Its length is not checked.

    Raises:
        ConfigError: the text is not three numbers.
    """
    if not text:
        return None
    try:
        x, y, z = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"--axis {text}: should be three numbers, as 0,0,1") from error
    return x, y, z


def check_shares(overlap: float, block: float) -> None:
    """Check that the shares of --overlap and --holdout-block are within their limits.

    Args:
        overlap: share of a core's width, 0 to `WIDEST_OVERLAP`.
        block: share of the photographs, 0 to `LARGEST_BLOCK`.

    Raises:
        ConfigError: a share is outside its limits; the nearest possible value is named.
    """
    asked = (("overlap", overlap, WIDEST_OVERLAP, " of a core's width"), ("holdout-block", block, LARGEST_BLOCK, ""))
    for option, share, most, of_what in asked:
        if not 0 <= share <= most:
            nearest = most if share > 0 else 0
            raise ConfigError(f"--{option} {share}: should be 0 to {most}{of_what}; nearest: {nearest}")


class _DrawnBox(record.BoxForm):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: record.Name


class _Drawing(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    axes: tuple[record.Triple, record.Triple, record.Triple] = WORLD
    boxes: Annotated[tuple[_DrawnBox, ...], Field(min_length=1)]


def read_boxes(path: Path) -> DrawnBoxes:
    """Return the cores in the file of --boxes: a partition.json, or a JSON file that was drawn by hand.

    The outer sides of all boxes together become infinite.

    Raises:
        ConfigError: the file cannot be read or has another form; its axes are not at right angles; two boxes have one
            name; or boxes overlap or leave space between them.
    """
    try:
        given = json.loads(read_regular(path, MOST_JSON_BYTES))
        if isinstance(given, dict) and "format" in given:  # of a partition: its cores
            cores = [{"name": one["name"], **one["core"]} for one in given["patches"]]
            given = {"axes": given["axes"], "boxes": cores}
        form = _Drawing.model_validate_json(json.dumps(given))
    except OSError as error:
        raise ConfigError(f"--boxes {path}: cannot be read ({error.strerror})", "Name a readable file.") from error
    except ValidationError as error:
        raise ConfigError(f"--boxes {path}: {record.first_mistake(error)}", BOXES_LOOK_SO) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"--boxes {path}: the file is no JSON with boxes ({error!r})", BOXES_LOOK_SO) from error
    if wrong := record.not_a_frame(form.axes):
        raise ConfigError(f"--boxes {path}: axes: {wrong}")
    # a rectangle drawn by hand stands for all of the scene: outer sides become infinite
    boxes = [record.box_of(one) for one in form.boxes]
    lower, upper = np.array([box.lower for box in boxes]), np.array([box.upper for box in boxes])
    lower = np.where(lower == lower.min(axis=0), -np.inf, lower)
    upper = np.where(upper == upper.max(axis=0), np.inf, upper)
    sides = zip(form.boxes, lower, upper, strict=True)
    named = [(one.name, Box(triple(low), triple(high))) for one, low, high in sides]
    if wrong := record.mistake_in_cores(named):
        hint = "Give each box a name of its own, and let neighbours share a side; null is infinitely far."
        raise ConfigError(f"--boxes {path}: {wrong}", hint)
    return DrawnBoxes(form.axes, dict(named))


@dataclass(frozen=True, eq=False)
class PartitionPlan:
    """A scene with its planned partition, of which nothing is written yet."""

    observations: IndexedModel
    """The scene: images, points, and which image sees which point."""
    partition: record.Partition
    parts: Mapping[str, cuts.CutRegion]
    """Photographs and points of each patch, by its name, in the order of the partition."""
    before: record.Partition | None
    """Partition of an earlier split in the same folder; None: there is none."""
    notes: tuple[str, ...] = ()
    """Notes for the user in words, as on photographs that are in no patch; may be empty."""
    hold_out: str = ""
    """Note on how many frames are held out; empty if each held-out photograph was taken alone."""


def plan_split(source: Path, out: Path, options: SplitOptions) -> PartitionPlan:
    """Return how a scene would be cut into patches; files are read, and none is written.

    The partition of an earlier split in `out` is kept as far as the options allow: axes, offset, hold-out, and cores.

    Args:
        source: folder of the scene's COLMAP model.
        out: folder that the patches are planned for; may be absent.
        options: options of the split.

    Raises:
        ConfigError: the options cannot be met, or a patch would have too little to train; the nearest possible options
            are named if there are any.
        SceneError: the model cannot be read or has nothing to cut, or the partition of an earlier split cannot be read.
        LaterFormatError: a later version of splatbatch wrote that partition.
        PermissionError: the folder `out` may not be entered.
    """
    check_shares(options.overlap, options.block)
    before = record.partition_of(out)
    sightings = read_sightings(source)
    if not sightings.images or not len(sightings.photo):
        lack = f"{plural(len(sightings.images), 'image')} and {plural(len(sightings.points), 'point')}"
        raise SceneError(
            f"{source}: nothing to cut: {lack}, and no image sees a point", "Name a model with images and points."
        )
    held = hold_out(sightings, options.block, before)
    axes, out_of_training = _axes(sightings, options, before), held.test | held.contiguous
    is_test = np.array([image.name in out_of_training for image in sightings.images], dtype=bool)
    tried, ground = (
        cuts.CutContext(one, np.array(axes), is_test, options.overlap)
        for one in (sightings.some(POINTS_TRIED), sightings)
    )
    parts = _laid_out(tried, ground, options, before)
    cores = tuple(
        record.Core(
            name,
            part.core,
            part.grown,
            part.bounds,
            num_images=part.num_photos,
            num_points=int(part.points.sum()),
            num_core_points=int((part.points & part.in_core).sum()),
            cost=round(part.cost, 6),
        )
        for name, part in parts.items()
    )
    span = span_between(finite(sightings.points.xyz), finite(sightings.centers()))
    offset = before.offset if before else offset_for([span] if span else [])
    path = record.absolute(out) / PARTITION
    grid = options.grid or (before.grid if before and _keeps(options, before) else None)
    partition = record.Partition(
        path,
        record.absolute(source),
        axes,
        offset,
        held.test,
        held.contiguous,
        cores,
        options.overlap,
        held.train,
        grid if grid and grid[0] * grid[1] == len(cores) else None,
    )
    return PartitionPlan(sightings, partition, parts, before, tuple(_notes(sightings, parts, before)), held.words)


def _axes(sightings: IndexedModel, options: SplitOptions, before: record.Partition | None) -> record.Axes:
    if options.boxes:
        return options.boxes.axes
    if before and _keeps_up(options, before):
        return before.axes
    xyz = sightings.points.xyz
    low, high = np.percentile(xyz, (1, 99), axis=0)
    near = ((xyz >= low) & (xyz <= high)).all(axis=1)  # a lone mismatched point would turn any axis
    return cuts.principal_axes(sightings.centers(), xyz[near], options.up)


def _laid_out(
    tried: cuts.CutContext, ground: cuts.CutContext, options: SplitOptions, before: record.Partition | None
) -> dict[str, cuts.CutRegion]:
    """Return the patches by name, which can be trained and keep to --max-images.

    Raises:
        ConfigError: there is no such layout.
    """
    layout = None
    if options.boxes:
        cores = options.boxes.cores
    elif before and _keeps(options, before):
        most = options.max_images or (len(ground.totals) if before.grid else MAX_IMAGES)
        cores = _kept(tried, ground, {core.name: core.core for core in before.cores}, most)
    else:
        most = options.max_images or MAX_IMAGES
        layout = cuts.by_grid(tried, ground, options.grid) if options.grid else cuts.by_size(tried, ground, most)
        cores = {f"p{index}": part.core for index, part in enumerate(layout)}
    layout = layout or ground.lay_out(list(cores.values()))
    parts = dict(zip(cores, layout, strict=True))
    for name, part in parts.items():
        if not ground.can_train(part):
            few = f"{plural(part.num_photos, 'photograph')} and {plural(int(part.in_core.sum()), 'point')}"
            raise ConfigError(
                f"patch {name} would have {few}, too few to train: needed are {cuts.LEAST_PHOTOS} photographs "
                f"that are not held out, and {cuts.LEAST_POINTS} points",
                "Draw the box of this patch larger, or join it to a neighbour; a scene so small needs no split.",
            )
    if options.max_images and (most := cuts.most_photos(layout)) > options.max_images:
        asked = f"--max-images {options.max_images}: a patch would have {most} photographs"
        raise ConfigError(asked, f"Nearest possible with these boxes: --max-images {most}.")
    return parts


def _keeps_up(options: SplitOptions, before: record.Partition) -> bool:
    """Return whether the options agree with the up direction of an earlier split."""
    if options.up is None:
        return True
    length = float(np.linalg.norm(options.up)) or 1.0
    return bool(np.allclose(np.array(options.up) / length, before.axes[2], atol=1e-6))


def _keeps(options: SplitOptions, before: record.Partition) -> bool:
    """Return whether the cores of an earlier split are kept; those that became too large are cut later."""
    return options.boxes is None and options.grid in (None, before.grid) and _keeps_up(options, before)


def _kept(tried: cuts.CutContext, ground: cuts.CutContext, cores: dict[str, Box], most: int) -> dict[str, Box]:
    """Return the cores of an earlier split; one that became too large is cut, and one half keeps its name.

    Raises:
        ConfigError: a core cannot be cut further.
    """
    while True:
        layout = ground.lay_out(list(cores.values()))
        large = [name for name, part in zip(cores, layout, strict=True) if part.num_photos > most]
        if not large:
            return cores
        box, others = cores[large[0]], [core for name, core in cores.items() if name != large[0]]
        try:
            below, above, *_ = tried.balanced(partial(cuts.halves, num_parts=2, box=box), box, others)
        except cuts.UncuttableBox as error:
            what = f"--max-images {most}: patch {large[0]} has too many photographs, and cannot be cut any further"
            raise ConfigError(what, "Give a larger --max-images.") from error
        name = next(name for index in range(len(cores) + 1) if (name := f"p{index}") not in cores)
        trial = cores | {large[0]: below.core, name: above.core}
        if len(trial) > len(ground.totals) or not all(map(ground.can_train, ground.lay_out(list(trial.values())))):
            raise ConfigError(
                f"--max-images {most}: not possible: patch {large[0]} cannot be cut any smaller",
                f"Nearest possible: --max-images {cuts.most_photos(layout)}.",
            )
        cores = trial


def _notes(
    sightings: IndexedModel,
    parts: Mapping[str, cuts.CutRegion],
    before: record.Partition | None,
) -> list[str]:
    notes = []
    blind = np.sum([part.photos for part in parts.values()], axis=0) == 0
    if blind.any():
        names = [image.name for image, is_blind in zip(sightings.images, blind, strict=True) if is_blind]
        notes.append(f"{plural(len(names), 'photograph')} see no point and are in no patch: {', '.join(names[:5])}")
    if sightings.num_nowhere:
        notes.append(
            f"{plural(sightings.num_nowhere, 'point')} of the source left out: no finite position (NaN, infinity)"
        )
    evenness = cuts.evenness([part.cost for part in parts.values()])
    if len(parts) > 1 and evenness > UNEVEN:
        remedy = "; to cut anew, split into another folder" if before else ""
        notes.append(f"the largest patch costs {evenness:.1f} times as much to train as the smallest{remedy}")
    return notes
