"""The records that are about a whole scene: of `import`, `split`, `merge`, `evaluate`, `plan-capture` and `publish`."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import TypedDict

from splatbatch.scene.audit.findings import Finding
from splatbatch.scene.audit.photographs import CameraRow
from splatbatch.scene.partition.split import State
from splatbatch.store.records.merge import Merge
from splatbatch.store.records.publication import Publication

Place = tuple[float, float, float]


class Audited(TypedDict):
    """What an audit of patches has found."""

    trainer: str
    patches: list[str]
    bad_patches: list[str]
    num_errors: int
    num_warnings: int
    cameras: list[CameraRow]
    findings: list[Finding]


class Import(TypedDict):
    """`import --json`; `crs`: the coordinate reference system, null where the source names none."""

    kind: str
    config: str
    num_points: int
    offset: Place
    crs: str | None
    converted: list[str]
    left_out: list[str]
    audit: Audited


class Bounds(TypedDict):
    """A core as far as the scene reaches, in the axes of partition.json."""

    lower: Place
    upper: Place


class Cut(TypedDict):
    """A patch that was cut; `cost`: its share of the scene's work."""

    name: str
    state: State
    num_images: int
    num_test: int
    num_points: int
    num_core_points: int
    cost: float
    bounds: Bounds


class Split(TypedDict):
    """`split --json`; `gone`: patches of an earlier split that are no more."""

    partition: str
    source: str
    num_photographs: int
    num_test: int
    num_contiguous: int
    offset: Place
    evenness: float
    patches: list[Cut]
    gone: list[str]
    notes: list[str]


@dataclass(frozen=True)
class Merged(Merge):
    """`merge --json`: where the merged splat lies, how many parts were written anew, and all of merge.json."""

    splat: str = ""
    parts_written: int = 0


@dataclass(frozen=True)
class Published(Publication):
    """`publish --json`: the folder, and what publish.json says of it."""

    folder: str = ""


class View(TypedDict):
    """A photograph to be taken, in the coordinates of the model; `covers`: weak cells that it helps."""

    name: str
    position: Place
    looks_at: Place
    direction: Place
    heading_deg: float
    pitch_deg: float
    above_target: float
    covers: list[str]


class Capture(TypedDict):
    """`plan-capture --json`; `left`: how many weak cells would still lack photographs."""

    views: list[View]
    weak_cells: int
    left: int
