"""Reads and writes partition.json, which holds how a scene was cut into patches.

The file is checked whenever it is read, and is written whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema, TypeAdapter, ValidationError, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import core_schema

from splatbatch.config import NO_OFFSET, Offset
from splatbatch.errors import SceneError
from splatbatch.files import LONGEST_PART_BYTES, MOST_JSON_BYTES, read_regular, write_json
from splatbatch.hashing import Stamp, stamp_of
from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.partition.boxes import Box, box_between, first_meeting, open_sides, owners, tile
from splatbatch.scene.partition.files import find_partition

AGAIN = "Cut the scene again, into another folder: splatbatch split."
Finite = Annotated[float, Field(allow_inf_nan=False)]
Triple = tuple[Finite, Finite, Finite]
Axes = tuple[Triple, Triple, Triple]
Side = Finite | None
Count = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$", max_length=LONGEST_PART_BYTES)]
"""Name of a patch and of its folder: letters, digits, and `_ . -`, not beginning with a dot."""


_STRICT = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True, strict=True, defer_build=True)


class BoxForm(BaseModel):
    """A half-open box in a file: lower <= x < upper along each of the partition's axes; null: an infinite side."""

    model_config = _STRICT

    lower: tuple[Side, Side, Side]
    upper: tuple[Side, Side, Side]

    @model_validator(mode="after")
    def _has_room(self) -> BoxForm:
        for low, high in zip(self.lower, self.upper, strict=True):
            if low is not None and high is not None and not low < high:
                raise ValueError(f"should not be empty: lower {low} is not below upper {high}")
        return self


def box_of(form: BoxForm) -> Box:
    """Return the box that a file holds; null in the file becomes an infinite side."""
    return box_between(form.lower, form.upper)


def _box_schema(_: Any, handler: Callable[[Any], core_schema.CoreSchema]) -> core_schema.CoreSchema:
    return core_schema.no_info_after_validator_function(box_of, handler(BoxForm))


BoxInFile = Annotated[Box, GetPydanticSchema(_box_schema)]


@dataclass(frozen=True)
class Core:
    """A patch of the partition: its boxes, in the axes of the partition, and the size of its model."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    name: Name
    """Name of the patch and of its folder, beside this file."""
    core: BoxInFile
    """Box that the patch answers for. The cores of all patches fill space without overlap; outer sides are infinite."""
    grown: BoxInFile
    """Core with the overlap around the core; near photographs that see enough points in this box belong to the patch.

    Infinite sides of the core stay infinite.
    """
    bounds: BoxInFile
    """Part of the core that the scene's points fill, with a margin; its sides are finite."""
    num_images: Count = 0
    """Number of photographs of the patch; 0 if absent."""
    num_points: Count = 0
    """Number of points in the patch's model; 0 if absent."""
    num_core_points: Count = 0
    """Number of points of the patch's model that lie inside the core; 0 if absent."""
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Share of the scene's training work that the patch costs; cuts are chosen so that costs are even. 0 if absent."""
    cut_from: str = ""
    """SHA-256 of the patch's files. A later split with the same result leaves the patch unchanged. Empty: unknown."""


