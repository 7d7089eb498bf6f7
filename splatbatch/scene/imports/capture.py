"""Types of an import: photographs with lens and pose, points, options, and the record of changes and mistakes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
"""Matrix [3, 3] from camera axes of OpenGL and Blender (y up, looking along -z) to COLMAP's (y down, along z)."""
_SHEAR = 1e-3
"""Largest deviation from a rotation, after a common scale is removed, that counts as rounding."""
_LAST_ROW = 1e-6
MOST_OF_A_KIND = 8
"""Most lines that an error lists for mistakes with the same remedy; the others are counted ("and 37 more")."""
_LONGEST_VALUE = 60


class NoPhotograph(SceneError):
    """Error: there is no photograph for a pose; `name` is the photograph as the source writes it.

    With `ImportOptions.skips_missing` such poses are left out instead.

    Args:
        name: the photograph as the source writes it.
        below: folder in which it was looked for, for the message; None: the message names none.
        similar: name of a file that may be meant; empty: there is none.
    """

    def __init__(self, name: str, below: Path | None = None, similar: str = "") -> None:
        where, there = f" below {below}" if below else "", f"; there is {similar}" if similar else ""
        super().__init__(
            f"no photograph of this name{where}{there}",
            "Put the photographs where the source says, name their folder with --images DIR, or leave out poses "
            "without a photograph with --skip-missing.",
        )
        self.name = name


def similarity_of(value: Any) -> Similarity:
    """Return a matrix from JSON or XML as a similarity: rotation, scale and translation.

    Args:
        value: a 4x4 matrix, its 16 numbers row by row, or its first three rows.

    Raises:
        SceneError: the matrix has another shape or last row, holds values that are no finite numbers, is singular, or
            mirrors, shears, or stretches unevenly.
    """
    try:
        matrix = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SceneError("the matrix holds values that are not numbers") from error
    matrix = matrix.reshape(4, 4) if matrix.shape == (16,) else matrix
    if matrix.shape not in ((4, 4), (3, 4)):
        raise SceneError(f"the matrix has the shape {'x'.join(map(str, matrix.shape))}, not 4x4")
    if not np.isfinite(matrix).all():
        raise SceneError("the matrix holds NaN or infinity")
    if len(matrix) == 4 and np.abs(matrix[3] - (0, 0, 0, 1)).max() > _LAST_ROW:
        raise SceneError(
            f"the last row of the matrix is {', '.join(f'{value:g}' for value in matrix[3])}, not 0, 0, 0, 1"
        )
    linear = matrix[:3, :3]
    size = np.abs(np.linalg.det(linear)) ** (1 / 3)
    if not size > 1e-12:
        raise SceneError("the matrix has no rotation: its determinant is 0")
    if np.linalg.det(linear) < 0:
        raise SceneError("the matrix mirrors (its determinant is negative): one axis is reversed")
    left, stretch, right = np.linalg.svd(linear / size)
    if np.abs(stretch - 1).max() > _SHEAR:
        raise SceneError(f"the matrix is no rotation: it stretches by {stretch.max():.4g} and {stretch.min():.4g}")
    scale = 1.0 if abs(size - 1) < _LAST_ROW else float(size)
    return Similarity(left @ right, matrix[:3, 3].copy(), scale)


@dataclass(frozen=True, eq=False)
class PosedPhoto:
    """A photograph with its camera and pose, as read from a source.

    x_camera = rotation @ (x_world - center); in the camera x is right, y down, z forward. `photo`, `mask` and `depth`
    are the files; None: there is no mask, or no depth image. `keypoints` is None if the source has none.
    """

    name: str
    """Image name in the model: a path below the photograph folder, with "/" between its parts."""
    photo: Path
    camera: Camera
    """Camera of the photograph; its id is ignored, and equal cameras become one in the model."""
    rotation: Floats  # [3, 3]
    center: Floats  # [3]
    where: str
    """Place of the pose in the source, for messages: 'frames[3]', 'camera 7 "DJI_0042"'."""
    mask: Path | None = None
    depth: Path | None = None
    keypoints: Points2D | None = None
    split: str = ""
    """Split of the photograph in the source: train, val or test; empty if the source names none."""


@dataclass(frozen=True, eq=False)
class PointCloud:
    """Points with their colours (0 to 255), in the world of the source's poses."""

    xyz: Floats  # [P, 3]
    rgb: NDArray[np.uint8]  # [P, 3]
    origin: str
    """File or folder that the points were read from, for messages."""
    ids: NDArray[np.uint64] | None = None
    """Ids of the points, [P], to which the keypoints of photographs refer; None: no keypoint refers to a point."""


