"""inspection.json: how good a splat is beyond PSNR; and settings.json of the attempt that inspects it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from splatbatch.fields import mapping, number
from splatbatch.store.records.metrics import TrainingSettings
from splatbatch.store.records.record import TypedRecord, reads

State = Literal["fine", "weak", "bad", "unknown"]
BAD = 3.0
"""Times its limit, from which on a figure is bad and not merely weak."""


def _numbers(value: object) -> dict[str, float]:
    found = {name: number(one) for name, one in mapping(value).items()}
    return {name: one for name, one in found.items() if one is not None}


def _by_name(value: object) -> dict[str, dict[str, float]]:
    return {name: _numbers(one) for name, one in mapping(value).items()}


def _rows(value: object) -> tuple[dict[str, float], ...]:
    return tuple(map(_numbers, value)) if isinstance(value, list | tuple) else ()


@dataclass(frozen=True)
class QualityFigure(TypedRecord):
    """A number that a sickness raises, the limit that it has on sound splats, and what to do above that."""

    name: str = ""
    value: float | None = None
    """None: it cannot be told here."""
    limit: float | None = None
    unit: str = ""
    subjects: tuple[str, ...] = ()
    """Photographs that it is about, the worst first."""
    meaning: str = ""
    advice: str = ""

    @property
    def state(self) -> State:
        """Return whether it is within its limit."""
        if self.value is None or self.limit is None:
            return "unknown"
        if self.value <= self.limit:
            return "fine"
        return "bad" if self.value > BAD * self.limit and self.limit > 0 else "weak"


def _figures(value: object) -> tuple[QualityFigure, ...]:
    return tuple(map(QualityFigure.from_record, value)) if isinstance(value, list | tuple) else ()


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
    figures: tuple[QualityFigure, ...] = field(default=(), metadata=reads(_figures))
    photos: dict[str, dict[str, float]] = field(default_factory=dict, metadata=reads(_by_name))
    """By photograph: cover, blur, exposure, registration, shift; of held-out ones psnr and distance."""
    cells: tuple[dict[str, float], ...] = field(default=(), metadata=reads(_rows))
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

    def to_record(self) -> dict[str, Any]:
        """Return it as inspection.json holds it."""
        return super().to_record() | {"figures": [one.to_record() | {"state": one.state} for one in self.figures]}


def grade(figures: tuple[QualityFigure, ...]) -> str:
    """Return A where every figure is within its limit, B for a weak one, C for several or a bad one, D for more."""
    states = [one.state for one in figures]
    weak, bad = states.count("weak"), states.count("bad")
    if "fine" not in states and not weak + bad:
        return ""
    return "D" if bad > 1 else "C" if bad or weak > 1 else "B" if weak else "A"


@dataclass(frozen=True)
class InspectionSettings(TrainingSettings):
    """settings.json of an attempt that inspects a splat: what it was trained from, and where it lies."""

    splat: str = ""
    sha256: str = ""
    inputs: str = ""


def as_numbers(values: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return what is known of each photograph, by its name: the figures turned over."""
    found: dict[str, dict[str, float]] = {}
    for figure, by_name in values.items():
        for name, value in by_name.items():
            found.setdefault(name, {})[figure] = round(float(value), 4)
    return found
