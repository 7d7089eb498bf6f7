"""Photographs that hurt: blurred, exposed unlike the others, or standing elsewhere than the model says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splatbatch.training.inspection.subject import Floats, InspectedSplat, SmallPhotograph
from splatbatch.training.photos.dataset import evenly_spaced

DETAIL_SIGMA_PX = 1.0
WINDOW_PX = 15
"""Around a point, in which detail and brightness are measured."""
LEAST_POINTS = 20
"""That a photograph must share with others, to be judged."""
DARK = 4.0
"""Of 255: windows darker than that say nothing."""
SMALLEST_ERROR = 0.3
"""In 1/1000 of the width: what keypoints cannot tell from none."""
MOST_RENDERED = 100
PHASE = 0.75
"""How far amplitudes are evened: all of it would let noise speak as loud as the picture."""
OPAQUE, LEAST_SHOWN = 0.5, 0.5
"""Of a picture, that the splat must show for a shift to be looked for: photographs show other patches, too."""
CLEAR = 8.0
"""Standard deviations by which a shift must stand out, to be one."""


@dataclass(frozen=True)
class PhotographScores:
    """Photographs against those that they share points with; figures by name."""

    blur: dict[str, float]
    """How many octaves less detail it has at the points, log2."""
    exposure: dict[str, float]
    """How many stops brighter it is than the others, less what colors.json knows of; log2."""
    registration: dict[str, float]
    """Times the error of the others that its points fall beside their keypoints."""


def judged(looks: Sequence[SmallPhotograph], num_points: int) -> PhotographScores:
    """Judge every photograph by those that it shares points with."""
    windows = {look.photo.name: _windows(look) for look in looks}
    detail = {name: found[0] for name, found in windows.items()}
    bright = {name: found[1] for name, found in windows.items()}
    points = {look.photo.name: look.points[look.is_inside] for look in looks}
    blur = {name: -value for name, value in _against_others(points, detail, num_points).items()}
    return PhotographScores(blur, _against_others(points, bright, num_points), _registration(looks))


def _windows(look: SmallPhotograph) -> tuple[Floats, Floats]:
    """Return the logarithms of detail and of brightness around each point that falls into the picture."""
    grey = look.photo.target().float().mean(dim=-1)
    if look.photo.correction is not None:
        grey = grey / look.photo.correction[:3].mean()
    fine = grey - smooth(grey, gaussian(DETAIL_SIGMA_PX, grey.device))
    window = torch.full((WINDOW_PX,), 1 / WINDOW_PX, device=grey.device)
    height, width = grey.shape
    view = look.small.view
    x, y = np.floor(look.pixels[look.is_inside] * (width / view.width, height / view.height)).astype(np.int64).T
    detail, mean = smooth(fine.square(), window).sqrt(), smooth(grey, window)
    at, around = (values.cpu().numpy()[y, x].astype(np.float64) for values in (mean, detail))
    is_dark = at < DARK
    fine_share, bright = (np.log2(np.maximum(values, 1e-3)) for values in (around / np.maximum(at, DARK), at))
    return np.where(is_dark, np.nan, fine_share), np.where(is_dark, np.nan, bright)


def gaussian(sigma: float, device: torch.device) -> Tensor:
    """Return the weights of a Gaussian that ends at four sigmas."""
    away = torch.arange(-round(4 * sigma), round(4 * sigma) + 1, device=device)
    weights = (-0.5 * (away / sigma).square()).exp()
    return weights / weights.sum()


def smooth(picture: Tensor, weights: Tensor) -> Tensor:
    """Return a picture [H, W] smoothed along both axes; beyond its edges it is mirrored, edges included."""
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
    """Return by how much each photograph's values exceed the median of their points', in the median."""
    middles = _middles(np.concatenate(list(points.values())), np.concatenate(list(values.values())), num_points)
    found = {}
    for name, at in points.items():
        away = values[name] - middles[at]
        away = away[np.isfinite(away)]
        if len(away) >= LEAST_POINTS:
            found[name] = float(np.median(away))
    return found


def _middles(points: NDArray[np.int64], values: Floats, num_points: int) -> Floats:
    """Return the median of each point's values, [P]; NaN where fewer than two photographs have one."""
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
    """Return how far photographs lie beside their renderings, in 1/1000 of their width; phases tell (Kuglin 1975)."""
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
    """Return how far one picture lies beside another, in pixels."""
    height, width = one.shape
    window = torch.hann_window(height).to(one)[:, None] * torch.hann_window(width).to(one)
    first, second = (torch.fft.rfft2((picture - picture.mean()) * window) for picture in (one, other))
    cross = first * second.conj()
    peaks = torch.fft.irfft2(cross / cross.abs().clamp_min(1e-9) ** PHASE, s=(height, width))
    if float(peaks.max() - peaks.mean()) < CLEAR * float(peaks.std()):
        return 0.0
    y, x = divmod(int(peaks.argmax()), width)
    return math.hypot(min(y, height - y), min(x, width - x))
