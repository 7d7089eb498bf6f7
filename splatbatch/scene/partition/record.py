"""partition.json: how a scene was cut; read without trust, written whole and the same byte for byte."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.config import NO_OFFSET, Offset
from splatbatch.errors import SceneError
from splatbatch.files import MOST_JSON_BYTES, read_regular, write_json
from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.partition.boxes import Box, open_sides, owners
from splatbatch.scene.partition.checks import box_of, first_mistake, mistake_in
from splatbatch.scene.partition.place import find_partition

AGAIN = "Cut the scene again, into another folder: splatbatch split."
Axes = tuple[Offset, Offset, Offset]


@dataclass(frozen=True)
class Core:
    """What a patch is responsible for, and what it was cut from."""

    name: str
    """Of the patch, and of its folder."""
    core: Box
    """The cores of a partition tile space; outer sides are infinite."""
    grown: Box
    """The core with the overlap around it; infinite sides stay so."""
    bounds: Box
    """Finite: the core as far as the scene reaches."""
    num_images: int = 0
    num_points: int = 0
    """Of the patch's model."""
    num_core_points: int = 0
    """Of the patch's model, inside the core."""
    cost: float = 0.0
    """Share of the scene's work."""
    cut_from: str = ""
    """SHA-256 of all that its files hold."""


@dataclass(frozen=True)
class Partition:
    """A scene cut into patches, and what is decided once for all of them: axes, offset, hold-out."""

    path: Path
    """Of partition.json."""
    source: Path
    """Folder of the COLMAP model that was cut."""
    axes: Axes
    """Unit vectors from the world's axes to the boxes'; the last is up."""
    offset: Offset
    """Frozen for the scene: what is taken off its coordinates before training."""
    test: frozenset[str]
    """Photographs held out everywhere, by image name."""
    contiguous: frozenset[str]
    """Photographs held out in one piece; empty if that was not asked for."""
    cores: tuple[Core, ...]
    overlap: float = 0.0
    train: frozenset[str] = frozenset()
    """Photographs known to be no test."""
    grid: tuple[int, int] | None = None
    """Rows, and patches in each, where that was asked for."""

    def core(self, name: str) -> Core | None:
        """Return the core of a patch; None if the partition does not know it."""
        return next((core for core in self.cores if core.name == name), None)

    def in_axes(self, places: Floats, offset: Offset = NO_OFFSET) -> Floats:
        """Return places [N, 3] of a frame with an offset in the axes of the boxes, float64.

        A place comes out the same to the last bit whatever others it is asked with: a matrix product does not promise
        that, and a Gaussian on a border would belong to two cores, or to none.
        """
        x, y, z = (np.asarray(places, dtype=np.float64) + np.array(offset)).T
        turned: Floats = np.stack([x * along[0] + y * along[1] + z * along[2] for along in self.axes], axis=1)
        return turned

    def owner(self, places: Floats) -> NDArray[np.intp]:
        """Return which of `cores` each place [N, 3], in the axes of the boxes, lies in; -1 for one that is not finite.

        Each is asked in float64, so that a place on a border belongs to one core for everybody who asks.
        """
        return owners([core.core for core in self.cores], np.asarray(places, dtype=np.float64))


def partition_of(patches: Path) -> Partition | None:
    """Return the partition that patches in a folder were cut by; None if there is none of ours.

    Raises:
        SceneError: it cannot be read, or is none.
    """
    path = find_partition(patches)
    return read_partition(path) if path else None


def read_partition(path: Path) -> Partition:
    """Return the partition in a file.

    Raises:
        SceneError: it cannot be read, or is none; the key and value are named.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise SceneError(f"{path}: cannot be read ({error.strerror})", AGAIN) from error
    return _read(path, status.st_mtime_ns, status.st_size)


def write_partition(partition: Partition, home: Path | None = None) -> None:
    """Write partition.json, whole or not at all.

    Args:
        partition: with the path to write.
        home: the folder it will lie in, if it is prepared elsewhere: its paths are relative to that.

    Raises:
        OSError: it cannot be written.
    """
    write_json(partition.path, _to_record(partition, home or partition.path.parent))


@lru_cache(maxsize=8)
def _read(path: Path, mtime_ns: int, size: int) -> Partition:
    """Return the partition that a file holds at this time: every patch of a batch asks."""
    from pydantic import ValidationError

    from splatbatch.scene.partition.form import PartitionForm

    try:
        form = PartitionForm.model_validate_json(read_regular(path, MOST_JSON_BYTES))
    except OSError as error:
        raise SceneError(f"{path}: cannot be read ({error.strerror})", AGAIN) from error
    except ValidationError as error:
        raise SceneError(f"{path}: {first_mistake(error)}", AGAIN) from error
    cores = tuple(
        Core(
            **{**dict(patch), "core": box_of(patch.core), "grown": box_of(patch.grown), "bounds": box_of(patch.bounds)}
        )
        for patch in form.patches
    )
    found = Partition(
        path=path,
        source=Path(os.path.normpath(path.parent / form.source)),
        axes=form.axes,
        offset=form.offset,
        test=frozenset(form.test),
        contiguous=frozenset(form.contiguous),
        cores=cores,
        overlap=form.overlap,
        train=frozenset(form.train),
        grid=form.grid,
    )
    if wrong := mistake_in(found):
        raise SceneError(f"{path}: {wrong}", AGAIN)
    return found


def _to_record(partition: Partition, home: Path) -> dict[str, Any]:
    from splatbatch.scene.partition.form import FORMAT

    return {
        "format": FORMAT,
        "source": relative(partition.source, home),
        "axes": [list(axis) for axis in partition.axes],
        "offset": list(partition.offset),
        "overlap": partition.overlap,
        "grid": list(partition.grid) if partition.grid else None,
        "patches": [_core_record(core) for core in partition.cores],
        "test": sorted(partition.test),
        "contiguous": sorted(partition.contiguous),
        "train": sorted(partition.train),
    }


def patch_record(partition: Partition, name: str, photographs: set[str]) -> dict[str, Any]:
    """Return what patch.json says: all of partition.json that matters to one patch, so that a change is seen there."""
    core = next(core for core in partition.cores if core.name == name)
    boxes = {"core": core.core, "grown": core.grown, "bounds": core.bounds}
    return {
        "format": 1,
        "name": name,
        **{key: _box_record(box) for key, box in boxes.items()},
        "axes": [list(axis) for axis in partition.axes],
        "offset": list(partition.offset),
        "test": sorted(partition.test & photographs),
        "contiguous": sorted(partition.contiguous & photographs),
    }


def _core_record(core: Core) -> dict[str, Any]:
    boxes = {"core": core.core, "grown": core.grown, "bounds": core.bounds}
    return {**vars(core), **{key: _box_record(box) for key, box in boxes.items()}}


def _box_record(box: Box) -> dict[str, Any]:
    return {"lower": [*open_sides(box.lower)], "upper": [*open_sides(box.upper)]}


def relative(path: Path, base: Path) -> str:
    """Return a path as a file in `base` names it: relative, unless they have nothing but the root in common."""
    path, base = absolute(path), absolute(base)
    common = Path(os.path.commonpath([path, base]))
    return os.path.relpath(path, base) if common != Path(common.anchor) else str(path)


def absolute(path: Path) -> Path:
    """Return a path from the root on, its links as they are."""
    return Path(os.path.abspath(path))  # noqa: PTH100
