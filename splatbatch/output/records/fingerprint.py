"""The fingerprint of a result: hashes of its settings and inputs, and what they were made from, to name a change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from splatbatch.fields import mapping, number, text
from splatbatch.hashing import FileFact, Files
from splatbatch.output.records.record import TypedRecord, as_object, reads

MODEL = "sparse/"
"""Begin of the keys of a model's files."""
IMAGES = "images/"
"""Begin of the keys of photographs."""
KINDS = [int, int, str]
"""Types of size, time and hash in the JSON form of a file."""


def is_content(key: str) -> bool:
    """Return whether a file is compared by its content: model, photographs and masks; not folders, lists, sources."""
    kind = key.partition("/")[0]
    return (kind in ("sparse", "images", "masks") or kind.startswith("images_")) and not key.endswith("/")


def files_to_record(files: Mapping[str, FileFact]) -> dict[str, Any]:
    """Return the JSON form of some files."""
    return {key: list(fact) for key, fact in files.items()}


def photographs_of(files: Iterable[str]) -> Iterator[str]:
    """Yield the names of the photographs among the keys of files."""
    return (key.removeprefix(IMAGES) for key in files if key.startswith(IMAGES))


def files_from_record(record: object) -> Files:
    """Return the files that `files_to_record` wrote; an invalid entry is left out."""
    entries = as_object(record).items()
    return {str(key): FileFact(*one) for key, one in entries if isinstance(one, list) and [*map(type, one)] == KINDS}


FilePlace = tuple[float, float, float]
ORIGIN: FilePlace = (0.0, 0.0, 0.0)


MOST_GAIN = 100.0
"""Largest gain of a photograph that is believed, and the inverse of the smallest."""
MOST_COEFFICIENT = 10.0
"""Largest coefficient of vignetting, tilt and field that is believed."""


def tones_in(value: object) -> dict[str, list[float]]:
    """Return the tones that `tones_to_record` wrote, by image name: three gains, then coefficients.

    Tones beyond `MOST_GAIN` or `MOST_COEFFICIENT`, and entries that are no tones, are left out.
    """
    found = {name: [number(part) for part in one] for name, one in mapping(value).items() if isinstance(one, list)}
    known = {name: [float(part) for part in one if part is not None] for name, one in found.items() if None not in one}
    return {
        name: one
        for name, one in known.items()
        if len(one) >= 3
        and all(1 / MOST_GAIN <= gain <= MOST_GAIN for gain in one[:3])
        and all(abs(part) <= MOST_COEFFICIENT for part in one[3:])
    }


@dataclass(frozen=True)
class Fingerprint(TypedRecord):
    """Everything that a splat depends on; recorded with it, and compared later to decide whether it is stale."""

    recipe: str = ""
    """Hash of all settings that decide what is computed, before changes by --set or by a rung."""
    inputs: str = ""
    """Hash of the model, the choice of hold-out, and of names and sizes of its photographs and masks."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings whose hash is `recipe`, without the values of environment variables, which are secrets."""
    files: Files = field(default_factory=dict, metadata=reads(files_from_record))
    """The files behind `inputs`: each with its size, time and, if known, hash of its content."""
    effective: str = ""
    """Hash like `recipe`, of the settings really in force; empty if none was changed."""
    offset: FilePlace = ORIGIN
    """Offset that was subtracted from the coordinates of the model; add it to those of the splat."""

    tones: dict[str, list[float]] = field(default_factory=dict, metadata=reads(tones_in))
    """Tones of the photographs: gain R, G, B, then vignetting, tilt and field; empty: no correction."""
    border: str = ""
    """Hash of the boxes of a patch with a core; empty: the patch had no core."""
    backdrop: str = ""
    """SHA-256 of the backdrop drawn behind the patch; empty: none was drawn."""
    holdout: str = ""
    """Unit of the hold-out: "frames"; empty: single photographs by their names, as up to version 0.2.0."""

    @property
    def surroundings(self) -> tuple[str, str]:
        """Return the hashes of the surroundings of the patch: of its boxes, and of the backdrop."""
        return self.border, self.backdrop

    def why_other_surroundings(self, border: str, behind: str) -> str:
        """Return which surroundings have changed, given the hashes of now; empty if none.

        A backdrop that no longer exists makes nothing stale.
        """
        if border != self.border:
            return "the core has changed"
        return "the backdrop has changed" if behind and behind != self.backdrop else ""

    @property
    def photographs(self) -> tuple[str, ...]:
        """Return the names of all photographs of the patch, also of held-out ones; none if no files were recorded."""
        return tuple(photographs_of(self.files))

    @property
    def trainer(self) -> str:
        """Return the name of the program that trains."""
        return text(mapping(self.settings.get("training")).get("trainer"))

    def to_record(self) -> dict[str, Any]:
        """Return the fingerprint as job.json and result.json hold it, without blank optional fields."""
        record = super().to_record() | {"files": files_to_record(self.files)}
        said = {"effective": self.effective, "offset": any(self.offset), "tones": self.tones}
        said |= {"border": self.border, "backdrop": self.backdrop, "holdout": self.holdout}
        blank = [key for key, is_said in said.items() if not is_said]
        return {key: value for key, value in record.items() if key not in blank}