@dataclass(frozen=True, eq=False)
class SourceCapture:
    """Content of a source (files of another program) that was read, from which a COLMAP model is made."""

    kind: str
    """Kind of source, in words: "COLMAP export"."""
    shots: tuple[PosedPhoto, ...]
    """Photographs with their poses."""
    cloud: PointCloud | None
    """Points of the source, or of --points instead; None: there are none."""
    world: str
    """Description of the coordinates of poses and points, in words."""
    crs: str = ""
    """Coordinate reference system, as the source writes it (WKT, EPSG); empty if unknown."""
    reference: Record = field(default_factory=dict)
    """Relations of these coordinates to others, for import.json; empty if none is known.

    As transforms that were undone or applied, and a georeference that was found beside the source.
    """
    of_points: Similarity = IDENTITY
    """Similarity that brings the points of --points to the coordinates here.

    They are given in the coordinates of a transforms.json; for the other kinds of source in those here, unchanged.
    """


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import on the command line, apart from its source."""

    images: Path | None = None
    """Folder of the photographs (--images); None: the folder that the source names, or one near it."""
    points: Path | None = None
    """PLY file with points in the coordinates of the source (--points); None: the points of the source, if any.

    For Metashape these are the coordinates after the chunk's transform.
    """
    chunk: str = ""
    """Label of the Metashape chunk (--chunk); empty: the only enabled chunk with poses, or the only chunk at all."""
    skips_missing: bool = False
    """Whether poses without a photograph are left out (--skip-missing); else they are mistakes."""
    triangulates: bool = True
    """Whether points are triangulated from the photographs if neither the source nor --points has any."""
    within_s: float = 1800.0
    """Longest time to match and triangulate then, in seconds; after that the import goes on without points."""


class ImportLog:
    """Record of an import: conversions, omissions, and mistakes.

    Mistakes are collected, so that all are listed at once; `stop` raises them.

    Args:
        source: path of the source, named in the error.
        skips_missing: whether poses without a photograph are omissions; else they are mistakes.
    """

    def __init__(self, source: Path, *, skips_missing: bool = False) -> None:
        self.source, self._skips_missing = source, skips_missing
        self.converted: list[str] = []
        """Conversions in words, in their order, each once: what was changed and to what."""
        self.left_out: list[str] = []
        """Parts of the source that are not in the result, in words, in their order, each once."""
        self._by_remedy: dict[str, dict[str, None]] = {}
        self._missing: list[str] = []

    def convert(self, what: str) -> None:
        """Record a conversion, described in words; a text that is recorded already is not repeated."""
        if what not in self.converted:
            self.converted.append(what)

    def leave_out(self, what: str) -> None:
        """Record an omission, described in words; a text that is recorded already is not repeated."""
        if what not in self.left_out:
            self.left_out.append(what)

    def leave_out_unused(self, photographs: Sequence[str]) -> None:
        """Record as omissions the poses whose photograph is missing, and photographs without a pose.

        Args:
            photographs: names of the photographs without a pose; may be empty.
        """
        for names, noun, lacking in ((self._missing, "pose", "photograph"), (photographs, "photograph", "pose")):
            if names:
                self.leave_out(f"{plural(len(names), noun)} without a {lacking}: {some(names)}")

    @contextmanager
    def noting(self, where: str, remedy: str = "") -> Iterator[None]:
        """Record a SceneError that the block raises as a mistake, and go on after the block.

        With `skips_missing` a missing photograph is kept for `leave_out_unused` instead. Other errors pass.

        Args:
            where: place in the source, for messages.
            remedy: what to do about errors without a hint.
        """
        try:
            yield
        except SceneError as error:
            if isinstance(error, NoPhotograph) and self._skips_missing:
                self._missing.append(error.name)
            else:
                self.mistake(where, error.message, error.hint or remedy)

    @property
    def num_mistakes(self) -> int:
        """Number of different mistakes that are recorded."""
        return sum(map(len, self._by_remedy.values()))

    def mistake(self, where: str, what: str, remedy: str) -> None:
        """Record a mistake in the source, for `stop` to raise; equal mistakes count once.

        Args:
            where: place in the source, such as "frames[3]".
            what: the mistake, in words.
            remedy: what to do, as a sentence.
        """
        line = f"{shown(where)}: {' '.join(shown(what).split())}"
        self._by_remedy.setdefault(remedy, {})[line] = None  # what all frames share is told once

    def stop(self) -> None:
        """Raise all recorded mistakes as one error, grouped by remedy; do nothing if there are none.

        Raises:
            SceneError: there are mistakes; at most `MOST_OF_A_KIND` lines per remedy are listed.
        """
        if not self._by_remedy:
            return
        lines = [f"{self.source}: {plural(self.num_mistakes, 'mistake')}, nothing was written"]
        for remedy, found in self._by_remedy.items():
            lines += list(found)[:MOST_OF_A_KIND]
            if len(found) > MOST_OF_A_KIND:
                lines.append(f"… and {len(found) - MOST_OF_A_KIND:,} more mistakes like these")
            lines.append(f"→ {remedy}")
        raise SceneError("\n  ".join(lines))


def spelt(value: Any) -> str:
    """Return a value from JSON as errors quote it: on one line, cut with "…" after 60 characters.

    null, true and false are spelt as in JSON, texts are in quotes.
    """
    words = json.dumps(value) if value is None or isinstance(value, bool) else " ".join(str(value).split())
    text = repr(value) if isinstance(value, str) else words
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def why_no_number(value: Any) -> str:
    """Return why a value, known to be unusable as a number of a lens, is so: not a finite number, or too large.

    A clause for messages, as "the value is not a finite number"; never empty.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return "the value is larger than any lens has" if is_number else "the value is not a finite number"


def some(names: Sequence[str], most: int = 3) -> str:
    """Return names as one text, at most `most` of them: "a, b, c and 12 more"."""
    return list_some(map(shown, names), most)
