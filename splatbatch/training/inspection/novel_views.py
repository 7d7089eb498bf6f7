"""Novel views between the cameras: training views moved sideways by half the baseline."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from splatbatch.training.inspection.subject import Floats, InspectedSplat, SmallPhotograph
from splatbatch.training.photos.dataset import evenly_spaced
from splatbatch.training.rendering.view import RenderCamera

MOST_VIEWS = 10
NEIGHBOURS = 3
"""Number of nearest cameras whose median distance is the baseline of a camera."""
HOLE = 0.3
"""Opacity below which a pixel at a point of the model is a hole; after short runs solid ground has about 0.5."""


@torch.inference_mode()
def holes(subject: InspectedSplat, points: Floats) -> float | None:
    """Return the share of a view's points at which the splat has a hole, from between cameras, in the mean over views.

    None with fewer than two training views.
    """
    looks = subject.training
    if len(looks) < 2:
        return None
    shares = [_beside(subject, look, baseline_of(subject, look), points) for look in evenly_spaced(looks, MOST_VIEWS)]
    return float(np.mean(shares))


def baseline_of(subject: InspectedSplat, look: SmallPhotograph) -> float:
    """Return the median distance of a camera to the `NEIGHBOURS` nearest training cameras; 0 without others."""
    centers = np.array([center_of(other.photo.view) for other in subject.training if other is not look])
    away = np.sort(np.linalg.norm(centers.reshape(-1, 3) - center_of(look.photo.view), axis=1))
    return float(np.median(away[:NEIGHBOURS])) if len(away) else 0.0


def center_of(view: RenderCamera) -> Floats:
    """Return the position of a camera, [3]."""
    matrix = view.viewmat.double().cpu().numpy()
    center: Floats = -matrix[:3, :3].T @ matrix[:3, 3]
    return center


def _beside(subject: InspectedSplat, look: SmallPhotograph, baseline: float, points: Floats) -> float:
    """Return the share of a photograph's points that are holes from half a baseline left and right of its camera."""
    own, local = look.small.view, points[look.points[look.is_inside]]
    views = [moved(own, step) for step in (-baseline / 2, baseline / 2)]
    seen = [_alphas_at(subject.shown_from(view).alphas, view, local) for view in views]
    return float(np.mean([float((at < HOLE).float().mean()) if len(at) else 0.0 for at in seen]))


def moved(view: RenderCamera, step: float) -> RenderCamera:
    """Return a camera moved to its right by `step`, with the same orientation."""
    viewmat = view.viewmat.clone()
    viewmat[0, 3] -= step
    return RenderCamera(viewmat, view.K, view.width, view.height)


def _alphas_at(alphas: Tensor, view: RenderCamera, points: Floats) -> Tensor:
    """Return the opacity at the pixels of those points [n, 3] that are in the picture."""
    there = torch.from_numpy(points).to(alphas)
    pixels, depths = view.project(there)
    x, y = pixels[(depths > 0) & view.shows(pixels)].long().unbind(1)
    return alphas[y, x]
