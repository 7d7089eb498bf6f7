"""What is said of a splat beside its PSNR: inspection.json, and certificate.json, sealed by its own hash."""

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
"""Begin what a training warns of itself and of its splat: "loss_not_falling: loss 0.2 at the start, ..."."""
GRADES = {
    "A": "no sickness found, and held-out photographs are shown where others see the place",
    "B": "one sickness found, or no held-out photograph to hold it against",
    "C": "several sicknesses found, or a bad one",
    "D": "several bad sicknesses found",
}
"""What grades mean: A needs the figures of held-out photographs on covered pixels, and a training without warnings."""
NEEDED = "fidelity"
"""The figure without which nothing is graded A; earlier versions had none."""
BAD = 3.0
"""Times its limit, from which on a figure is bad and not merely weak."""


@dataclass(frozen=True)
class QualityFigure(TypedRecord):
    """A number that a sickness raises, the limit that it has on sound splats, and what to do above that."""

    told: ClassVar = ("state",)
    name: str = ""
    value: float | None = None
    """None: it cannot be told here."""
    limit: float | None = None
    unit: str = ""
    subjects: tuple[str, ...] = ()
    """Photographs that it is about, the worst first."""
    meaning: str = ""
    advice: str = ""
    why: str = ""
    """It cannot be told."""
    picture: str = ""
    """Name of a file in the folder of pictures."""

    @property
    def state(self) -> State:
        """Return whether it is within its limit."""
        if self.value is None or self.limit is None:
            return "unknown"
        if self.value <= self.limit:
            return "fine"
        return "bad" if self.value > BAD * self.limit and self.limit > 0 else "weak"


@dataclass(frozen=True)
class LeaveOutResult(TypedRecord):
    """What two short trainings say of the photographs that figures name: one with them, one without."""

    told: ClassVar = ("gain_db",)
    photos: tuple[str, ...] = ()
    steps: int | None = None
    psnr_with: float | None = None
    """On held-out photographs that are not named, in dB."""
    psnr_without: float | None = None
    why: str = ""
    """There is nothing to measure."""

    @property
    def gain_db(self) -> float | None:
        """Return by how much held-out photographs become better without them; None if unknown."""
        if self.psnr_with is None or self.psnr_without is None:
            return None
        return self.psnr_without - self.psnr_with


@dataclass(frozen=True)
class Inspection(TypedRecord):
    """How good a splat is, figure by figure."""

    patch: str = ""
    splat: str = ""
    """Its SHA-256."""
    inputs: str = ""
    """Hash of what it was inspected with; the same again gives the same."""
    grade: str = ""
    """A to D."""
    figures: tuple[QualityFigure, ...] = ()
    photos: dict[str, dict[str, float]] = field(default_factory=dict)
    """By photograph: where it was taken from, x, y, z in the splat's coordinates; cover, blur, exposure, registration,
    shift; of held-out ones psnr and psnr_covered of small copies, distance in baselines, and piece: 1 where those
    around it are held out, too."""
    thumbnails: dict[str, str] = field(default_factory=dict)
    """Of photographs that figures name: files in the folder of pictures."""
    attempt: str = ""
    """Whose folder has the pictures."""
    dropped: LeaveOutResult | None = None
    cells: tuple[dict[str, float], ...] = ()
    """Columns of the scene: x, y, z of the middle of the surface and size, the side of the square, in the splat's
    coordinates (without the offset); photos, angle in degrees between those that are furthest apart, resolution in
    pixels of the finest photograph for a unit; weak: 1 where fewer than three photographs see it."""
    seconds: float | None = None
    made_with: dict[str, Any] = field(default_factory=dict)

    @property
    def found(self) -> tuple[QualityFigure, ...]:
        """Return the figures that exceed their limits, the bad ones first."""
        over = [one for one in self.figures if one.state in ("weak", "bad")]
        return tuple(sorted(over, key=lambda one: one.state))

    def aware_of(self, warnings: Iterable[str]) -> Inspection:
        """Return it with a figure, and the grade, for what the training of the splat warned of itself; if anything."""
        if not (rules := health_rules(warnings)):
            return self
        meaning, advice = (
            f"of the training about itself: {', '.join(rules)}",
            "Read them in the report; train it again.",
        )
        figure = QualityFigure("health", float(len(rules)), 0, "warnings", (), meaning, advice)
        figures = (*self.figures, figure)
        return replace(self, figures=figures, grade=grade(figures))


def grade(figures: tuple[QualityFigure, ...]) -> str:
    """Return A where every figure is within its limit, B for a weak one, C for several or a bad one, D for more.

    Where it is not known how held-out photographs are shown it is B at best.
    """
    states = [one.state for one in figures]
    weak, bad = states.count("weak"), states.count("bad")
    if "fine" not in states and not weak + bad:
        return ""
    weak = weak or any(one.name == NEEDED and one.state == "unknown" for one in figures)
    return "D" if bad > 1 else "C" if bad or weak > 1 else "B" if weak else "A"


def grade_in_words(grade: str) -> str:
    """Return a grade with what it means: "grade A: no sickness found"."""
    return f"grade {grade}: {GRADES[grade]}" if grade in GRADES else "grade unknown"


def health_rules(warnings: Iterable[str]) -> tuple[str, ...]:
    """Return the rules of health that warnings of a training name, each once."""
    told = (words.removeprefix("health: ").partition(":")[0] for words in warnings)
    return tuple(dict.fromkeys(rule for rule in told if rule in HEALTH_RULES))


@dataclass(frozen=True)
class InspectionSettings(TrainingSettings):
    """settings.json of an attempt that inspects a splat: what it was trained from, and where it lies."""

    splat: str = ""
    sha256: str = ""
    inputs: str = ""
    warnings: tuple[str, ...] = ()
    """Of its training."""
    piece: tuple[str, ...] = ()
    """Held-out photographs that were taken side by side."""
    measures_drop: bool = False
    """Train twice, shortly, with and without the photographs that figures name."""
    most_photos: int | None = None
    """Evenly taken: of a whole scene more are not decoded at once."""


@dataclass(frozen=True)
class Certificate(TypedRecord):
    """A splat's grade, figures and origin, to be handed over with it."""

    patch: str = ""
    grade: str = ""
    figures: tuple[QualityFigure, ...] = ()
    splat: str = ""
    """SHA-256 of the product."""
    num_gaussians: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """That decided what was computed."""
    settings_hash: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file that it was made from."""
    holdout: dict[str, dict[str, float]] = field(default_factory=dict)
    """Of each photograph that it was not trained on: psnr in dB, psnr_covered, covered_share; x, y, z, where it was
    taken from, in the splat's coordinates; distance to the nearest trained one in baselines; piece: 1 where those
    around it are held out, too."""
    offset: FilePlace = ORIGIN
    """Was taken off the coordinates of the model."""
    made_with: dict[str, str] = field(default_factory=dict)
    seal: str = ""
    """SHA-256 of all of the above."""

    def to_record(self) -> dict[str, Any]:
        """Return it as certificate.json holds it: what limits mean for a figure is not sealed with it."""
        figures = [{key: value for key, value in one.to_record().items() if key != "state"} for one in self.figures]
        return super().to_record() | {"figures": figures}

    def sealed(self) -> Certificate:
        """Return it with its seal."""
        return replace(self, seal=seal_of(self.to_record()))


def seal_of(record: dict[str, Any]) -> str:
    """Return the seal of a certificate as its file holds it: of all but its format, also what is of no certificate."""
    told = {name: value for name, value in record.items() if name not in ("seal", "format")}
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
