"""The plan of a reconstruction: its photographs and cameras, how they are paired, and the chunks of the work."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

from splatbatch.hashing import hash_of
from splatbatch.output.records.record import TypedRecord
from splatbatch.scene.photos.numbers import numbers_of

VERSION = 2
"""Raise it when a stage makes something else of the same photographs: all is then made anew."""
CHUNKS = 6
"""Of few photographs, or pairs: so that several workers share them. Of many a chunk is as large as below."""
PHOTOGRAPHS_PER_CHUNK = (8, 32)
PAIRS_PER_CHUNK = (96, 384)
"""Least and most: a process takes a second to begin, and is what a kill costs at most."""
NEIGHBOURS = 20
"""By GPS: with so many of the nearest a photograph is matched."""
WINDOW, ALIKE = 8, 12
"""Without GPS: with so many that follow it, and with so many that look alike."""
FEW = 40
"""So many photographs are matched each with each."""
MOST_TOLD = 8


@dataclass(frozen=True)
class Photograph(TypedRecord):
    """A photograph, by what its header says."""

    name: str = ""
    """Below the folder of photographs, with slashes."""
    camera: int = 0
    """Number of its camera, from 1."""
    sha256: str = ""
    """Of its content."""
    place: tuple[float, float, float] | None = None
    """Latitude, longitude in degrees (WGS 84), and altitude in metres above whatever its camera takes for zero."""


@dataclass(frozen=True)
class CameraGroup(TypedRecord):
    """Photographs of one device, lens, zoom and size share it."""

    model: str = "OPENCV"
    width: int = 0
    height: int = 0
    focal_px: float = 0.0
    is_known: bool = False
    """EXIF tells the focal length; else it is 1.2 times the longer side."""
    what: str = ""
    """As "Canon PowerShot SX260 HS, 4.5 mm"."""


@dataclass(frozen=True)
class ReconstructionOptions(TypedRecord):
    """What a user may ask for; it is part of the reconstruction's identity."""

    features: int = 4096
    """The most that are found in a photograph."""
    camera: str = "auto"
    """A camera model of COLMAP; auto: OPENCV, or OPENCV_FISHEYE where EXIF names such a lens."""
    rig: tuple[str, ...] = ()
    """Folders of a rig, the reference first: photographs of the same name were taken at once."""
    mapper: str = "auto"
    """incremental, global, or auto."""
    pairs: str = "auto"
    """gps, sequence, all, or auto."""
    seed: int = 0


@dataclass(frozen=True)
class ReconstructionPlan(TypedRecord):
    """All that a stage is told besides its own number; lies in the output folder under its key."""

    images: str = ""
    photographs: tuple[Photograph, ...] = ()
    cameras: tuple[CameraGroup, ...] = ()
    wanted: ReconstructionOptions = field(default_factory=ReconstructionOptions)
    pairing: str = ""
    why_pairing: str = ""
    mapper: str = ""
    why_mapper: str = ""
    notes: tuple[str, ...] = ()
    """What is odd about the photographs, in words."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Files that are no photographs that can be used, and why."""

    @cached_property
    def key(self) -> str:
        """Return a hash of what decides the result: the folder may be moved."""
        told = self.to_record()
        return hash_of([VERSION, [told[name] for name in ("photographs", "cameras", "wanted", "pairing", "mapper")]])

    @cached_property
    def numbers(self) -> list[str]:
        """Return the name of each photograph in databases and models of COLMAP, until the model is told."""
        return numbers_of(one.name for one in self.photographs)

    @property
    def num_pairs(self) -> int:
        """Return about how many pairs there are: neighbours are mostly each other's."""
        n = len(self.photographs)
        each = {"gps": NEIGHBOURS * 3 // 5, "sequence": WINDOW + ALIKE * 3 // 4}
        return min(n * (n - 1) // 2, n * each.get(self.pairing, n))

    @property
    def num_matchings(self) -> int:
        """Return into how many chunks the pairs are cut."""
        return _num_chunks(self.num_pairs, PAIRS_PER_CHUNK)

    def chunks(self) -> list[range]:
        """Return the photographs of each chunk whose features are found together, by their places in the plan."""
        n = len(self.photographs)
        number = _num_chunks(n, PHOTOGRAPHS_PER_CHUNK)
        return [range(n * one // number, n * (one + 1) // number) for one in range(number)]

    def in_words(self) -> list[str]:
        """Return what is to be done, line by line."""
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
        """Return the folder of the rig that a photograph lies in, and its name there; "" without a rig."""
        folder = next((one for one in self.wanted.rig if name.startswith(f"{one}/")), "")
        return folder, name[len(folder) + 1 :] if folder else name


@dataclass(frozen=True)
class Stage:
    """A task of the plan."""

    name: str
    what: str
    """features, pairs, matching, mapping or model."""
    number: int
    needs: tuple[str, ...]
    key: str
    """Of what it makes: of its own inputs, and of the keys of all stages that it needs."""


def stages(plan: ReconstructionPlan) -> tuple[Stage, ...]:
    """Return the stages of a plan, in an order in which they can be made."""
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
    """settings.json of a stage: what its process is told."""

    what: str = ""
    number: int = 0
    plan: str = ""
    """Where the plan lies."""
    products: str = ""
    """Where the folders of all stages lie."""
    threads: int = 1
    out: str = ""
    """The folder that the model is written to."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings changed by rungs: features, leave_out, relaxed."""
    inputs: str = ""
    """The key of what it makes."""
    expected: tuple[float, float] = (0.0, 0.0)
    """Seconds, and MiB of host memory."""


@dataclass(frozen=True)
class StageMetrics(TypedRecord):
    """metrics.json of a stage, kept beside its product: its figures."""

    inputs: str = ""
    parts: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file of the product."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_mib: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)


def product_of(products: Path, stage: str) -> Path:
    """Return the folder that a stage has made."""
    return products / stage / "product"


def record_of(products: Path, stage: str) -> Path:
    """Return what says what a stage has made, and from what."""
    return products / stage / "made.json"
