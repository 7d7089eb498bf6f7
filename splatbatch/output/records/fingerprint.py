"""What a result depends on, as hashes, with what they were made from, so that a change has a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from splatbatch.fields import mapping, number, text
from splatbatch.hashing import FileFact, Files
from splatbatch.output.records.record import TypedRecord, reads

MODEL = "sparse/"
"""What the names of a model's files begin with."""
IMAGES = "images/"
"""What the keys of photographs begin with."""


def is_content(key: str) -> bool:
    """Return whether a file counts by what is in it: model, photographs and masks; not folders, lists, sources."""
    kind = key.partition("/")[0]
    return (kind in ("sparse", "images", "masks") or kind.startswith("images_")) and not key.endswith("/")


def files_to_record(files: Mapping[str, FileFact]) -> dict[str, Any]:
    """Return the JSON form of some files."""
    return {key: list(fact) for key, fact in files.items()}


def photographs_of(files: Iterable[str]) -> Iterator[str]:
    """Yield the names of the photographs among the keys of files."""
    return (key.removeprefix(IMAGES) for key in files if key.startswith(IMAGES))


def files_from_record(record: Any) -> Files:
    """Return the files that `files_to_record` wrote; what is no such entry is left out."""
    entries = record.items() if isinstance(record, dict) else ()
    facts = {str(key): entry for key, entry in entries if isinstance(entry, list)}
    return {key: FileFact(*entry) for key, entry in facts.items() if [type(one) for one in entry] == [int, int, str]}


FilePlace = tuple[float, float, float]
ORIGIN: FilePlace = (0.0, 0.0, 0.0)


MOST_GAIN = 100.0
"""No photograph that shows anything is as much brighter than the others."""
MOST_COEFFICIENT = 10.0
"""No lens fades that much."""


def tones_in(value: object) -> dict[str, list[float]]:
    """Return tones by image name, three gains and coefficients, as `tones_to_record` wrote them; what is none goes."""
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
    """What a result depends on; if any of it changes the result is stale."""

    recipe: str = ""
    """Hash of all settings that decide what is computed, before changes by --set or by a rung."""
    inputs: str = ""
    """Hash of the model, the choice of hold-out, and of names and sizes of its photographs and masks."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings that `recipe` stands for; values of environment variables left out, since they are secrets."""
    files: Files = field(default_factory=dict, metadata=reads(files_from_record))
    """What `inputs` stands for: each file with its size, time and, as far as known, content."""
    effective: str = ""
    """As `recipe`, of the settings really in force; empty if none was changed."""
    offset: FilePlace = ORIGIN
    """What was taken off the coordinates of the model: add it to the splat's for the model's own."""

    tones: dict[str, list[float]] = field(default_factory=dict, metadata=reads(tones_in))
    """Of its photographs: gain R, G, B, then vignetting, tilt and field; none: as they are."""
    border: str = ""
    """Hash of the boxes of a patch with a core; empty: it had none."""
    backdrop: str = ""
    """SHA-256 of the splat that was drawn behind it; empty: none was."""
    holdout: str = ""
    """What is held out as one: "frames"; empty: photographs, by their names alone, as up to 0.2.0."""

    @property
    def surroundings(self) -> tuple[str, str]:
        """Return the hashes of what lies around the patch: its boxes, and the splat behind it."""
        return self.border, self.backdrop

    def why_other_surroundings(self, border: str, behind: str) -> str:
        """Say what lies around the patch now that did not, by hashes as above; one that is gone makes nothing stale."""
        if border != self.border:
            return "the core has changed"
        return "the backdrop has changed" if behind and behind != self.backdrop else ""

    @property
    def photographs(self) -> tuple[str, ...]:
        """Return the names of the patch's photographs, of those held out, too; none where no files were recorded."""
        return tuple(photographs_of(self.files))

    @property
    def trainer(self) -> str:
        """Return the name of the program that trains."""
        return text(mapping(self.settings.get("training")).get("trainer"))

    def to_record(self) -> dict[str, Any]:
        """Return it as job.json and result.json hold it."""
        record = super().to_record() | {"files": files_to_record(self.files)}
        said = {"effective": self.effective, "offset": any(self.offset), "tones": self.tones}
        said |= {"border": self.border, "backdrop": self.backdrop, "holdout": self.holdout}
        blank = [key for key, is_said in said.items() if not is_said]
        return {key: value for key, value in record.items() if key not in blank}
