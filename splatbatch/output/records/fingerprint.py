"""The fingerprint of a result: hashes of its settings and inputs, and what they were made from, to name a change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from splatbatch.fields import mapping, number, text
from splatbatch.hashing import FileFact, Files
from splatbatch.output.records.record import TypedRecord, as_object, reads

MODEL = "sparse/"
"""Begin of the names of a model's files in `Fingerprint.files`."""
IMAGES = "images/"
"""Begin of the names of photographs in `Fingerprint.files`."""
KINDS = [int, int, str]
"""Types of size in bytes, time in ns since 1970, and SHA-256, in the JSON form of a file."""


def is_content(key: str) -> bool:
    """Return whether a file is compared by its content, as models, photographs and masks are.

    False for folders and lists.

    Args:
        key: name of the file in `Fingerprint.files`.
    """
    kind = key.partition("/")[0]
    return (kind in ("sparse", "images", "masks") or kind.startswith("images_")) and not key.endswith("/")


def files_to_record(files: Mapping[str, FileFact]) -> dict[str, Any]:
    """Return the JSON form of facts of files, by name: lists of size in bytes, time in ns since 1970, and SHA-256."""
    return {key: list(fact) for key, fact in files.items()}


def photographs_of(files: Iterable[str]) -> Iterator[str]:
    """Yield the image names of the photographs among the names of files in `Fingerprint.files`, in their order."""
    return (key.removeprefix(IMAGES) for key in files if key.startswith(IMAGES))


def files_from_record(record: object) -> Files:
    """Return the facts of files, by name, that `files_to_record` wrote; an invalid entry is left out."""
    entries = as_object(record).items()
    return {str(key): FileFact(*one) for key, one in entries if isinstance(one, list) and [*map(type, one)] == KINDS}


FilePlace = tuple[float, float, float]
ORIGIN: FilePlace = (0.0, 0.0, 0.0)


MOST_GAIN = 100.0
"""Largest gain of a photograph that is accepted when read; the smallest is its inverse."""
MOST_COEFFICIENT = 10.0
"""Largest coefficient of vignetting and shading, with either sign, that is accepted when read."""


def tones_in(value: object) -> dict[str, list[float]]:
    """Return the colour corrections that `colors.tones_to_record` wrote, by image name: three gains, then coefficients.

    Gains beyond `MOST_GAIN`, coefficients beyond `MOST_COEFFICIENT`, and entries of another form are left out, with the
    whole correction of their photograph.
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
    """All settings and inputs that a splat depends on.

    The fingerprint is recorded with the splat, and compared later to see whether the splat is stale.
    """

    recipe: str = ""
    """Hash of all settings that decide what is computed, before changes by --set or by a retry; empty: unknown."""
    inputs: str = ""
    """Hash of the model, of the choice of held-out photographs, and of names and sizes of photographs and masks."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings whose hash is `recipe`, without the values of environment variables, which are secrets."""
    files: Files = field(default_factory=dict, metadata=reads(files_from_record))
    """The files behind `inputs`, by name: each with its size, time and, if known, hash of its content."""
    effective: str = ""
    """Hash like `recipe`, of the settings after all changes, equal to `recipe` without any; empty: not recorded."""
    offset: FilePlace = ORIGIN
    """Offset x, y, z that was subtracted from the coordinates of the model; add it to those of the splat. Zero:
    none."""

    tones: dict[str, list[float]] = field(default_factory=dict, metadata=reads(tones_in))
    """Colour correction of each photograph: gain R, G, B, then vignetting, tilt and field; empty: no correction."""
    border: str = ""
    """Hash of the boxes of space of a patch that was cut from a scene; empty: it was not cut, or they are not used."""
    backdrop: str = ""
    """SHA-256 of the backdrop drawn behind the patch; empty: none was drawn."""
    holdout: str = ""
    """Unit of the hold-out: "frames" of a rig; empty: single photographs by their names, as up to version 0.2.0."""

    @property
    def surroundings(self) -> tuple[str, str]:
        """The hashes of the surroundings of the patch: of its boxes of space, and of the backdrop; "": not used."""
        return self.border, self.backdrop

    def why_other_surroundings(self, border: str, behind: str) -> str:
        """Return which surroundings of the patch have changed, as a sentence; "" if none.

        A backdrop that no longer exists makes nothing stale.

        Args:
            border: hash of the boxes of space of the patch now; "": it has none.
            behind: SHA-256 of the backdrop now; "": there is none.
        """
        if border != self.border:
            return "the core of the patch (its box of space) has changed"
        return "the backdrop behind the patch has changed" if behind and behind != self.backdrop else ""

    @property
    def photographs(self) -> tuple[str, ...]:
        """Names of all photographs of the patch, also of held-out ones; empty if no files were recorded."""
        return tuple(photographs_of(self.files))

    @property
    def trainer(self) -> str:
        """Name of the program that trains, as `training.trainer` of the YAML; "" if it was not recorded."""
        return text(mapping(self.settings.get("training")).get("trainer"))

    def to_record(self) -> dict[str, Any]:
        """Return the fingerprint as a JSON object for job.json and result.json, without blank optional fields."""
        record = super().to_record() | {"files": files_to_record(self.files)}
        said = {"effective": self.effective, "offset": any(self.offset), "tones": self.tones}
        said |= {"border": self.border, "backdrop": self.backdrop, "holdout": self.holdout}
        blank = [key for key, is_said in said.items() if not is_said]
        return {key: value for key, value in record.items() if key not in blank}
