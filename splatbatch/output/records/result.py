"""result.json: the manifest of a splat."""

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
    """What tells a splat file from any other."""

    sha256: str = ""
    bytes: int | None = None
    mtime_ns: int | None = None
    num_gaussians: int | None = None

    @property
    def fact(self) -> FileFact:
        """Return it as identity compares files."""
        return FileFact(-1 if self.bytes is None else self.bytes, self.mtime_ns or 0, self.sha256)


@dataclass(frozen=True)
class UsedPhotographs(TypedRecord):
    """The photographs of a patch, by what the training of its splat did with them."""

    trained: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()
    is_assumed: bool = False
    """An external program was given all of them: `held_out` are those that the settings hold out, and whether the
    program does is not known."""

    @classmethod
    def of(cls, names: Iterable[str], held_out: Collection[str], *, is_assumed: bool = False) -> UsedPhotographs:
        """Return all photographs of a patch as those that were held out, and the others."""
        every = sorted(names)
        trained = tuple(name for name in every if name not in held_out)
        return cls(trained, tuple(name for name in every if name in held_out), is_assumed)


@dataclass(frozen=True)
class Result(KeptRecord):
    """The manifest of a splat that an attempt left; what others versions know of it is kept when it is written anew."""

    patch: str = ""
    attempt: str = ""
    """The name of its folder."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings in which it differs from the YAML of then."""
    num_gaussians: int | None = None
    step: int | None = None
    bytes: int | None = None
    """Of the file."""
    seconds: float | None = None
    splat: SplatFacts = SplatFacts()
    """What tells its file from any other."""
    warnings: tuple[str, ...] = ()
    version: str = ""
    """Of the splatbatch that wrote it."""
    host: str = ""
    """Where it was trained."""
    worker: str = ""
    """Which trained it."""
    accepted: int = 0
    """Which accepted record made it the product; 0: none has."""
    is_ahead: bool = field(default=False, metadata=reads(lambda _: False))
    """It is the accepted record itself: splat.ply and result.json are behind it."""

    def with_fields(self, **changed: Any) -> Result:
        """Return it with some keys changed."""
        known = {key: in_json(value) for key, value in changed.items()}
        return Result.from_record({**self.written, **known})

    @cached_property
    def metrics(self) -> Metrics:
        """How good it is."""
        return Metrics.from_record(self.written.get("metrics"))

    @cached_property
    def photographs(self) -> UsedPhotographs | None:
        """What it was trained on and what was held out; None: versions up to 0.2.0 did not write it down."""
        told = mapping(self.written.get("photographs"))
        return UsedPhotographs.from_record(told) if told else None

    @cached_property
    def trained_from(self) -> Fingerprint:
        """What it was trained from."""
        return Fingerprint.from_record(self.written)

    @cached_property
    def held_against(self) -> Fingerprint:
        """The inputs when it was trained or, if it was chosen by hand, when it was chosen."""
        chosen = mapping(self.written.get("pinned"))
        return Fingerprint.from_record({**self.written, **chosen}) if chosen else self.trained_from

    @property
    def sha256(self) -> str:
        """Of the splat; empty where the record does not say."""
        return self.splat.sha256

    @property
    def number(self) -> int:
        """Return the number of its attempt; 0 if that is none."""
        digits = self.attempt.rpartition("-")[2]
        return int(digits) if digits.isdecimal() else 0

    def with_files(self, files: dict[str, FileFact]) -> Result:
        """Return it with more, or newer, facts of the files that it is held against."""
        facts = files_to_record(files)
        chosen = mapping(self.written.get("pinned"))
        return self.with_fields(pinned={**chosen, "files": facts}) if chosen else self.with_fields(files=facts)
