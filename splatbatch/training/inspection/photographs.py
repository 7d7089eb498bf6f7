"""Detection of harmful photographs: blurred, exposed unlike the others, or with a wrong pose in the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splatbatch.output.records.quality import QualityFigure
from splatbatch.training.inspection.limits import figure, over
from splatbatch.training.inspection.subject import Floats, InspectedSplat, SmallPhotograph
from splatbatch.training.photos.dataset import evenly_spaced

DETAIL_SIGMA_PX = 1.0
WINDOW_PX = 15
"""Side of the window around a point in which detail and brightness are measured."""
LEAST_POINTS = 20
"""Least number of points that a photograph must share with others to be judged."""
DARK = 4.0
"""Mean brightness, of 255, below which a window is not used."""
SMALLEST_ERROR = 0.3
"""Smallest reprojection error, in 1/1000 of the width, that keypoints distinguish from none."""
MOST_RENDERED = 100
PHASE = 0.75
"""Exponent of the amplitudes by which the cross power spectrum is divided; 1 would weigh noise like the picture."""
OPAQUE, LEAST_SHOWN = 0.5, 0.5
"""Opacity of a pixel, and least share of such pixels, to measure a shift: photographs also show other patches."""
CLEAR = 8.0
"""Standard deviations by which the peak of a shift must exceed the mean correlation; else the shift is 0."""


BLURRED_OCTAVES, EXPOSED_STOPS, ERROR_TIMES, SHIFTED = 0.4, 0.4, 3.0, 8.0
"""Limits above which a photograph is named as harmful.

Octaves less detail; stops of brightness; times the usual reprojection error; shift against its rendering, in 1/1000 of
the width. Sound photographs: 0.07 (0.56 at full size), 0.08, 1.6 and 0.
"""
BLURRED_SPREADS = 4.5
"""Least number of robust standard deviations by which a blurred photograph has less detail.

It is required beside `BLURRED_OCTAVES`, since at full size the detail of sound photographs differs more. Sound: 4.3;
blurred by 1.5 pixels, at full size: 6 and more.
"""
TO_DEVIATION = 1.4826
"""Factor from the median absolute deviation to the standard deviation of a normal distribution."""
MOST_AT_FAULT = 1 / 3
"""Largest share of photographs that are named for a shift: where more are shifted, the splat is wrong, not they."""


def photographs(subject: InspectedSplat) -> tuple[list[QualityFigure], dict[str, dict[str, float]]]:
    """Compare every photograph with its rendering, and with others that see the same points.

    Returns:
        The figures that name blurred, exposed and misregistered photographs.
        By name, and by photograph: `blur`, the octaves (log2) of detail that it lacks at its points; `exposure`, the
        stops (log2) by which it is brighter than the others, after the gain of its colour correction; `registration`,
        its median reprojection error as a multiple of the usual one of all photographs; and `shift`, see `shifts`. A
        photograph that shares fewer than `LEAST_POINTS` with others has none of the first three.
    """
    looks, num_points = subject.looks, len(subject.points)
    windows = {look.photo.name: _windows(look) for look in looks}
    points = {look.photo.name: look.points for look in looks}
    detail, brightness = ({name: found[place] for name, found in windows.items()} for place in (0, 1))
    blur = {name: -value for name, value in _against_others(points, detail, num_points).items()}
    exposure = _against_others(points, brightness, num_points)
    errors, moved = _registration(looks), shifts(subject)
    elsewhere, aside = over(errors, ERROR_TIMES), over(moved, SHIFTED)
    if len(aside) <= MOST_AT_FAULT * len(moved):
        elsewhere = tuple(dict.fromkeys((*elsewhere, *aside)))
    named = {
        "blurred": over(blur, blur_limit(blur.values())),
        "exposure": over({name: abs(stops) for name, stops in exposure.items()}, EXPOSED_STOPS),
        "misregistered": elsewhere,
    }
    scores = {"blur": blur, "exposure": exposure, "registration": errors, "shift": moved}
    return [figure(name, float(len(names)), names) for name, names in named.items()], scores


def blur_limit(values: Iterable[float]) -> float:
    """Return how many octaves less detail a photograph must have to count as blurred, by the spread of all values."""
    known = [*values]
    if not known:
        return BLURRED_OCTAVES
    middle = median(known)
    return max(BLURRED_OCTAVES, BLURRED_SPREADS * TO_DEVIATION * median(abs(one - middle) for one in known))


def _windows(look: SmallPhotograph) -> tuple[Floats, Floats]:
    """Return log2 of detail and of brightness around each point in the picture, [n] each; NaN where it is dark."""
    grey = look.photo.target().float().mean(dim=-1)
    if look.photo.correction is not None:
        grey = grey / look.photo.correction[:3].mean()
    fine = grey - smooth(grey, gaussian(DETAIL_SIGMA_PX, grey.device))
    window = torch.full((WINDOW_PX,), 1 / WINDOW_PX, device=grey.device)
    height, width = grey.shape
    view = look.small.view
    x, y = np.floor(look.pixels * (width / view.width, height / view.height)).astype(np.int64).T
    detail, mean = smooth(fine.square(), window).sqrt(), smooth(grey, window)
    at, around = (values.cpu().numpy()[y, x].astype(np.float64) for values in (mean, detail))
    is_dark = at < DARK
    fine_share, bright = (np.log2(np.maximum(values, 1e-3)) for values in (around / np.maximum(at, DARK), at))
    return np.where(is_dark, np.nan, fine_share), np.where(is_dark, np.nan, bright)


def gaussian(sigma: float, device: torch.device) -> Tensor:
    """Return the weights of a Gaussian filter cut at four sigmas, which sum to 1."""
    away = torch.arange(-round(4 * sigma), round(4 * sigma) + 1, device=device)
    weights = (-0.5 * (away / sigma).square()).exp()
    return weights / weights.sum()


def smooth(picture: Tensor, weights: Tensor) -> Tensor:
    """Return a picture [H, W] filtered along both axes, mirrored at its edges, edge pixels included."""
    reach = len(weights) // 2
    for axis in (0, 1):
        rows = picture.movedim(axis, -1)
        num = rows.shape[-1]
        at = torch.arange(-reach, num + reach, device=rows.device) % (2 * num)
        mirrored = rows[..., torch.where(at < num, at, 2 * num - 1 - at)]
        picture = sum(
            (weight * mirrored[..., place : place + num] for place, weight in enumerate(weights.tolist())),
            torch.zeros_like(rows),
        ).movedim(-1, axis)
    return picture


def _against_others(
    points: Mapping[str, NDArray[np.int64]], values: Mapping[str, Floats], num_points: int
) -> dict[str, float]:
    """Return the median, over a photograph's points, of the excess of its value over the median of all photographs."""
    middles = _middles(np.concatenate(list(points.values())), np.concatenate(list(values.values())), num_points)
    found = {}
    for name, at in points.items():
        away = values[name] - middles[at]
        away = away[np.isfinite(away)]
        if len(away) >= LEAST_POINTS:
            found[name] = float(np.median(away))
    return found


