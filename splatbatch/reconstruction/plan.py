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
"""Version of the stages; raise it when a result changes for the same photographs: all stages are then made again."""
CHUNKS = 6
"""Number of chunks that photographs or pairs are divided into, each a task, so that several workers share them.

The limits PHOTOGRAPHS_PER_CHUNK and PAIRS_PER_CHUNK take precedence.
"""
PHOTOGRAPHS_PER_CHUNK = (8, 32)
"""Least and most photographs of a chunk; chunks of equal size may have fewer than the least.

A process takes a second to start, and a kill costs at most one chunk.
"""
PAIRS_PER_CHUNK = (96, 384)
"""Approximate least and most pairs of a chunk, since the number of pairs is estimated before they are chosen.

A process takes a second to start, and a kill costs at most one chunk.
"""
NEIGHBOURS = 20
"""Number of nearest photographs by GPS that a photograph is matched with."""
WINDOW, ALIKE = 8, 12
"""Number of later photographs in sequence, and of similar ones, that a photograph is matched with.

They apply to all photographs if pairs are chosen by sequence, and by GPS to those without a position.
"""
FEW = 40
"""Most photographs of which all pairs are matched, unless `--pairs` says otherwise."""
MOST_TOLD = 8
"""Most unusable files that the summary of a plan names."""


@dataclass(frozen=True)
class Photograph(TypedRecord):
    """A photograph of the plan, as its header describes it."""

    name: str = ""
    """Path of the photograph relative to the folder of photographs, with slashes."""
    camera: int = 0
    """Number of the photograph's camera: index in the plan's `cameras` + 1; 0: not assigned yet."""
    sha256: str = ""
    """SHA-256 of the file, in hexadecimal digits."""
    place: tuple[float, float, float] | None = None
    """GPS position: latitude and longitude in degrees (WGS 84), altitude in metres as EXIF has it.

    None if EXIF has no usable position, or the position is left out, as the plan's notes tell.
    """


@dataclass(frozen=True)
class CameraGroup(TypedRecord):
    """A camera of the model, shared by all photographs of one device, lens, focal length and size.

    In a rig, and where EXIF names no device, these photographs must also lie in one folder.
    """

    model: str = "OPENCV"
    """Name of COLMAP's camera model, as "OPENCV"."""
    width: int = 0
    height: int = 0
    focal_px: float = 0.0
    """Focal length in pixels from which the mapping starts."""
    is_known: bool = False
    """Whether EXIF gives a plausible focal length; otherwise `focal_px` is 1.2 times the longer side."""
    what: str = ""
    """Description for people, for example "Canon PowerShot SX260 HS, 4.5 mm, 4000x3000"."""


@dataclass(frozen=True)
class ReconstructionOptions(TypedRecord):
    """Options of `reconstruct` that change its result; the plan's key depends on them."""

    features: int = 4096
    """Most features to find in a photograph."""
    camera: str = "auto"
    """Name of COLMAP's camera model; "auto": OPENCV, or OPENCV_FISHEYE for a camera whose EXIF names a fisheye lens."""
    rig: tuple[str, ...] = ()
    """Folders of a rig's cameras, relative to the folder of photographs, the reference first; empty: no rig.

    Photographs with the same name in these folders were taken at the same time.
    """
    mapper: str = "auto"
    """Mapper of COLMAP: "incremental" or "global"; "auto": incremental."""
    pairs: str = "auto"
    """How pairs are chosen: "gps", "sequence" or "all"; "auto": by the number of photographs and GPS positions."""
    seed: int = 0