@dataclass(frozen=True)
class Partition:
    """How a scene was cut into patches, and what is decided once for all patches: offset and hold-out."""

    __pydantic_config__: ClassVar[ConfigDict] = {**_STRICT, "title": "PartitionForm"}

    path: Annotated[SkipJsonSchema[Path], Field(default=Path())]
    """Path of the partition.json that was read or is to be written; it is no key of the file."""
    source: Path
    """Folder of the COLMAP model that was cut. In the file relative to the file's folder, if they share more than the
    root.
    """
    axes: Axes
    """Axes of the boxes: unit vectors in world coordinates, one a row; the last is up.

    World coordinates times the transpose of this matrix are coordinates of the boxes.
    """
    offset: Triple
    """Offset subtracted from all coordinates before training, in units of the model, the same for every patch.

    Three zeros: none.
    """
    test: frozenset[str]
    """Photographs that are held out in every patch, by image name."""
    contiguous: Annotated[frozenset[str], Field(default=frozenset())]
    """Photographs held out as one block, taken side by side, for `evaluation.holdout: contiguous` or `both`.

    By image name; empty: no block was requested.
    """
    cores: Annotated[tuple[Core, ...], Field(min_length=1, validation_alias="patches")]
    """The patches with their cores; in the file under `patches`."""
    overlap: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0
    """Overlap around a core, as a share of its width; 0 if absent."""
    train: frozenset[str] = frozenset()
    """All photographs that are not in `test`; they never become test photographs when the scene grows.

    Empty if absent.
    """
    grid: tuple[Count, Count] | None = None
    """Rows and columns of the grid that the cores form; null: they form none.

    A later split with the same grid, or with none requested, keeps the cores; not so with --boxes or another --axis. A
    core that has too many photographs by then is cut.
    """
    format: Annotated[Literal[1], Field(default=...)] = 1
    """Version of the file format; a file with another version is invalid."""

    def core(self, name: str) -> Core | None:
        """Return the record of a patch by its name; None if the partition has no such patch."""
        return next((core for core in self.cores if core.name == name), None)

    def in_axes(self, places: Floats, offset: Offset = NO_OFFSET) -> Floats:
        """Return places in the axes of the boxes, [N, 3], in float64.

        The result for a place has the same bits whatever other places are in the array. A matrix product does not
        guarantee that: a Gaussian on a border could belong to two cores, or to none.

        Args:
            places: places in world coordinates from which `offset` was subtracted, [N, 3].
            offset: that offset; three zeros: none was subtracted.
        """
        x, y, z = (np.asarray(places, dtype=np.float64) + np.array(offset)).T
        return np.stack([x * along[0] + y * along[1] + z * along[2] for along in self.axes], axis=1)

    def owner(self, places: Floats) -> NDArray[np.intp]:
        """Return the index, in `cores`, of the core in which each place lies, [N]; -1 for NaN and plus infinity.

        Places are compared in float64, so that a place on a border belongs to the same core for every caller.

        Args:
            places: places in the axes of the boxes, [N, 3], as `in_axes` returns them.
        """
        return owners([core.core for core in self.cores], np.asarray(places, dtype=np.float64))


def partition_of(patches: Path) -> Partition | None:
    """Return the partition of the patches in a folder; None if `splatbatch split` wrote no partition.json there.

    Raises:
        SceneError: partition.json cannot be read or is invalid, or a split was interrupted.
        LaterFormatError: a later version of splatbatch wrote the file.
        PermissionError: the folder may not be entered.
    """
    path = find_partition(patches)
    return read_partition(path) if path else None


def read_partition(path: Path) -> Partition:
    """Return the partition in a file, with `source` as a path from the file's folder; cached until the file changes.

    Raises:
        SceneError: the file cannot be read or is invalid; the error names key and value.
    """
    return _read(path, stamp_of(path))


def write_partition(partition: Partition, home: Path | None = None) -> None:
    """Write partition.json at `partition.path`, whole or not at all; an older file is replaced.

    Args:
        partition: the partition.
        home: folder in which the file will lie later, to which paths in the file are relative; None: the folder of
            `partition.path`.

    Raises:
        OSError: the file cannot be written.
    """
    record = {
        "source": relative(partition.source, home or partition.path.parent),
        "axes": [list(axis) for axis in partition.axes],
        "offset": list(partition.offset),
        "overlap": partition.overlap,
        "grid": list(partition.grid) if partition.grid else None,
        "patches": [{**vars(core), **_boxes_record(core)} for core in partition.cores],
        "test": sorted(partition.test),
        "contiguous": sorted(partition.contiguous),
        "train": sorted(partition.train),
    }
    write_json(partition.path, record)


@lru_cache(maxsize=8)
def _read(path: Path, stamp: Stamp) -> Partition:
    """Return the partition of a file with this stamp; cached, as every patch of a batch reads it."""
    try:
        found = TypeAdapter(Partition).validate_json(read_regular(path, MOST_JSON_BYTES))
    except OSError as error:
        raise SceneError(f"{path}: cannot be read ({error.strerror})", AGAIN) from error
    except ValidationError as error:
        raise SceneError(f"{path}: {first_mistake(error)}", AGAIN) from error
    found = replace(found, path=path, source=Path(os.path.normpath(path.parent / found.source)))
    if wrong := mistake_in(found):
        raise SceneError(f"{path}: {wrong}", AGAIN)
    return found


