"""merge.json: the record of a merged splat: its parts, its holes, and the Gaussians removed by cleaning."""

from __future__ import annotations

from dataclasses import dataclass, field

from splatbatch.files import FORMAT
from splatbatch.output.records.fingerprint import ORIGIN, FilePlace
from splatbatch.output.records.record import TypedRecord

VERSION = 1
"""Version of the way in which parts are joined; to be raised when the same parts would give another splat."""


@dataclass(frozen=True)
class MergedPart(TypedRecord):
    """One part of a merged splat: a patch, or the backdrop."""

    patch: str = ""
    attempt: str = ""
    sha256: str = ""
    """SHA-256 of the part's own splat; empty if an earlier version accepted it without recording one."""
    start: int = 0
    """Row of the part's first Gaussian in the merged splat, from 0."""
    num_gaussians: int = 0
    """Number of the part's Gaussians in the merged splat."""
    num_read: int = 0
    """Number of Gaussians in the part's own splat."""
    num_outside: int = 0
    """Number of Gaussians of the part's own splat that lie outside the part's core, and are left out."""
    removed: dict[str, int] = field(default_factory=dict)
    """Number of Gaussians of the part removed by cleaning, by name of the rule; empty: none."""
    warnings: tuple[str, ...] = ()
    """Warnings of the part's training; empty: none."""
    key: str = ""
    """Hash of all inputs that decide which Gaussians the part has in the merged splat; empty: an earlier version merged
    it."""
    rows_sha256: str = ""
    """SHA-256 of the part's rows in the merged splat; empty if an earlier version merged it."""


@dataclass(frozen=True)
class Hole(TypedRecord):
    """A patch that is missing in a merged scene: its core is empty there, or shows the backdrop only.

    `reason` says why the patch is missing.
    """

    patch: str = ""
    reason: str = ""
    lower: tuple[float | None, ...] = ()
    """Lower corner of the core, in the axes of the partition; None: unbounded on this axis, empty: it has no core."""
    upper: tuple[float | None, ...] = ()
    """Upper corner of the core, in the axes of the partition; None: unbounded on this axis, empty: it has no core."""


@dataclass(frozen=True)
class CleaningRecord(TypedRecord):
    """Rules of the cleaning of a merged splat, and how many Gaussians each removed."""

    rules: dict[str, str] = field(default_factory=dict)
    """Each rule in words, by its name."""
    removed: dict[str, int] = field(default_factory=dict)
    """Number of Gaussians removed from all parts, by name of the rule; empty: none."""


@dataclass(frozen=True)
class Merge(TypedRecord):
    """Content of merge.json: a merged splat, its parts, its holes and its cleaning."""

    format: int = FORMAT
    bytes: int | None = None
    """Size of the splat file in bytes; None: unknown."""
    mtime_ns: int | None = None
    """Modification time of the splat file in ns since 1970; None: unknown."""
    sha256: str = ""
    """SHA-256 of the splat file; empty if an earlier version merged it."""
    num_gaussians: int = 0
    sh_degree: int = 0
    offset: FilePlace = ORIGIN
    """Offset that was subtracted from the coordinates of the model: x, y, z in units of the model."""
    partition: str = ""
    """SHA-256 of partition.json, the file that says how the scene was cut."""
    key: str = ""
    """Hash of all inputs that decide the bytes of the splat; with the same key the splat is not merged again."""
    parts: tuple[MergedPart, ...] = ()
    """Parts in their order in the splat."""
    holes: tuple[Hole, ...] = ()
    cleaned: CleaningRecord | None = None
    """Cleaning of the splat; None: it was not cleaned."""
    warnings: tuple[str, ...] = ()
    """Warnings on the scene as a whole; empty: none."""
    held_out: tuple[str, ...] | None = None
    """Photographs that some part holds out and no part was trained on; None: unknown, as up to version 0.2.0."""
    version: str = ""
    """Version of splatbatch that merged the splat; empty: not recorded."""


@dataclass(frozen=True)
class MergeOutput(Merge):
    """Output of `merge --json`: path of the merged splat, number of parts written, and all fields of merge.json."""

    splat: str = ""
    parts_written: int = 0
