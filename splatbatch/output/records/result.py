"""result.json: the manifest of a splat, in the folder of its attempt and, for the accepted one, of its patch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from splatbatch.fields import mapping
from splatbatch.hashing import FileFact
from splatbatch.output.records.fingerprint import Fingerprint, files_to_record
from splatbatch.output.records.metrics import Metrics
from splatbatch.output.records.record import KeptRecord, TypedRecord, in_json, reads


@dataclass(frozen=True)
class SplatFacts(TypedRecord):
    """Hash, size in bytes, time in ns since 1970, and number of Gaussians, by which a splat file is recognised later.

    None, or "" for the hash: not recorded.
    """

    sha256: str = ""
    bytes: int | None = None
    mtime_ns: int | None = None
    num_gaussians: int | None = None

    @property
    def fact(self) -> FileFact:
        """Size, time and hash as a `FileFact`, for comparison with the file on disk.

        If none was recorded, the size is -1, the time 0, the hash "".
        """
        return FileFact(-1 if self.bytes is None else self.bytes, self.mtime_ns or 0, self.sha256)


@dataclass(frozen=True)
class UsedPhotographs(TypedRecord):
    """The photographs of a patch: those that its splat was trained on, and those held out."""

    trained: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()
    is_assumed: bool = False
    """Whether an external trainer was given all photographs, so that it is not known which it held out.

    `held_out` then follows the settings.
    """

    @classmethod
    def of(cls, names: Iterable[str], held_out: Collection[str], *, is_assumed: bool = False) -> UsedPhotographs:
        """Divide all photographs of a patch into those held out and those trained on; both are sorted.

        Args:
            names: names of all photographs.
            held_out: names of the held-out ones; names that are not among `names` are left out.
            is_assumed: see the field.
        """
        every = sorted(names)
        trained = tuple(name for name in every if name not in held_out)
        return cls(trained, tuple(name for name in every if name in held_out), is_assumed)


@dataclass(frozen=True)
class Result(KeptRecord):
    """The manifest of a splat that an attempt trained; keys of other versions are kept when it is written again."""

    patch: str = ""
    attempt: str = ""
    """Name of the attempt's folder, as attempt-01."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings in which the attempt differed from the YAML at that time, by full name; empty: none."""
    num_gaussians: int | None = None
    """Number of Gaussians of the splat; None: unknown."""
    step: int | None = None
    """Step of the training that the splat is from; None: unknown."""
    bytes: int | None = None
    """Size of the splat file in bytes; None: unknown."""
    seconds: float | None = None
    """Duration of the attempt in seconds; None: unknown."""
    splat: SplatFacts = SplatFacts()
    """Hash, size and time of the splat file; blank: not recorded."""
    warnings: tuple[str, ...] = ()
    version: str = ""
    """Version of splatbatch that wrote the manifest; empty: unknown."""
    host: str = ""
    """Name of the host that trained the splat; empty: unknown."""
    worker: str = ""
    """Name of the worker that trained the splat; empty: no worker had claimed the patch, or it is unknown."""
    accepted: int = 0
    """Number of the record (accepted/NUMBER.json) by which the splat was accepted; 0: it was not accepted."""
    is_ahead: bool = field(default=False, metadata=reads(lambda _: False))
    """Whether this was read from a record accepted/NUMBER.json that is newer than splat.ply and result.json."""

    def with_fields(self, **changed: Any) -> Result:
        """Return the manifest with some keys changed; nothing is written."""
        return Result.from_record({**self.written, **{key: in_json(value) for key, value in changed.items()}})

    @cached_property
    def metrics(self) -> Metrics:
        """Figures of the splat, as its training measured them; blank if none were."""
        return Metrics.from_record(self.written.get("metrics"))

    @cached_property
    def photographs(self) -> UsedPhotographs | None:
        """Photographs trained on and held out; None: not recorded, as by versions up to 0.2.0."""
        told = mapping(self.written.get("photographs"))
        return UsedPhotographs.from_record(told) if told else None

    @cached_property
    def trained_from(self) -> Fingerprint:
        """Settings and inputs that the splat was trained from; two splats are compared by these, see `retention`."""
        return Fingerprint.from_record(self.written)

    @cached_property
    def held_against(self) -> Fingerprint:
        """Settings and inputs with which those of now are compared to decide whether the splat is stale.

        These are the settings and inputs of its training (`trained_from`). If the splat was chosen later, by `accept`
        or over a new splat, these are the settings and inputs at the time of that choice.
        """
        chosen = mapping(self.written.get("pinned"))
        return Fingerprint.from_record({**self.written, **chosen}) if chosen else self.trained_from

    @property
    def sha256(self) -> str:
        """SHA-256 of the splat file; "" if the manifest has none."""
        return self.splat.sha256

    @property
    def number(self) -> int:
        """Number of the attempt; 0 if its name has none."""
        digits = self.attempt.rpartition("-")[2]
        return int(digits) if digits.isdecimal() else 0

    def with_files(self, files: dict[str, FileFact]) -> Result:
        """Return the manifest with these files in `held_against`; nothing is written.

        `upkeep` writes the manifest once it knows the files' contents.
        """
        facts = files_to_record(files)
        chosen = mapping(self.written.get("pinned"))
        return self.with_fields(pinned={**chosen, "files": facts}) if chosen else self.with_fields(files=facts)
