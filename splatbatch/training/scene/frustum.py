"""What a camera may see: boxes and Gaussians that are not surely outside of its picture."""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from splatbatch.training.rendering.view import View

WIDER = 1.4
"""Than the picture: near its edge a Gaussian is drawn larger than it is (EWA, Zwicker 2001), up to 1.3 of its half."""
BESIDE_PX = 4.0


def slopes(view: View) -> Tensor:
    """Return the tangents of the picture's edges with a margin, left, right, top, bottom, as positive numbers, [4]."""
    fx, fy, cx, cy = view.K[0, 0], view.K[1, 1], view.K[0, 2], view.K[1, 2]
    edges = torch.stack([cx, view.width - cx, cy, view.height - cy]) + BESIDE_PX
    return WIDER * edges / torch.stack([fx, fx, fy, fy])


def may_be_seen(places: Tensor, reach: Tensor, view: View) -> Tensor:
    """Return which balls around places [N, 3] of a radius [N] may be in the picture, [N]."""
    local = places @ view.viewmat[:3, :3].T + view.viewmat[:3, 3]
    left, right, top, bottom = slopes(view).unbind()
    seen = local[:, 2] > -reach
    for axis, (before, behind) in enumerate(((left, right), (top, bottom))):
        across, depth = local[:, axis], local[:, 2]
        seen &= across >= -before * depth - reach * torch.sqrt(1 + before.square())
        seen &= across <= behind * depth + reach * torch.sqrt(1 + behind.square())
    return seen


def boxes_met(lower: npt.NDArray[np.float32], upper: npt.NDArray[np.float32], view: View) -> list[int]:
    """Return which boxes [B, 3] may be in the picture: all but those whose corners lie beyond one of its edges."""
    filled = np.flatnonzero(np.isfinite(lower).all(axis=1))
    lower, upper = lower[filled], upper[filled]
    corners = np.stack([np.where(pick, upper, lower) for pick in product((False, True), repeat=3)], axis=1)  # [B, 8, 3]
    viewmat = view.viewmat.double().cpu().numpy()
    local = corners.astype(np.float64) @ viewmat[:3, :3].T + viewmat[:3, 3]
    left, right, top, bottom = slopes(view).double().cpu().tolist()
    x, y, z = np.moveaxis(local, -1, 0)
    inside = [z > 0, x >= -left * z, x <= right * z, y >= -top * z, y <= bottom * z]
    met = np.all([side.any(axis=1) for side in inside], axis=0)
    return [int(one) for one in filled[met]]
