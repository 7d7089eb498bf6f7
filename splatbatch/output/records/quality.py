"""Records of an inspection: inspection.json, the figures of a splat beyond PSNR, and certificate.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from splatbatch.output.records.fingerprint import ORIGIN, FilePlace
from splatbatch.output.records.metrics import TrainingSettings
from splatbatch.output.records.record import TypedRecord

State = Literal["fine", "weak", "bad", "unknown"]
HEALTH_RULES = (
    "loss_not_falling", "holdout_gap", "no_densification", "no_growth", "shrunk", "repeated_images",
    "nan_loss", "zero_gaussians", "collapse",
)  # fmt: skip
"""Names of the health rules, with which warnings of a training begin: "loss_not_falling: loss 0.2 at the start,
..."."""
GRADES = {
    "A": "no defect found, and held-out photographs are reproduced where others show the same place",
    "B": "one defect found, or no held-out photograph to check the splat with",
    "C": "several defects found, or a serious one",
    "D": "several serious defects found",
}
"""Meaning of each grade; A needs figures of held-out photographs on covered pixels, and a training without warnings
by health rules."""
NEEDED = "fidelity"
"""Name of the figure that must be known for grade A; inspections of earlier versions do not list it, and may have A."""
BAD = 3.0
"""Multiple of its limit above which a figure is bad; from the limit to there it is weak."""


@dataclass(frozen=True)
class QualityFigure(TypedRecord):
    """A figure of an inspection, which grows with one kind of defect, and its limit for good splats.

    `meaning` says what the figure shows, `advice` what to do if it is above its limit.
    """

    told: ClassVar = ("state",)
    name: str = ""
    value: float | None = None
    """Value of the figure; None: it could not be measured."""
    limit: float | None = None
    """Largest value of a good splat; None: there is no limit."""
    unit: str = ""
    subjects: tuple[str, ...] = ()
    """Names of the photographs that the figure concerns, the worst first; empty: none in particular."""
    meaning: str = ""
    advice: str = ""
    why: str = ""
    """Reason why the figure could not be measured; empty: it was measured."""
    picture: str = ""
    """Name of the figure's picture in the folder of pictures of the attempt; empty: it has none."""

    @property
    def state(self) -> State:
        """State of the figure: fine within its limit, bad above `BAD` times the limit, weak between.

        The state is unknown without a value or a limit. With a limit of 0 a figure above the limit is weak.
        """
        if self.value is None or self.limit is None:
            return "unknown"
        if self.value <= self.limit:
            return "fine"
        return "bad" if self.value > BAD * self.limit and self.limit > 0 else "weak"


@dataclass(frozen=True)
class Inspection(TypedRecord):
    """Content of inspection.json: grade and figures of a splat, and figures of its photographs."""

    patch: str = ""
    splat: str = ""
    """SHA-256 of the inspected splat; empty: unknown."""
    inputs: str = ""
    """Hash of all inputs of the inspection; with the same hash the inspection is not repeated."""
    grade: str = ""
    """Grade from A to D; empty: unknown."""
    figures: tuple[QualityFigure, ...] = ()
    photos: dict[str, dict[str, float]] = field(default_factory=dict)
    """Figures by photograph; the figures of one photograph by their names.

    x, y, z: the camera in the splat's coordinates. cover, blur, exposure, registration, shift: figures of the
    photograph. Held-out photographs also have psnr and psnr_covered in dB, of small copies; their distance to the
    nearest trained photograph in baselines; and piece: 1 where the photographs around are held out, too.
    """
    thumbnails: dict[str, str] = field(default_factory=dict)
    """Names of files in the folder of pictures, by photograph, for photographs that figures name."""
    attempt: str = ""
    """Name of the attempt that inspected the splat; its folder has the pictures, if any. Empty: unknown."""
    cells: tuple[dict[str, float], ...] = ()
    """Columns of the scene, each with the keys x, y, z, size, photos, angle, resolution and weak.

    x, y, z: middle of the column's surface, in the splat's coordinates (without the offset). size: side of the column's
    square, in the same units. photos: number of photographs that see the column. angle: degrees between those
    photographs that are furthest apart. resolution: pixels of the finest photograph for a unit. weak: 1 where fewer
    than three photographs see the column.
    """
    seconds: float | None = None
    """Duration of the inspection in seconds; None: not recorded."""
    made_with: dict[str, Any] = field(default_factory=dict)
    """Versions of programs, as of torch; empty if not recorded."""

    @property
    def found(self) -> tuple[QualityFigure, ...]:
        """The figures that exceed their limits, the bad ones first; empty if none does."""
        over = [one for one in self.figures if one.state in ("weak", "bad")]
        return tuple(sorted(over, key=lambda one: one.state))

    def aware_of(self, warnings: Iterable[str]) -> Inspection:
        """Return the inspection with a further figure for warnings of the training, and the grade that follows.

        Without warnings by health rules the inspection is returned unchanged.
        """
        if not (rules := health_rules(warnings)):
            return self
        meaning = f"warnings during the training: {', '.join(rules)}"
        advice = "Read these warnings in the report, then train the patch again."
        figures = (*self.figures, QualityFigure("health", float(len(rules)), 0, "warnings", (), meaning, advice))
        return replace(self, figures=figures, grade=grade(figures))


