"""Inspection of a splat: all its figures, and the grade that follows from them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch

from splatbatch.output.records.quality import Inspection, grade
from splatbatch.training.inspection.coverage import coverage, distances
from splatbatch.training.inspection.fidelity import psnrs, worse_db
from splatbatch.training.inspection.limits import VEIL, figure, over
from splatbatch.training.inspection.photographs import photographs
from splatbatch.training.inspection.subject import InspectedSplat
from splatbatch.training.inspection.surface import depth_error, fronts, holes

STAGES = ("surface", "between", "coverage", "photographs")
NOT_COVERED = "of no held-out photograph enough pixels are seen by three that were trained on"
SAMPLED = "not all photographs were looked at"


def inspect(subject: InspectedSplat, tell: Callable[[str], None] = lambda _: None) -> Inspection:
    """Return all figures of a splat and its grade; `tell` is called with each of `STAGES` when it begins."""
    began = time.monotonic()
    tell("surface")
    covers, floating = fronts(subject)
    usual = statistics.median(covers.values()) if covers else None
    beyond = {name: cover - (usual or 0.0) for name, cover in covers.items()}
    depth = depth_error(subject)
    tell("between")
    psnr, psnr_covered, psnr_of_blur = psnrs(subject)
    empty = holes(subject)
    tell("coverage")
    cells, weak = coverage(subject)
    tell("photographs")
    of_photographs, scores = photographs(subject)
    figures = (
        figure("depth", depth),
        figure("haze", usual),
        figure("veil", max(beyond.values(), default=None), over(beyond, VEIL)),
        figure("floaters", floating),
        figure("holes", empty),
        figure("fidelity", worse_db(psnr_covered, psnr_of_blur), why=NOT_COVERED),
        figure("coverage", None, why=SAMPLED) if subject.is_sampled else figure("coverage", weak),
        *of_photographs,
    )
    by_photo = {"cover": covers, "psnr": psnr, "psnr_covered": psnr_covered, "distance": distances(subject)}
    return Inspection(
        grade=grade(figures),
        figures=figures,
        photos=_by_photograph({**_places(subject), **by_photo, **scores}),
        cells=cells,
        seconds=round(time.monotonic() - began, 2),
        made_with={"torch": str(torch.__version__)},
    )


def _by_photograph(values: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return figures by photograph and figure name, from figures by figure name and photograph."""
    found: dict[str, dict[str, float]] = {}
    for name, by_photo in values.items():
        for photo, value in by_photo.items():
            found.setdefault(photo, {})[name] = float(f"{value:.9g}")
    return found


def _places(subject: InspectedSplat) -> dict[str, dict[str, float]]:
    """Return camera positions in the splat file's coordinates, and `piece`: 1 for photographs held out side by side."""
    at = {look.photo.name: subject.frame.to_model(look.photo.view.center()).tolist() for look in subject.looks}
    found = {axis: {name: place[number] for name, place in at.items()} for number, axis in enumerate("xyz")}
    return {**found, "piece": {name: 1.0 for name in at if name in subject.piece}}
