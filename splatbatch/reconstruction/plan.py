"""The plan of a reconstruction: photographs, cameras, pairing, and the stages with the chunks of their work."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

from splatbatch.hashing import hash_of
from splatbatch.output.records.record import TypedRecord
from splatbatch.scene.photos.folders import numbers_of

VERSION = 2
"""Raise this when a stage's result changes for the same photographs: all stages are then made again."""
CHUNKS = 6
"""Number of chunks that photographs or pairs are divided into, so that several workers share them.

The limits of a chunk's size below take precedence.
"""
PHOTOGRAPHS_PER_CHUNK = (8, 32)
"""Least and most photographs of a chunk: a process takes a second to start, and a kill costs at most one chunk."""
PAIRS_PER_CHUNK = (96, 384)
"""Least and most pairs of a chunk, for the same reasons."""
NEIGHBOURS = 20
"""Nearest photographs by GPS that a photograph is matched with."""
WINDOW, ALIKE = 8, 12
"""Without GPS: number of neighbours in sequence and of similar photographs that a photograph is matched with."""
FEW = 40
"""Most photographs of which all pairs are matched."""
MOST_TOLD = 8
"""Most unusable files that the summary names."""


@dataclass(frozen=True)
class Photograph(TypedRecord):
    """A photograph of the plan, as its header describes it."""

    name: str = ""
    """Path below the folder of photographs, with slashes."""
    camera: int = 0
    """Number of its camera in the plan, starting at 1."""
    sha256: str = ""
    """SHA-256 of the file, in hexadecimal digits."""
    place: tuple[float, float, float] | None = None
    """GPS position: latitude and longitude in degrees (WGS 84), altitude in metres over the camera's own datum.

    None if EXIF has no usable position.
    """


@dataclass(frozen=True)
class CameraGroup(TypedRecord):
    """A camera of the model, shared by all photographs of one device, lens, focal length and size."""

    model: str = "OPENCV"
    """Camera model of COLMAP."""
    width: int = 0
    height: int = 0
    focal_px: float = 0.0
    """Initial focal length in pixels."""
    is_known: bool = False
    """Whether EXIF gives the focal length; otherwise it is 1.2 times the longer side."""
    what: str = ""
    """Description for people, for example "Canon PowerShot SX260 HS, 4.5 mm, 4000x3000"."""


@dataclass(frozen=True)
class ReconstructionOptions(TypedRecord):
    """Options of `reconstruct` that change its result; they are part of the plan's key."""

    features: int = 4096
    """Most features to find in a photograph."""
    camera: str = "auto"
    """Camera model of COLMAP; auto: OPENCV, or OPENCV_FISHEYE where EXIF names a fisheye lens."""
    rig: tuple[str, ...] = ()
    """Folders of a rig's cameras, the reference first; photographs with the same name were taken at the same time."""
    mapper: str = "auto"
    """Mapper of COLMAP: incremental, global, or auto."""
    pairs: str = "auto"
    """How pairs are chosen: gps, sequence, all, or auto."""
    seed: int = 0


