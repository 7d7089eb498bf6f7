"""The records that are about the quality of splats: of `inspect` and `verify-certificate`."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import TypedDict

from splatbatch.store.records.quality.inspection import Dropped, Inspection, QualityFigure, State


@dataclass(frozen=True)
class Judged(QualityFigure):
    """A figure, and whether it is within its limit."""

    state: State = "unknown"


@dataclass(frozen=True)
class Gained(Dropped):
    """What two short trainings say of photographs, and by how much others become better without them."""

    gain_db: float | None = None


@dataclass(frozen=True)
class Inspected(Inspection):
    """What was found of a splat, as inspection.json holds it."""

    figures: tuple[Judged, ...] = ()
    dropped: Gained | None = None


class Checked(TypedDict):
    """Whether a certificate holds, and if not, why."""

    holds: bool
    problems: list[str]
