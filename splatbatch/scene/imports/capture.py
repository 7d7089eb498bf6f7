"""The nouns of an import: photographs with lens and pose, worlds, points, what was converted and what was not."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.errors import SceneError
from splatbatch.files import Record
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.colmap.types import Camera, Floats, Points2D
from splatbatch.scene.similarity import IDENTITY, Similarity
from splatbatch.text import list_some, plural

OPENGL = np.diag([1.0, -1.0, -1.0])
"""Camera axes of OpenGL and Blender (y up, looking along -z) to those of COLMAP (y down, looking along z)."""
_SHEAR = 1e-3
"""Largest deviation from a rotation, after a common scale is taken out, that passes for rounding."""
_LAST_ROW = 1e-6
MOST_OF_A_KIND = 8
"""Places named of one kind of mistake before "and 37 more"."""
_LONGEST_VALUE = 60


class NoPose(ValueError):
    """A matrix is no pose; the message says why."""


def as_matrix(value: Any) -> Floats:
    """Return a 4x4 matrix (or its first three rows) that JSON or XML gave, as [3, 4].

    Raises:
        NoPose: it has another shape, or holds what is no finite number.
    """
    try:
        matrix = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise NoPose("is no matrix of numbers") from error
    if matrix.shape == (16,):
        matrix = matrix.reshape(4, 4)
    if matrix.shape not in ((4, 4), (3, 4)):
        raise NoPose(f"has the shape {'x'.join(map(str, matrix.shape))}, not 4x4")
    if not np.isfinite(matrix).all():
        raise NoPose("holds what is no finite number")
    if len(matrix) == 4 and np.abs(matrix[3] - (0, 0, 0, 1)).max() > _LAST_ROW:
        raise NoPose(f"has the last row {', '.join(f'{value:g}' for value in matrix[3])}, not 0, 0, 0, 1")
    return matrix[:3]


def similarity_of(matrix: Floats) -> Similarity:
    """Return a matrix [3, 4] as a similarity.

    Raises:
        NoPose: it mirrors, shears, or has no volume.
    """
    linear = matrix[:, :3]
    size = np.abs(np.linalg.det(linear)) ** (1 / 3)
    if not size > 1e-12:
        raise NoPose("has no rotation: its determinant is 0")
    if np.linalg.det(linear) < 0:
        raise NoPose("mirrors (its determinant is negative): one axis is turned round")
    left, stretch, right = np.linalg.svd(linear / size)
    if np.abs(stretch - 1).max() > _SHEAR:
        raise NoPose(f"is no rotation: it stretches by {stretch.max():.4g} and {stretch.min():.4g}")
    scale = 1.0 if abs(size - 1) < _LAST_ROW else float(size)
    return Similarity(left @ right, matrix[:, 3].copy(), scale)


@dataclass(frozen=True, eq=False)
class PosedPhoto:
    """A photograph with its camera and pose: x_camera = rotation @ (x_world - center), x right, y down, z forward."""

    name: str
    """What the model calls it: a path below the folder of photographs, "/" between its parts."""
    photo: Path
    camera: Camera
    """Its id counts for nothing: cameras that are alike become one."""
    rotation: Floats  # [3, 3]
    center: Floats  # [3]
    where: str
    """Its place in the source: 'frames[3]', 'camera 7 "DJI_0042"'."""
    mask: Path | None = None
    depth: Path | None = None
    keypoints: Points2D | None = None
    split: str = ""
    """train, val or test, if the source says so."""

    @property
    def translation(self) -> Floats:
        """Return the translation of COLMAP: x_camera = rotation @ x_world + translation."""
        return -self.rotation @ self.center


@dataclass(frozen=True, eq=False)
class PointCloud:
    """The points of a source, in its world."""

    xyz: Floats  # [P, 3]
    rgb: NDArray[np.uint8]  # [P, 3]
    origin: str
    """The file they are from."""
    ids: NDArray[np.uint64] | None = None
    """What the keypoints of the shots call them; None where no keypoint names a point."""


@dataclass(frozen=True, eq=False)
class SourceCapture:
    """A source that was read: everything a model is made of."""

    kind: str
    """In words: "nerfstudio transforms.json"."""
    shots: tuple[PosedPhoto, ...]
    cloud: PointCloud | None
    world: str
    """What its coordinates are, in words."""
    crs: str = ""
    """The coordinate reference system, as the source spells it (WKT, EPSG)."""
    reference: Record = field(default_factory=dict)
    """What ties the world to others: transforms that were undone or applied, georeference found beside."""
    of_points: Similarity = IDENTITY
    """Leads points that --points names to this world: from that of the source's file."""


