"""Inspection of a splat: all its figures, and the grade that follows from them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np
import torch

from splatbatch.output.records.quality import Inspection, grade
from splatbatch.training.inspection import coverage, novel_views, photographs, surface
from splatbatch.training.inspection.fidelity import fidelity, psnrs
from splatbatch.training.inspection.limits import (
    ERROR_TIMES,
    EXPOSED_STOPS,
    MOST_AT_FAULT,
    SHIFTED,
    FigureValue,
    blur_limit,
    count,
    figures,
    limit_of,
    named,
)
from splatbatch.training.inspection.subject import InspectedSplat

STAGES = ("surface", "between", "coverage", "photographs")
NOT_COVERED = "of no held-out photograph enough pixels are seen by three that were trained on"
SAMPLED = "not all photographs were looked at"
ByPhoto = Mapping[str, Mapping[str, float]]


def inspect(subject: InspectedSplat, tell: Callable[[str], None] = lambda _: None) -> Inspection:
    """Return all figures of a splat and its grade; `tell` is called with each of `STAGES` when it begins."""
    began = time.monotonic()
    values: dict[str, FigureValue] = {}
    photos: dict[str, Mapping[str, float]] = {}
    for stage in STAGES:
        tell(stage)
        found, by_photo = _MEASURES[stage](subject)
        values |= found
        photos |= by_photo
    made = figures(values)
    return Inspection(
        grade=grade(made),
        figures=made,
        photos=_by_photograph({**_places(subject), **photos}),
        cells=tuple(_placed(subject, cell) for cell in coverage.cells(subject)),
        seconds=round(time.monotonic() - began, 2),
        made_with={"torch": str(torch.__version__)},
    )


def _by_photograph(values: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return figures by photograph and figure name, from figures by figure name and photograph."""
    found: dict[str, dict[str, float]] = {}
    for figure, by_name in values.items():
        for name, value in by_name.items():
            found.setdefault(name, {})[figure] = float(f"{value:.9g}")
    return found


def _places(subject: InspectedSplat) -> dict[str, dict[str, float]]:
    """Return camera positions in the splat file's coordinates, and `piece`: 1 for photographs held out side by side."""
    at = {
        look.photo.name: subject.frame.to_model(novel_views.center_of(look.photo.view)).tolist()
        for look in subject.looks
    }
    found = {axis: {name: place[number] for name, place in at.items()} for number, axis in enumerate("xyz")}
    return {**found, "piece": {name: 1.0 for name in at if name in subject.piece}}


def _placed(subject: InspectedSplat, cell: coverage.CoverageColumn) -> dict[str, float]:
    """Return a cell in the coordinates of the splat file."""
    x, y, z = subject.frame.to_model(np.array(cell.place)).tolist()
    found = {"x": x, "y": y, "z": z, "size": cell.size * subject.frame.scale, "photos": cell.num_photos}
    found |= {
        "angle": cell.angle_deg,
        "resolution": cell.px_per_unit / subject.frame.scale,
        "weak": float(cell.is_weak),
    }
    return {name: float(f"{value:.9g}") for name, value in found.items()}


def _surface(subject: InspectedSplat) -> tuple[dict[str, FigureValue], ByPhoto]:
    found, depths = surface.fronts(subject), surface.depths_at_points(subject)
    usual = statistics.median(found.covers.values()) if found.covers else None
    beyond = {name: cover - (usual or 0.0) for name, cover in found.covers.items()}
    values = {
        "depth": FigureValue(depths.off),
        "haze": FigureValue(usual),
        "veil": FigureValue(max(beyond.values(), default=None), named(beyond, limit_of("veil"))),
        "floaters": FigureValue(surface.floaters(subject, found)),
    }
    return values, {"cover": found.covers}


def _between(subject: InspectedSplat) -> tuple[dict[str, FigureValue], ByPhoto]:
    held_out, away = psnrs(subject, subject.holdout), coverage.distances(subject)
    shown = fidelity(subject)
    values = {
        "fidelity": FigureValue(shown.worse_db, why=NOT_COVERED),
        "holes": FigureValue(novel_views.holes(subject, subject.points)),
    }
    return values, {"psnr": held_out, "psnr_covered": shown.splat, "distance": away}


def _coverage(subject: InspectedSplat) -> tuple[dict[str, FigureValue], ByPhoto]:
    weak = None if subject.is_sampled else coverage.weakly_covered(subject)
    return {"coverage": FigureValue(weak, why=SAMPLED if subject.is_sampled else "")}, {}


def _photographs(subject: InspectedSplat) -> tuple[dict[str, FigureValue], ByPhoto]:
    found, shifts = photographs.judged(subject.looks, len(subject.points)), photographs.shifts(subject)
    stops = {name: abs(value) for name, value in found.exposure.items()}
    shifted = named(shifts, SHIFTED)
    moved = shifted if len(shifted) <= MOST_AT_FAULT * len(shifts) else ()
    elsewhere = named(found.registration, ERROR_TIMES)
    values = {
        "blurred": count(named(found.blur, blur_limit(found.blur.values()))),
        "exposure": count(named(stops, EXPOSED_STOPS)),
        "misregistered": count((*elsewhere, *(name for name in moved if name not in elsewhere))),
    }
    return values, {**vars(found), "shift": shifts}


_MEASURES = {
    **{"surface": _surface, "between": _between, "coverage": _coverage},
    "photographs": _photographs,
}
