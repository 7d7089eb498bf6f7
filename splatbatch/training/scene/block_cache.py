"""The Gaussians of a splat file that a camera may see, loaded in blocks of space; the latest used blocks are kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import Parameter

from splatbatch.errors import SceneError
from splatbatch.splats.blocks import SIGMAS, Blocks, index_blocks
from splatbatch.training.frame import LocalFrame
from splatbatch.training.gaussians import Parameters
from splatbatch.training.rendering.view import RenderCamera

FAINTEST_LOGIT = -20.0

WIDER = 1.4
"""Factor on the picture's half width and height in the test of which Gaussians may be visible.

Near the edge of a picture a Gaussian is rendered larger than it is (EWA, Zwicker 2001), up to 1.3 of the half.
"""
BESIDE_PX = 4.0


def open_blocks(splat: Path) -> Blocks:
    """Return the index of a splat file's blocks; the Gaussians are read later, block by block.

    Raises:
        SceneError: the file cannot be read, is no splat, or is truncated.
    """
    try:
        return index_blocks(splat)
    except (OSError, ValueError) as error:
        raise SceneError(f"{splat}: the splat cannot be read ({error})", "Train or merge it again.") from error


def slopes(view: RenderCamera) -> Tensor:
    """Return the tangents of the angles from the camera's axis to the left, right, top and bottom edge, [4].

    The picture is enlarged by `BESIDE_PX` and `WIDER`. Tangents are positive if the principal point is in the picture.
    """
    fx, fy, cx, cy = view.K[0, 0], view.K[1, 1], view.K[0, 2], view.K[1, 2]
    edges = torch.stack([cx, view.width - cx, cy, view.height - cy]) + BESIDE_PX
    return WIDER * edges / torch.stack([fx, fx, fy, fy])


def may_be_seen(places: Tensor, reach: Tensor, view: RenderCamera) -> Tensor:
    """Return a mask [N] of the balls that may be visible: those that meet the frustum of the enlarged picture.

    `places` are the centres [N, 3], `reach` the radii [N], both in units of the frame of `view`. The picture is
    enlarged as in `slopes`.
    """
    local = places @ view.viewmat[:3, :3].T + view.viewmat[:3, 3]
    left, right, top, bottom = slopes(view).unbind()
    seen = local[:, 2] > -reach
    for axis, (before, behind) in enumerate(((left, right), (top, bottom))):
        across, depth = local[:, axis], local[:, 2]
        seen &= across >= -before * depth - reach * torch.sqrt(1 + before.square())
        seen &= across <= behind * depth + reach * torch.sqrt(1 + behind.square())
    return seen


def boxes_met(lower: npt.NDArray[np.float32], upper: npt.NDArray[np.float32], view: RenderCamera) -> list[int]:
    """Return the indices, ascending, of the boxes that may be visible.

    A box is left out if all its corners lie behind the camera, or beyond the same edge of the enlarged picture.

    Args:
        lower: lower corners of B boxes, [B, 3], in the frame of `view`; infinite for an empty box, which is left out.
        upper: upper corners, [B, 3].
        view: the camera.
    """
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


@dataclass
class BlockCache:
    """Cache of a splat file's blocks, as rows on the device that renders; the least recently used are dropped."""

    blocks: Blocks
    device: torch.device
    most: int
    """Largest number of cached Gaussians, besides those being rendered; a larger block is loaded all the same."""
    _held: dict[int, Tensor] = field(default_factory=dict)
    num_loaded: int = 0
    """Number of Gaussians read from the file so far, repeated reading included."""

    def seen_from(self, frame: LocalFrame, view: RenderCamera) -> Parameters:
        """Return a copy of the Gaussians that may be visible from a camera; blocks that are not cached are read.

        Where no Gaussian is visible, an invisible Gaussian is returned, since not every rasteriser accepts none.

        Args:
            frame: local frame, in which the camera is given and the Gaussians are returned.
            view: the camera.

        Raises:
            ValueError: the file has become shorter than its index says.
            OSError: the file cannot be read.
        """
        there = _in_model(frame, view)
        met = boxes_met(self.blocks.lower, self.blocks.upper, there)
        scale = self.blocks.columns.index("scale_0")
        kept = [
            rows[may_be_seen(rows[:, :3], SIGMAS * rows[:, scale : scale + 3].amax(dim=1).exp(), there)]
            for rows in self._tables(met)
        ]
        rows = torch.cat(kept) if kept else self._nothing()
        return parameters_of(rows if len(rows) else self._nothing(), self.blocks.columns, frame)

    def _nothing(self) -> Tensor:
        """Return a row of one Gaussian that is too transparent to be rendered."""
        row = torch.zeros(1, len(self.blocks.columns), device=self.device)
        row[:, self.blocks.columns.index("opacity")] = FAINTEST_LOGIT
        row[:, self.blocks.columns.index("rot_0")] = 1.0
        return row

    def _tables(self, wanted: Sequence[int]) -> Iterator[Tensor]:
        """Yield blocks, cached ones first; others are loaded in batches that fit the cache."""
        here = [one for one in wanted if one in self._held]
        for one in here:
            self._held[one] = self._held.pop(one)  # moved to the end: the first is the least recently used
            yield self._held[one]
        for batch in self._batches([one for one in wanted if one not in self._held]):
            num = sum(int(self.blocks.counts[one]) for one in batch)
            while self._held and sum(len(rows) for rows in self._held.values()) + num > self.most:
                del self._held[next(iter(self._held))]
            for one, rows in self.blocks.rows(batch).items():
                self.num_loaded += len(rows)
                self._held[one] = torch.from_numpy(rows).to(self.device)
                yield self._held[one]

    def _batches(self, wanted: Sequence[int]) -> Iterator[list[int]]:
        batch: list[int] = []
        for one in wanted:
            if batch and sum(int(self.blocks.counts[each]) for each in [*batch, one]) > self.most:
                yield batch
                batch = []
            batch.append(one)
        if batch:
            yield batch


def _in_model(frame: LocalFrame, view: RenderCamera) -> RenderCamera:
    """Return a camera of a local frame in the frame of the splat file."""
    viewmat = view.viewmat.double().clone()
    origin = torch.from_numpy(frame.origin).to(viewmat)
    viewmat[:3, 3] = frame.scale * viewmat[:3, 3] - viewmat[:3, :3] @ origin
    return RenderCamera(viewmat.float(), view.K, view.width, view.height)


def parameters_of(rows: Tensor, columns: Sequence[str], frame: LocalFrame) -> Parameters:
    """Return rows of a splat file as parameters in a local frame, on the rows' device, without gradients.

    Args:
        rows: [N, columns].
        columns: names of the columns, in the order of `names_at`.
        frame: local frame, whose unit and origin are in the coordinates of the file.
    """
    opacity = columns.index("opacity")
    rest = rows[:, 6:opacity].reshape(len(rows), 3, (opacity - 6) // 3)  # [N, 3, K]
    origin = torch.from_numpy(frame.origin).to(rows)
    values = {
        "means": (rows[:, :3] - origin) / frame.scale,
        "scales": rows[:, opacity + 1 : opacity + 4] - math.log(frame.scale),
        "quats": rows[:, opacity + 4 : opacity + 8],
        "opacities": rows[:, opacity],
        "sh0": rows[:, None, 3:6],
        "shN": rest.transpose(1, 2),
    }
    return {name: Parameter(value.contiguous(), requires_grad=False) for name, value in values.items()}