@dataclass(frozen=True)
class ReconstructionPlan(TypedRecord):
    """Plan of a reconstruction: everything that its stages work from; stored in the output folder under its key.

    `pairing` and `mapper` are chosen as `wanted` says; `why_pairing` and `why_mapper` are the reasons in words.
    """

    images: str = ""
    """Absolute path of the folder of photographs."""
    photographs: tuple[Photograph, ...] = ()
    cameras: tuple[CameraGroup, ...] = ()
    wanted: ReconstructionOptions = field(default_factory=ReconstructionOptions)
    pairing: str = ""
    why_pairing: str = ""
    mapper: str = ""
    why_mapper: str = ""
    notes: tuple[str, ...] = ()
    """Messages about anything unusual in the photographs; empty: nothing is."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Reason why a file cannot be used, with a remedy if one is known, by its name; empty: all can be used."""

    @cached_property
    def key(self) -> str:
        """Return a hash of everything that decides the result; the path of the folder is not part of it."""
        told = self.to_record()
        return hash_of([VERSION, [told[name] for name in ("photographs", "cameras", "wanted", "pairing", "mapper")]])

    @cached_property
    def numbers(self) -> list[str]:
        """Return the name of each photograph, as "0000012.jpg", in COLMAP's databases and models, in order.

        COLMAP misreads some characters of real names; the final model has the real names again.
        """
        return numbers_of(one.name for one in self.photographs)

    @property
    def num_pairs(self) -> int:
        """Return the estimated number of pairs to match; each pair counts once."""
        n = len(self.photographs)
        each = {"gps": NEIGHBOURS * 3 // 5, "sequence": WINDOW + ALIKE * 3 // 4}
        return min(n * (n - 1) // 2, n * each.get(self.pairing, n))

    @property
    def num_matchings(self) -> int:
        """Return the number of chunks that the pairs are divided into, at least 1; each is a task."""
        return _num_chunks(self.num_pairs, PAIRS_PER_CHUNK)

    def chunks(self) -> list[range]:
        """Return the chunks of photographs whose features are found by one process, as ranges of indices, in order."""
        n = len(self.photographs)
        number = _num_chunks(n, PHOTOGRAPHS_PER_CHUNK)
        return [range(n * one // number, n * (one + 1) // number) for one in range(number)]

    def in_words(self) -> list[str]:
        """Return the summary of the plan for people, as lines: numbers, camera if there is only one, notes, bad files.

        At most MOST_TOLD bad files are named.
        """
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
        """Return the rig's folder that a photograph lies in, and the photograph's path relative to that folder.

        Outside the rig's folders, or without a rig, the folder is "" and the path is `name`.

        Args:
            name: path of the photograph relative to the folder of photographs, with slashes.
        """
        folder = next((one for one in self.wanted.rig if name.startswith(f"{one}/")), "")
        return folder, name[len(folder) + 1 :] if folder else name


@dataclass(frozen=True)
class Stage:
    """One stage of a plan, or one chunk of a stage: a task with its own process and product."""

    name: str
    what: str
    """Kind of stage: "features", "pairs", "matching", "mapping" or "model"."""
    number: int
    """Index, from 0, of the chunk of photographs or pairs; 0 for a kind of stage that is not divided."""
    needs: tuple[str, ...]
    """Names of stages that must be made before this stage; empty: it reads only photographs.

    The stage reads their products, and may read those of stages that these need.
    """
    key: str
    """Hash of the stage's inputs and of the keys of earlier stages; a product with another key is stale."""


def stages(plan: ReconstructionPlan) -> tuple[Stage, ...]:
    """Return the stages of a plan, one for each chunk, each after the stages that it needs."""
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
    """Content of settings.json of a stage of a reconstruction: everything that its process needs to know."""

    what: str = ""
    """Kind of stage: "features", "pairs", "matching", "mapping" or "model"."""
    number: int = 0
    """Index, from 0, of the chunk of photographs or pairs; 0 for a kind of stage that is not divided."""
    plan: str = ""
    """Path of the JSON file that holds the ReconstructionPlan."""
    products: str = ""
    """Path of the folder that has a folder for each stage, with its attempts and its product."""
    threads: int = 1
    out: str = ""
    """Path of the folder that the stage "model" writes sparse/, images/ and reconstruction.json to."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings for this attempt: "features", the most features of a photograph, and what retries after failures set.

    "leave_out": 1 or more leaves out photographs that crashed the process. "relaxed": index of the weaker conditions
    for the initial pair. "threads": number of threads. An absent setting has its default.
    """
    inputs: str = ""
    """Key of the stage (`Stage.key`), which its metrics.json repeats."""
    expected: tuple[float, float] = (0.0, 0.0)
    """Estimated wall-clock time in seconds, and host memory in MiB; 0: unknown."""


@dataclass(frozen=True)
class StageMetrics(TypedRecord):
    """Content of metrics.json of a stage: what was made, from which inputs, with which time and memory."""

    inputs: str = ""
    """Key of the stage (`Stage.key`) when the product was made."""
    parts: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file of the product, by its path relative to the product's folder."""
    seconds: float = 0.0
    """Wall-clock time of the stage, in seconds."""
    cpu_s: float = 0.0
    """CPU time of the process, in seconds."""
    peak_mib: float = 0.0
    """Largest resident memory of the process, in MiB."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Figures that the function of the stage returned, as "photographs" or "pairs", which differ by kind of stage."""


def product_of(products: Path, stage: str) -> Path:
    """Return the path of the folder of a stage's product; it is absent until the stage is made.

    Args:
        products: folder that has a folder for each stage.
        stage: name of the stage, as "matching-2".
    """
    return products / stage / "product"


def record_of(products: Path, stage: str) -> Path:
    """Return the path of a stage's made.json, which holds the StageMetrics of its product.

    The file is absent until the stage is made.

    Args:
        products: folder that has a folder for each stage.
        stage: name of the stage, as "matching-2".
    """
    return products / stage / "made.json"
