"""Detection of harmful photographs: blurred, exposed unlike the others, or with a wrong pose in the model."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import median

import numpy as np
import torch
from torch import Tensor

from splatbatch.training.inspection.subject import Floats, InspectedSplat, SmallPhotograph, medians_of
from splatbatch.training.photos.dataset import evenly_spaced

DETAIL_SIGMA_PX = 1.0
WINDOW_PX = 15  # side of the window around a point in which detail and brightness are measured
LEAST_POINTS = 20  # that a photograph must share with others to be judged
DARK = 4.0  # mean brightness, of 255, below which a window is not used
SMALLEST_ERROR = 0.3  # reprojection error, in 1/1000 of the width, that keypoints distinguish from none
MOST_RENDERED = 100
PHASE = 0.75  # exponent of the amplitudes that divide the cross power spectrum; 1 would weigh noise like the picture
OPAQUE, LEAST_SHOWN = 0.5, 0.5
"""Opacity above which a rendered pixel is not of another patch, and least share of such pixels to measure a shift."""
CLEAR = 8.0  # standard deviations by which the peak of a shift must exceed the mean correlation; else the shift is 0
BLURRED_OCTAVES, EXPOSED_STOPS, ERROR_TIMES, SHIFTED = 0.4, 0.4, 3.0, 8.0
"""Limits of missing octaves of detail, stops, reprojection error over the usual, and shift in 1/1000 of the width."""
BLURRED_SPREADS = 4.5 * 1.4826  # as a normal distribution has it: 4.5 standard deviations
"""Least number of median absolute deviations by which blurred photographs lack detail: sound ones have 6.4 at most."""
MOST_AT_FAULT = 1 / 3  # photographs that are named for a shift: where more are shifted, the splat is wrong, not they


def photographs(subject: InspectedSplat) -> tuple[dict[str, tuple[str, ...]], dict[str, dict[str, float]]]:
    """Compare every photograph with its rendering, and with others that see the same points.

    Returns:
        Names of photographs at fault, by figure, the worst of each score first: "blurred", "exposure", "misregistered".
        Scores by photograph, by the score's name: "blur", octaves (log2) of detail that it lacks; "exposure", stops by
        which it is brighter than others, less its own gain; "registration", its median reprojection error over the
        usual; "shift", from `shifts`. Of the first three, those with fewer than `LEAST_POINTS` (20) points are missing.
    """
    looks = subject.looks
    detail, brightness = zip(*map(_windows, looks), strict=True)
    blur = {name: -value for name, value in _against_others(looks, detail).items()}
    exposure = _against_others(looks, brightness)
    medians = {look.photo.name: float(np.median(look.errors)) for look in looks if len(look.errors) >= LEAST_POINTS}
    usual = max(median(medians.values()), SMALLEST_ERROR) if medians else 1.0
    errors = {name: error / usual for name, error in medians.items()}
    moved = shifts(subject)
    aside = over(moved, SHIFTED)
    aside = aside if len(aside) <= MOST_AT_FAULT * len(moved) else ()
    named = {
        "blurred": over(blur, blur_limit(blur.values())),
        "exposure": over({name: abs(stops) for name, stops in exposure.items()}, EXPOSED_STOPS),
        "misregistered": tuple(dict.fromkeys((*over(errors, ERROR_TIMES), *aside))),
    }
    return named, {"blur": blur, "exposure": exposure, "registration": errors, "shift": moved}


def over(values: Mapping[str, float], limit: float) -> tuple[str, ...]:
    """Return the names of the photographs whose value exceeds a limit, the largest value first; NaN exceeds none."""
    return tuple(sorted((name for name in values if values[name] > limit), key=lambda name: (-values[name], name)))


def blur_limit(values: Collection[float]) -> float:
    """Return how many missing octaves are a blur, at least `BLURRED_OCTAVES`; `values` are those of all photographs."""
    if not values:
        return BLURRED_OCTAVES
    middle = median(values)
    return max(BLURRED_OCTAVES, BLURRED_SPREADS * median(abs(one - middle) for one in values))


def _windows(look: SmallPhotograph) -> Floats:
    """Return log2 of detail and of brightness around each point in the picture, [2, n]; NaN where it is dark."""
    grey = look.photo.target().float().mean(dim=-1)
    if look.photo.correction is not None:
        grey = grey / look.photo.correction[:3].mean()
    fine = grey - smooth(grey, gaussian(DETAIL_SIGMA_PX, grey.device))
    window = torch.full((WINDOW_PX,), 1 / WINDOW_PX, device=grey.device)
    (height, width), view = grey.shape, look.small.view
    x, y = np.floor(look.pixels * (width / view.width, height / view.height)).astype(np.int64).T
    detail, mean = smooth(fine.square(), window).sqrt(), smooth(grey, window)
    at, around = (values.cpu().numpy()[y, x].astype(np.float64) for values in (mean, detail))
    logs = np.log2(np.maximum((around / np.maximum(at, DARK), at), 1e-3))
    logs[:, at < DARK] = np.nan
    return logs


def gaussian(sigma: float, device: torch.device) -> Tensor:
    """Return the weights of a Gaussian filter, [2 round(4 sigma) + 1], which sum to 1; `sigma` is in px."""
    away = torch.arange(-round(4 * sigma), round(4 * sigma) + 1, device=device)
    weights = (-0.5 * (away / sigma).square()).exp()
    return weights / weights.sum()


def smooth(picture: Tensor, weights: Tensor) -> Tensor:
    """Return a picture [H, W], mirrored beyond its edges, filtered along both axes by an odd number of `weights`."""
    reach = len(weights) // 2
    for axis in (0, 1):
        rows, num = picture.movedim(axis, -1), picture.shape[axis]
        at = torch.arange(-reach, num + reach, device=rows.device) % (2 * num)
        mirrored, total = rows[..., torch.where(at < num, at, 2 * num - 1 - at)], torch.zeros_like(rows)
        for place, weight in enumerate(weights.tolist()):
            total += weight * mirrored[..., place : place + num]
        picture = total.movedim(-1, axis)
    return picture


def _against_others(looks: Sequence[SmallPhotograph], values: Sequence[Floats]) -> dict[str, float]:
    """Return the median, over a photograph's points, of the excess of its value over the median of all photographs."""
    middles, found = medians_of(np.concatenate([look.points for look in looks]), np.concatenate(values)), {}
    for look, own in zip(looks, values, strict=True):
        away = own - middles[look.points]
        away = away[np.isfinite(away)]
        if len(away) >= LEAST_POINTS:
            found[look.photo.name] = float(np.median(away))
    return found


@torch.inference_mode()
def shifts(subject: InspectedSplat) -> dict[str, float]:
    """Return the shift of photographs against their renderings, by name, in 1/1000 of the width; 0 where none is clear.

    At most `MOST_RENDERED` (100) are compared, evenly taken; one with too few valid and opaque pixels is left out.
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
    """Return the shift of two pictures [H, W] in pixels, by phase correlation (Kuglin 1975); 0 where none is clear."""
    height, width = one.shape
    window = torch.hann_window(height).to(one)[:, None] * torch.hann_window(width).to(one)
    first, second = (torch.fft.rfft2((picture - picture.mean()) * window) for picture in (one, other))
    cross = first * second.conj()
    peaks = torch.fft.irfft2(cross / cross.abs().clamp_min(1e-9) ** PHASE, s=(height, width))
    if float(peaks.max() - peaks.mean()) < CLEAR * float(peaks.std()):
        return 0.0
    y, x = divmod(int(peaks.argmax()), width)
    return math.hypot(min(y, height - y), min(x, width - x))