def patch_record(partition: Partition, name: str, photographs: set[str]) -> dict[str, Any]:
    """Return the record for a patch's patch.json: name, boxes, axes, offset and hold-out of the patch.

    So the patch's files change whenever one of these does.

    Args:
        partition: the partition.
        name: name of the patch, which must be in the partition.
        photographs: image names of the patch.
    """
    core = next(core for core in partition.cores if core.name == name)
    return {
        "format": 1,
        "name": name,
        **_boxes_record(core),
        "axes": [list(axis) for axis in partition.axes],
        "offset": list(partition.offset),
        "test": sorted(partition.test & photographs),
        "contiguous": sorted(partition.contiguous & photographs),
    }


def _boxes_record(core: Core) -> dict[str, Any]:
    boxes = {"core": core.core, "grown": core.grown, "bounds": core.bounds}
    return {key: {"lower": [*open_sides(box.lower)], "upper": [*open_sides(box.upper)]} for key, box in boxes.items()}


def relative(path: Path, base: Path) -> str:
    """Return a path relative to the folder `base`, or absolute if they have only the root in common.

    Links are not resolved.
    """
    path, base = absolute(path), absolute(base)
    common = Path(os.path.commonpath([path, base]))
    return os.path.relpath(path, base) if common != Path(common.anchor) else str(path)


def absolute(path: Path) -> Path:
    """Return a path as an absolute one, without `..`; links are not resolved."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of partition.json, for docs and editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **TypeAdapter(Partition).json_schema()}


def mistake_in(partition: Partition) -> str:
    """Return the first fault that makes a partition invalid, in words with its key; empty if the partition is valid.

    Checked are axes, boxes, names, and that no photograph is in `test` and `train`.
    """
    if wrong := not_a_frame(partition.axes):
        return f"axes: {wrong}"
    cores = partition.cores
    wrong = next(filter(None, map(_misfit, cores)), "") or mistake_in_cores([(one.name, one.core) for one in cores])
    if wrong:
        return f"patches: {wrong}"
    if both := sorted(partition.test & partition.train):
        return f"test: {both[0]}: stands under train, too; a photograph is held out in all patches or in none"
    return ""


def mistake_in_cores(cores: Sequence[tuple[str, Box]]) -> str:
    """Return why named cores do not divide up all space, in words: a name twice, an overlap or a gap.

    Empty if the cores are right.
    """
    names, boxes = [name for name, _ in cores], [box for _, box in cores]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        return f"{twice[0]}: two patches have this name"
    if pair := first_meeting(boxes):
        return f"the cores of {names[pair[0]]} and {names[pair[1]]} overlap: a place would belong to both"
    return "" if tile(boxes) else "the cores leave space between them: a place there would belong to no patch"


def not_a_frame(axes: Axes) -> str:
    """Return why three vectors are not unit vectors at right angles, in words; empty if they are."""
    rows = np.array(axes)
    is_frame = np.allclose(rows @ rows.T, np.eye(3), atol=1e-6)
    return "" if is_frame else f"{rows.tolist()}: should be three unit vectors at right angles"


def _misfit(core: Core) -> str:
    """Return how the boxes of a patch contradict each other; empty if they do not."""
    if not core.core.within(core.grown):
        return f"{core.name}: grown: {core.grown}: should hold the core, {core.core}"
    if not (core.bounds.is_finite() and core.bounds.within(core.core)):
        return f"{core.name}: bounds: {core.bounds}: should be a finite part of the core, {core.core}"
    return ""


def first_mistake(error: Any) -> str:
    """Return the first mistake of a pydantic.ValidationError as text: key, value, and what the value should be.

    The value is cut after 80 characters. A mistake without a key, as in broken JSON, is given alone.
    """
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    value = "" if first["type"] in ("missing", "json_invalid") else f"{str(first['input'])[:80]}: "
    return f"{key}: {value}{first['msg']}" if key else str(first["msg"])
