"""The nouns of an import: photographs with lens and pose, points, and what was converted and what was not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from splatbatch.files import Record
from splatbatch.scene.colmap.types import Camera, Floats, Points2D
from splatbatch.scene.imports.pose import IDENTITY, Similarity


@dataclass(frozen=True, eq=False)
class Shot:
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
        translation: Floats = -self.rotation @ self.center
        return translation


@dataclass(frozen=True, eq=False)
class Cloud:
    """The points of a source, in its world."""

    xyz: Floats  # [P, 3]
    rgb: NDArray[np.uint8]  # [P, 3]
    origin: str
    """The file they are from."""
    ids: NDArray[np.uint64] | None = None
    """What the keypoints of the shots call them; None where no keypoint names a point."""


@dataclass(frozen=True)
class Notes:
    """What is told of an import."""

    converted: list[str] = field(default_factory=list)
    """What became something else, and what it became."""
    left_out: list[str] = field(default_factory=list)
    """What is not in the result."""

    def convert(self, what: str) -> None:
        """Note that something was converted."""
        if what not in self.converted:
            self.converted.append(what)

    def leave_out(self, what: str) -> None:
        """Note that something was left out."""
        if what not in self.left_out:
            self.left_out.append(what)


@dataclass(frozen=True, eq=False)
class Capture:
    """A source that was read: everything a model is made of."""

    kind: str
    """In words: "nerfstudio transforms.json"."""
    shots: tuple[Shot, ...]
    cloud: Cloud | None
    world: str
    """What its coordinates are, in words."""
    crs: str = ""
    """The coordinate reference system, as the source spells it (WKT, EPSG)."""
    reference: Record = field(default_factory=dict)
    """What ties the world to others: transforms that were undone or applied, georeference found beside."""
    of_points: Similarity = IDENTITY
    """Leads points that --points names to this world: from that of the source's file."""


@dataclass(frozen=True)
class Wish:
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


def split_names(shots: tuple[Shot, ...]) -> Mapping[str, list[str]]:
    """Return the names of the shots of each split that the source names."""
    found: dict[str, list[str]] = {}
    for shot in shots:
        if shot.split:
            found.setdefault(shot.split, []).append(shot.name)
    return found