def _middles(points: NDArray[np.int64], values: Floats, num_points: int) -> Floats:
    """Return the median value of each point, [P]; NaN where fewer than two photographs have a value."""
    known = np.isfinite(values)
    order = np.lexsort((values[known], points[known]))
    points, values = points[known][order], values[known][order]
    starts = np.searchsorted(points, np.arange(num_points + 1))
    counts = np.diff(starts)
    middles = np.full(num_points, np.nan)
    many = np.flatnonzero(counts >= 2)
    low, high = starts[many] + (counts[many] - 1) // 2, starts[many] + counts[many] // 2
    middles[many] = (values[low] + values[high]) / 2
    return middles


def _registration(looks: Sequence[SmallPhotograph]) -> dict[str, float]:
    medians = {look.photo.name: float(np.median(look.errors)) for look in looks if len(look.errors) >= LEAST_POINTS}
    usual = float(np.median(list(medians.values()))) if medians else 1.0
    return {name: error / max(usual, SMALLEST_ERROR) for name, error in medians.items()}


@torch.inference_mode()
def shifts(subject: InspectedSplat) -> dict[str, float]:
    """Return the shift of photographs against their renderings, in 1/1000 of the width, by phase correlation.

    As in Kuglin 1975. Photographs of which the splat shows less than `LEAST_SHOWN` are left out.
    """
    found = {}
    for look in evenly_spaced(subject.looks, MOST_RENDERED):
        shown = subject.shown(look)
        drawn = shown.colors.clamp(0, 1).mean(dim=-1)
        photo = look.small.pixels.to(drawn).mean(dim=-1)
        valid = shown.alphas > OPAQUE
        if look.small.mask is not None:
            valid &= look.small.mask.to(drawn.device)
        if float(valid.float().mean()) < LEAST_SHOWN:
            continue
        drawn, photo = drawn * valid, photo * valid
        found[look.photo.name] = 1000 * _shift(drawn, photo) / drawn.shape[1]
    return found


def _shift(one: Tensor, other: Tensor) -> float:
    """Return the shift between two pictures [H, W] in pixels, by phase correlation; 0 where no shift is clear."""
    height, width = one.shape
    window = torch.hann_window(height).to(one)[:, None] * torch.hann_window(width).to(one)
    first, second = (torch.fft.rfft2((picture - picture.mean()) * window) for picture in (one, other))
    cross = first * second.conj()
    peaks = torch.fft.irfft2(cross / cross.abs().clamp_min(1e-9) ** PHASE, s=(height, width))
    if float(peaks.max() - peaks.mean()) < CLEAR * float(peaks.std()):
        return 0.0
    y, x = divmod(int(peaks.argmax()), width)
    return math.hypot(min(y, height - y), min(x, width - x))