@dataclass(frozen=True)
class ReconstructionPlan(TypedRecord):
    """Everything that the stages of a reconstruction work from; stored in the output folder under its key."""

    images: str = ""
    """Folder of the photographs."""
    photographs: tuple[Photograph, ...] = ()
    cameras: tuple[CameraGroup, ...] = ()
    wanted: ReconstructionOptions = field(default_factory=ReconstructionOptions)
    pairing: str = ""
    why_pairing: str = ""
    mapper: str = ""
    why_mapper: str = ""
    notes: tuple[str, ...] = ()
    """Messages about anything unusual in the photographs."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Files that cannot be used, and the reason for each."""

    @cached_property
    def key(self) -> str:
        """Return a hash of everything that decides the result, without the folder, so that it may be moved."""
        told = self.to_record()
        return hash_of([VERSION, [told[name] for name in ("photographs", "cameras", "wanted", "pairing", "mapper")]])

    @cached_property
    def numbers(self) -> list[str]:
        """Return the name of each photograph in COLMAP's databases and models, until the final model is written."""
        return numbers_of(one.name for one in self.photographs)

    @property
    def num_pairs(self) -> int:
        """Return the estimated number of pairs, which counts mutual neighbours once."""
        n = len(self.photographs)
        each = {"gps": NEIGHBOURS * 3 // 5, "sequence": WINDOW + ALIKE * 3 // 4}
        return min(n * (n - 1) // 2, n * each.get(self.pairing, n))

    @property
    def num_matchings(self) -> int:
        """Return the number of chunks that the pairs are divided into."""
        return _num_chunks(self.num_pairs, PAIRS_PER_CHUNK)

    def chunks(self) -> list[range]:
        """Return the chunks of the stage "features", each as a range of indices into `photographs`."""
        n = len(self.photographs)
        number = _num_chunks(n, PHOTOGRAPHS_PER_CHUNK)
        return [range(n * one // number, n * (one + 1) // number) for one in range(number)]

    def in_words(self) -> list[str]:
        """Return the summary of the plan for people, as lines."""
        n = len(self.photographs)
        rest = f", {len(self.left_out)} files that cannot be used" if self.left_out else ""
        cameras = [
            f"camera: {one.what}: {one.model}{'' if one.is_known else ', focal length unknown'}" for one in self.cameras
        ]
        left_out = [f"{name}: {why}" for name, why in [*self.left_out.items()][:MOST_TOLD]]
        return [
            f"{n} photographs{rest}; about {self.num_pairs:,} pairs, {self.why_pairing}; mapping {self.why_mapper}",
            *(cameras if len(cameras) == 1 else ()),
            *self.notes,
            *left_out,
        ]

    def frame_of(self, name: str) -> tuple[str, str]:
        """Return the rig's folder that a photograph lies in, and its path below that folder.

        Outside the rig's folders, or without a rig, the folder is "" and the path is `name`.
        """
        folder = next((one for one in self.wanted.rig if name.startswith(f"{one}/")), "")
        return folder, name[len(folder) + 1 :] if folder else name


@dataclass(frozen=True)
class Stage:
    """One stage of a plan, or one chunk of a stage: a task with its own process and product."""

    name: str
    what: str
    """Kind of stage: features, pairs, matching, mapping or model."""
    number: int
    """Index of the chunk; 0 for a stage that has only one."""
    needs: tuple[str, ...]
    """Names of the stages whose products it reads."""
    key: str
    """Hash of its inputs and of the keys of earlier stages; a product with another key is stale."""


def stages(plan: ReconstructionPlan) -> tuple[Stage, ...]:
    """Return the stages of a plan, each after the stages that it needs."""
    wanted, chunks = plan.wanted, plan.chunks()
    features = []
    for number, chunk in enumerate(chunks):
        told = [plan.photographs[place].to_record() for place in chunk]
        seen = [plan.cameras[camera - 1].to_record() for camera in sorted({one["camera"] for one in told})]
        key = hash_of(
            [VERSION, "features", wanted.features, chunk.start, [[one["name"], one["sha256"]] for one in told], seen]
        )
        features.append(Stage(_numbered("features", number, len(chunks)), "features", number, (), key))
    names = tuple(one.name for one in features)
    places = [one.place for one in plan.photographs] if plan.pairing == "gps" else []
    pairs = _after("pairs", 0, "pairs", features, names, plan.pairing, list(wanted.rig), places)
    number = plan.num_matchings
    matching = [
        _after(_numbered("matching", one, number), one, "matching", [pairs], ("pairs", *names), one, number)
        for one in range(number)
    ]
    needs = (*names, *(one.name for one in matching))
    mapping = _after("mapping", 0, "mapping", matching, needs, plan.mapper, wanted.seed, list(wanted.rig))
    every = [list(one.place or ()) for one in plan.photographs]
    return (*features, pairs, *matching, mapping, _after("model", 0, "model", [mapping], (*names, "mapping"), every))


def _after(name: str, number: int, what: str, inputs: list[Stage], needs: tuple[str, ...], *told: Any) -> Stage:
    return Stage(name, what, number, needs, hash_of([VERSION, what, [one.key for one in inputs], *told]))


def _num_chunks(number: int, limits: tuple[int, int]) -> int:
    return max(1, ceil(number / min(max(number / CHUNKS, limits[0]), limits[1])))


def _numbered(what: str, number: int, of: int) -> str:
    return f"{what}-{number + 1:0{len(str(of))}d}"


@dataclass(frozen=True)
class StageSettings(TypedRecord):
    """Content of settings.json of a stage: everything that its process works by."""

    what: str = ""
    """Kind of stage: features, pairs, matching, mapping or model."""
    number: int = 0
    """Index of the chunk."""
    plan: str = ""
    """Path of the plan."""
    products: str = ""
    """Folder that holds the folders of all stages."""
    threads: int = 1
    out: str = ""
    """Folder that the stage "model" writes sparse/ and images/ to."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings changed by a retry's rung: features, leave_out, relaxed."""
    inputs: str = ""
    """Key of the stage."""
    expected: tuple[float, float] = (0.0, 0.0)
    """Estimated seconds, and MiB of host memory."""


@dataclass(frozen=True)
class StageMetrics(TypedRecord):
    """Content of metrics.json of a stage: what was made, from which inputs, with which time and memory."""

    inputs: str = ""
    """Key of the stage."""
    parts: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file of the product, by its path below the product's folder."""
    seconds: float = 0.0
    """Wall-clock time."""
    cpu_s: float = 0.0
    """CPU time of the process."""
    peak_mib: float = 0.0
    """Largest resident memory of the process."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Figures that the stage itself returns."""


def product_of(products: Path, stage: str) -> Path:
    """Return the folder of a stage's product."""
    return products / stage / "product"


def record_of(products: Path, stage: str) -> Path:
    """Return the path of a stage's made.json, which holds the StageMetrics of its product."""
    return products / stage / "made.json"
