"""merge.json: what a merged splat was made of, part by part, where holes are, and what cleaning removed."""

from __future__ import annotations

from dataclasses import dataclass, field

from splatbatch.files import FORMAT
from splatbatch.output.records.fingerprint import ORIGIN, FilePlace
from splatbatch.output.records.record import TypedRecord

VERSION = 1
"""Of how parts are joined: another one makes another splat of them."""


@dataclass(frozen=True)
class MergedPart(TypedRecord):
    """A patch, or the scene behind, in the merged splat."""

    patch: str = ""
    attempt: str = ""
    sha256: str = ""
    """Of its splat; empty where an earlier version accepted it, which wrote none down."""
    start: int = 0
    """Its first Gaussian in the merged splat."""
    num_gaussians: int = 0
    """It has there."""
    num_read: int = 0
    """Of its splat."""
    num_outside: int = 0
    """Of them outside its core."""
    removed: dict[str, int] = field(default_factory=dict)
    """By cleaning, by rule."""
    warnings: tuple[str, ...] = ()
    """Of its training."""
    key: str = ""
    """Hash of all that decides which Gaussians it has here."""
    rows_sha256: str = ""
    """Of its rows as they lie in the merged splat; empty where an earlier version merged it."""


@dataclass(frozen=True)
class Hole(TypedRecord):
    """A patch that is missing, and the part of space that is empty for it, or shows what lies behind alone."""

    patch: str = ""
    reason: str = ""
    lower: tuple[float | None, ...] = ()
    """Of its core, in the axes of the partition; None: infinitely far."""
    upper: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class CleaningRecord(TypedRecord):
    """What cleaning has removed, and by which rules."""

    rules: dict[str, str] = field(default_factory=dict)
    """In words, by name."""
    removed: dict[str, int] = field(default_factory=dict)
    """Gaussians of all parts, by rule."""


@dataclass(frozen=True)
class Merge(TypedRecord):
    """What a merged splat was made of."""

    format: int = FORMAT
    bytes: int | None = None
    """Of the splat."""
    mtime_ns: int | None = None
    sha256: str = ""
    """Of the splat; empty where an earlier version merged it."""
    num_gaussians: int = 0
    sh_degree: int = 0
    offset: FilePlace = ORIGIN
    """What was taken off the coordinates of the model."""
    partition: str = ""
    """SHA-256 of partition.json."""
    key: str = ""
    """Hash of all that decides which bytes the splat has."""
    parts: tuple[MergedPart, ...] = ()
    """In their order in the splat."""
    holes: tuple[Hole, ...] = ()
    cleaned: CleaningRecord | None = None
    """None: nothing was cleaned."""
    warnings: tuple[str, ...] = ()
    """Of the scene as a whole."""
    held_out: tuple[str, ...] | None = None
    """Photographs that some part holds out and none was trained on; None: versions up to 0.2.0 did not say."""
    version: str = ""
    """Of the splatbatch that wrote it."""


@dataclass(frozen=True)
class MergeOutput(Merge):
    """`merge --json`: where the merged splat lies, how many parts were written, and all of merge.json."""

    splat: str = ""
    parts_written: int = 0
