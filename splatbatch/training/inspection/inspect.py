"""Inspection of a splat: its figures, their limits, and the grade (A to D) that follows from the figures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from splatbatch.output.records.quality import Inspection, QualityFigure, grade
from splatbatch.training.evaluation.evaluate import covered_psnr, psnr_as
from splatbatch.training.inspection.photographs import over, photographs
from splatbatch.training.inspection.subject import InspectedSplat, SmallPhotograph
from splatbatch.training.inspection.surface import coverage, depth_error, fronts, holes
from splatbatch.training.photos.posed_image import PosedImage

STAGES = ("surface", "between", "coverage", "photographs")
BLUR_PX = 8  # side, in pixels of the small copies, of the squares whose mean colours make a blurred photograph
MOST_DB = 30.0  # PSNR of a blur that counts: in a scene with little detail a blur is too good a standard
VEIL = 0.4  # opacity before a single camera; also names the photographs
TABLE = (  # beside each limit: the largest value of sound splats, and the smallest of splats with that defect planted
    QualityFigure(  # 0.11, 0.51
        *("depth", None, 0.25, "share", ()),
        "of the model's points, at which the splat has no surface, or one that is off by over 5 % of the depth",
        "Train longer, or with more Gaussians. If that does not help, check the poses: splatbatch verify-dims --deep.",
    ),
    QualityFigure(  # 0.01, 0.20
        *("haze", None, 0.06, "opacity", ()),
        "of stray Gaussians in front of the scene, in the median of all photographs",
        "Changing exposure or weather makes haze: set training.colors: even, or leave such photographs out.",
    ),
    QualityFigure(  # 0.19, 0.94
        *("veil", None, VEIL, "opacity", ()),
        "of stray Gaussians in front of a single camera, beyond the median of all photographs",
        "Leave out or mask the named photographs: something near the camera, or a wrong pose, made floaters there.",
    ),
    QualityFigure(  # 0.015 at full size on a GPU, 0.016
        *("floaters", None, 0.0155, "share", ()),
        "of the splat's opacity, in floaters: Gaussians that hang in front of what the cameras see",
        "Remove floaters with splatbatch merge --clean, or add photographs from other sides.",
    ),
    QualityFigure(  # 0.001, 0.03
        *("holes", None, 0.01, "share", ()),
        "of the model's points, at which the splat has holes if seen from half-way to the next camera",
        "Take photographs from between the cameras as well, or raise training.cap_max.",
    ),
    QualityFigure(  # 0; after 20 steps of mcmc 0.5 (quarry, full size) and 5.3 (caliterra, a quarter)
        *("fidelity", None, 0, "dB", ()),
        "by which the splat shows held-out photographs worse than blurred copies do, on covered pixels",
        "Train longer, or with more Gaussians. If that does not help, check the poses: splatbatch verify-dims --deep.",
    ),
    QualityFigure(  # 0.055, 0.092
        *("coverage", None, 0.075, "share", ()),
        "of the surface, without its outermost tenth, that fewer than three photographs see",
        "Take more photographs of the weak cells, which the map in the report shows.",
    ),
    QualityFigure(  # 0.07 octaves; 0.56 at full size
        *("blurred", None, 0, "photographs", ()),
        "that have clearly less detail than others of the same places",
        "Leave the named photographs out, or take them again.",
    ),
    QualityFigure(  # 0.08 stops
        *("exposure", None, 0, "photographs", ()),
        "that are clearly brighter or darker than others of the same places",
        "Set training.colors: even, or leave the named photographs out.",
    ),
    QualityFigure(  # 1.6 times
        *("misregistered", None, 0, "photographs", ()),
        "that were taken from elsewhere than the model says",
        "Register the named photographs in COLMAP again, or leave them out.",
    ),
)
"""The figures with their limits, in the order of reports; value, unit and `meaning` of a figure make a phrase."""
Scores = dict[str, float]  # a figure of photographs, by their name


def inspect(subject: InspectedSplat, tell: Callable[[str], None] = lambda _: None) -> Inspection:
    """Return figures and grade of a splat; what cannot be measured is None. `tell` is called as each stage begins.

    Raises:
        TrainerError: a rendering has NaN pixels, or there are no kernels for the GPU.
    """
    began = time.monotonic()
    tell("surface")
    covers, floating = fronts(subject)
    usual = statistics.median(covers.values())
    beyond = {name: cover - usual for name, cover in covers.items()}
    measured = {"depth": depth_error(subject), "haze": usual, "veil": max(beyond.values()), "floaters": floating}
    tell("between")
    psnr, psnr_covered, psnr_of_blur = psnrs(subject)
    measured |= {"fidelity": worse_db(psnr_covered, psnr_of_blur), "holes": holes(subject)}
    tell("coverage")
    cells, weak = coverage(subject)
    measured["coverage"] = None if subject.is_sampled else weak
    tell("photographs")
    named, scores = photographs(subject)
    measured |= {name: float(len(names)) for name, names in named.items()}
    named["veil"] = over(beyond, VEIL)
    why = {"fidelity": "no held-out photograph has enough covered pixels, which three training photographs see"}
    why |= {"coverage": "only some photographs were inspected, and all are needed"} if subject.is_sampled else {}
    figures = tuple(
        replace(row, value=round(value, 5), subjects=named.get(row.name, ()))
        if (value := measured[row.name]) is not None
        else replace(row, why=why.get(row.name, ""))
        for row in TABLE
    )
    scores = {"cover": covers, "psnr": psnr, "psnr_covered": psnr_covered, "distance": distances(subject), **scores}
    return Inspection(
        grade=grade(figures),
        figures=figures,
        photos={look.photo.name: _of_photograph(subject, look, scores) for look in subject.looks},
        cells=cells,
        seconds=round(time.monotonic() - began, 2),
        made_with={"torch": str(torch.__version__)},
    )


def _of_photograph(subject: InspectedSplat, look: SmallPhotograph, scores: Mapping[str, Scores]) -> Scores:
    """Return the figures of a photograph: its camera's position in the splat file's coordinates, and its scores."""
    name = look.photo.name
    place = subject.frame.to_model(look.photo.view.center()).tolist()
    found = dict(zip("xyz", place, strict=True)) | ({"piece": 1.0} if name in subject.piece else {})
    found |= {score: values[name] for score, values in scores.items() if name in values}
    return {score: float(f"{value:.9g}") for score, value in found.items()}


def distances(subject: InspectedSplat) -> dict[str, float]:
    """Return the distance of each held-out camera to the nearest training camera, by photograph, in baselines.

    A baseline is the median distance of a training camera to the nearest other; empty with fewer than two.
    """
    if len(subject.training) < 2:
        return {}
    baseline = max(float(np.median([subject.away_from(look)[0] for look in subject.training])), 1e-9)
    return {look.photo.name: float(subject.away_from(look)[0]) / baseline for look in subject.holdout}


@torch.inference_mode()
def psnrs(subject: InspectedSplat) -> tuple[Scores, Scores, Scores]:
    """Return PSNRs in dB by held-out photograph: the splat's on valid and on covered pixels, a blur's on covered ones.

    All are of the small copies. Photographs without valid pixels lack the first, with too few covered ones the others.

    Raises:
        TrainerError: a rendering has NaN pixels, or there are no kernels for the GPU.
    """
    valid, covered, blurs = Scores(), Scores(), Scores()
    for look in subject.holdout:
        name, small, colors = look.photo.name, look.small, subject.shown(look).colors
        if small.counts():
            valid[name] = psnr_as(colors, small)
        ours = covered_psnr(small.as_taken(colors).clamp(0, 1), small)
        blurred = covered_psnr(blur_of(small), small)
        if ours is not None and blurred is not None:
            covered[name], blurs[name] = ours, blurred
    return valid, covered, blurs


def worse_db(splat: Scores, blur: Scores) -> float | None:
    """Return by how many dB, at least 0, a splat's mean PSNR is below a blur's, `MOST_DB` at most; None: no PSNR."""
    if not splat:
        return None
    return max(0.0, min(MOST_DB, statistics.fmean(blur.values())) - statistics.fmean(splat.values()))


def blur_of(photo: PosedImage) -> Tensor:
    """Return a blurred photograph, [H, W, 3] in [0, 1]: means of squares of `BLUR_PX`, interpolated bilinearly."""
    pixels = (photo.target().float() / 255).movedim(-1, 0)[None]
    means = avg_pool2d(pixels, BLUR_PX, ceil_mode=True)
    size = (photo.view.height, photo.view.width)
    return interpolate(means, size=size, mode="bilinear", align_corners=False)[0].movedim(0, -1)
