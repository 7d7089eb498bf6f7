"""Views between the cameras: moved sideways by half the baseline, where nobody has trained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from splatbatch.training.inspection.subject import Floats, Look, Shown, Subject
from splatbatch.training.rendering.view import View
from splatbatch.training.spread import spread

MOST_VIEWS = 10
NEIGHBOURS = 3
"""Cameras whose median distance is the baseline of a camera."""
HOLE = 0.3
"""Opacity below which a pixel at a point of the model is a hole: short runs leave solid ground at half of it."""
SOLID = 0.7
"""Opacity from which on depth and colour of a pixel are the splat's."""
JUMP = 0.02
"""Of the depth, from a pixel to the mean of those around it: a jump."""


@dataclass(frozen=True)
class Between:
    """How a splat looks from between the cameras, in the median over views, against how it looks from them."""

    holes: float
    """Share of the points at which there is a hole."""
    jumps: float
    """Share of the pixels where depth jumps, less the same from the cameras."""
    noise: float
    """Of high frequencies, times those of the same splat from the cameras."""


@dataclass(frozen=True)
class Seen:
    """What one view shows."""

    holes: float
    jumps: float
    noise: float


@torch.inference_mode()
def between(subject: Subject, points: Floats) -> Between | None:
    """Return how a splat looks from between its cameras; None where there are not two of them."""
    looks = subject.training
    if len(looks) < 2:
        return None
    pairs = [_pair(subject, look, baseline_of(subject, look), points) for look in spread(looks, MOST_VIEWS)]
    return Between(
        holes=float(np.mean([moved.holes for _, moved in pairs])),
        jumps=float(np.median([moved.jumps - own.jumps for own, moved in pairs])),
        noise=float(np.median([moved.noise / max(own.noise, 1e-9) for own, moved in pairs])),
    )


def baseline_of(subject: Subject, look: Look) -> float:
    """Return the median distance of a camera to its nearest trained ones; 0 where there is no other."""
    centers = np.array([center_of(other.photo.view) for other in subject.training if other is not look])
    away = np.sort(np.linalg.norm(centers.reshape(-1, 3) - center_of(look.photo.view), axis=1))
    return float(np.median(away[:NEIGHBOURS])) if len(away) else 0.0


def center_of(view: View) -> Floats:
    """Return where a camera stands, [3]."""
    matrix = view.viewmat.double().cpu().numpy()
    center: Floats = -matrix[:3, :3].T @ matrix[:3, 3]
    return center


def _pair(subject: Subject, look: Look, baseline: float, points: Floats) -> tuple[Seen, Seen]:
    """Return what is seen from a camera, and from beside it, to both sides."""
    own, local = look.small.view, points[look.points[look.is_inside]]
    beside_it = [moved(own, step) for step in (-baseline / 2, baseline / 2)]
    sides = [_seen(subject.shown_from(view), view, local) for view in beside_it]
    beside = Seen(*(float(np.mean([getattr(side, name) for side in sides])) for name in ("holes", "jumps", "noise")))
    return _seen(subject.shown(look), own, local), beside


def moved(view: View, step: float) -> View:
    """Return a camera that stands so much further to its right and looks the same way."""
    viewmat = view.viewmat.clone()
    viewmat[0, 3] -= step
    return View(viewmat, view.K, view.width, view.height)


def _seen(shown: Shown, view: View, points: Floats) -> Seen:
    at = _alphas_at(shown.alphas, view, points)
    is_solid = shown.alphas > SOLID
    rough = (shown.depths / smoothed(shown.depths) - 1).abs()[is_solid] > JUMP
    grey = shown.colors.clamp(0, 1).mean(dim=-1)
    fine = (grey - smoothed(grey)).abs()[is_solid]
    return Seen(
        holes=float((at < HOLE).float().mean()) if len(at) else 0.0,
        jumps=float(rough.float().mean()) if len(rough) else 0.0,
        noise=float(fine.mean()) if len(fine) else 0.0,
    )


def smoothed(picture: Tensor) -> Tensor:
    """Return the mean of each pixel of a picture [H, W] and those around it."""
    smooth: Tensor = avg_pool2d(picture[None, None], 3, stride=1, padding=1, count_include_pad=False)[0, 0]
    return smooth


def _alphas_at(alphas: Tensor, view: View, points: Floats) -> Tensor:
    """Return the opacity where points [n, 3] fall into the picture."""
    there = torch.from_numpy(points).to(alphas)
    pixels, depths = view.project(there)
    x, y = pixels[(depths > 0) & view.shows(pixels)].long().unbind(1)
    return alphas[y, x]