@dataclass(frozen=True)
class ImportOptions:
    """What an import was asked, beside its source."""

    images: Path | None = None
    """Folder of the photographs, where the source does not say or says wrongly."""
    points: Path | None = None
    """PLY file with points, in the coordinates of the source."""
    chunk: str = ""
    """Label of the Metashape chunk."""
    skips_missing: bool = False
    """Leave out poses whose photograph is missing."""
    triangulates: bool = True
    """Find points in the photographs where the source has none."""
    within_s: float = 1800.0
    """Longest time for that."""


class ImportLog:
    """What is told of an import: what was converted, what was left out, and its mistakes, which are raised together."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.converted: list[str] = []
        """What became something else, and what it became."""
        self.left_out: list[str] = []
        """What is not in the result."""
        self._by_remedy: dict[str, dict[str, None]] = {}

    def convert(self, what: str) -> None:
        """Note that something was converted."""
        if what not in self.converted:
            self.converted.append(what)

    def leave_out(self, what: str) -> None:
        """Note that something was left out."""
        if what not in self.left_out:
            self.left_out.append(what)

    def leave_out_unused(self, poses: Sequence[str], photographs: Sequence[str]) -> None:
        """Note poses without a photograph, and photographs without a pose, if there are any."""
        for names, noun, lacking in ((poses, "pose", "photograph"), (photographs, "photograph", "a pose")):
            if names:
                self.leave_out(f"{plural(len(names), noun)} without {lacking}: {some(names)}")

    @property
    def num_mistakes(self) -> int:
        """Return how many mistakes there are."""
        return sum(map(len, self._by_remedy.values()))

    def mistake(self, where: str, what: str, remedy: str) -> None:
        """Note a mistake: its place in the source, what is wrong there, and what to do."""
        line = f"{shown(where)}: {' '.join(shown(what).split())}"
        self._by_remedy.setdefault(remedy, {})[line] = None  # what all frames share is told once

    def stop(self) -> None:
        """Raise all mistakes, if there are any.

        Raises:
            SceneError: there are.
        """
        if not self._by_remedy:
            return
        lines = [f"{self.source}: {plural(self.num_mistakes, 'mistake')}, nothing was written"]
        for remedy, found in self._by_remedy.items():
            lines += list(found)[:MOST_OF_A_KIND]
            if len(found) > MOST_OF_A_KIND:
                lines.append(f"… and {len(found) - MOST_OF_A_KIND:,} more of this kind")
            lines.append(f"→ {remedy}")
        raise SceneError("\n  ".join(lines))


def spelt(value: Any) -> str:
    """Return a value as an error quotes it: short, on one line; null, true and false as in JSON."""
    words = json.dumps(value) if value is None or isinstance(value, bool) else " ".join(str(value).split())
    text = repr(value) if isinstance(value, str) else words
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def why_no_number(value: Any) -> str:
    """Return what is wrong with what should be a number of a lens."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return "is beyond what any lens has" if is_number else "is no finite number"


def some(names: Sequence[str], most: int = 3) -> str:
    """Return some names in words: "a, b, c and 12 more"."""
    return list_some(map(shown, names), most)