def grade(figures: tuple[QualityFigure, ...]) -> str:
    """Return the grade of a splat by the states of its figures; "" if no figure is known.

    A: no known figure exceeds its limit. B: one figure is weak. C: several are weak, or one is bad. D: several are bad.
    If the figure `NEEDED`, which is of held-out photographs, is unknown, the grade is B at best.
    """
    states = [one.state for one in figures]
    weak, bad = states.count("weak"), states.count("bad")
    if "fine" not in states and not weak + bad:
        return ""
    weak = weak or any(one.name == NEEDED and one.state == "unknown" for one in figures)
    return "D" if bad > 1 else "C" if bad or weak > 1 else "B" if weak else "A"


def grade_in_words(grade: str) -> str:
    """Return a grade with its meaning: "grade A: no defect found, …"; "grade unknown" for another text."""
    return f"grade {grade}: {GRADES[grade]}" if grade in GRADES else "grade unknown"


def health_rules(warnings: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the health rules with which warnings of a training begin, each once.

    Empty if there are none.
    """
    told = (words.removeprefix("health: ").partition(":")[0] for words in warnings)
    return tuple(dict.fromkeys(rule for rule in told if rule in HEALTH_RULES))


@dataclass(frozen=True)
class InspectionSettings(TrainingSettings):
    """settings.json of an attempt that inspects a splat: the splat, and the inputs of its training."""

    splat: str = ""
    """Path of the splat."""
    sha256: str = ""
    inputs: str = ""
    """Hash of all inputs of the inspection."""
    warnings: tuple[str, ...] = ()
    """Warnings of the training; empty: none."""
    piece: tuple[str, ...] = ()
    """Names of the held-out photographs that lie together, as one block; empty: there is no such block."""
    most_photos: int | None = None
    """Most photographs to decode, evenly chosen, as for a whole scene; None: all."""


@dataclass(frozen=True)
class Certificate(TypedRecord):
    """A splat's grade, figures and origin, to be handed over with the splat."""

    patch: str = ""
    grade: str = ""
    figures: tuple[QualityFigure, ...] = ()
    splat: str = ""
    """SHA-256 of the splat file."""
    num_gaussians: int | None = None
    """Number of Gaussians of the splat; None: unknown."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings that decided the result of the training, by section of the YAML."""
    settings_hash: str = ""
    """Hash of the settings that the splat was trained with; of a merged scene, `Merge.key`."""
    inputs: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file that the splat was trained from, by name; of a merged scene, of its patches' splats."""
    holdout: dict[str, dict[str, float]] = field(default_factory=dict)
    """Figures of each held-out photograph, by its name; the figures of one photograph by their names.

    psnr and psnr_covered: in dB. covered_share: from 0 to 1. x, y, z: the camera in the splat's coordinates. distance:
    to the nearest trained photograph, in baselines. piece: 1 where the photographs around are held out, too.
    """
    offset: FilePlace = ORIGIN
    """Offset x, y, z that was subtracted from the coordinates of the model, in its units."""
    made_with: dict[str, str] = field(default_factory=dict)
    """Versions of programs, and under "on" the name of the GPU, or CPU; empty if not recorded."""
    seal: str = ""
    """SHA-256 of all other fields, by which a change is found; empty: not sealed."""

    def to_record(self) -> dict[str, Any]:
        """Return the certificate as the JSON object of certificate.json.

        States of figures, which are derived, are left out.
        """
        figures = [{key: value for key, value in one.to_record().items() if key != "state"} for one in self.figures]
        return super().to_record() | {"figures": figures}

    def sealed(self) -> Certificate:
        """Return the certificate with its seal, the SHA-256 of all other fields."""
        return replace(self, seal=seal_of(self.to_record()))


def seal_of(record: dict[str, Any]) -> str:
    """Return the seal of a certificate's JSON object: a SHA-256 of all its keys and values, also of unknown keys.

    Only the keys `seal` and `format` are left out.
    """
    told = {name: value for name, value in record.items() if name not in ("seal", "format")}
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
