"""The Gaussians of a splat file that a camera sees: their blocks are loaded, the latest used are kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import Parameter

from splatbatch.splats.blocks import SIGMAS, Blocks
from splatbatch.training.frame import LocalFrame
from splatbatch.training.gaussians import Parameters
from splatbatch.training.rendering.view import RenderCamera

FAINTEST_LOGIT = -20.0

WIDER = 1.4
"""Than the picture: near its edge a Gaussian is drawn larger than it is (EWA, Zwicker 2001), up to 1.3 of its half."""
BESIDE_PX = 4.0


def slopes(view: RenderCamera) -> Tensor:
    """Return the tangents of the picture's edges with a margin, left, right, top, bottom, as positive numbers, [4]."""
    fx, fy, cx, cy = view.K[0, 0], view.K[1, 1], view.K[0, 2], view.K[1, 2]
    edges = torch.stack([cx, view.width - cx, cy, view.height - cy]) + BESIDE_PX
    return WIDER * edges / torch.stack([fx, fx, fy, fy])


def may_be_seen(places: Tensor, reach: Tensor, view: RenderCamera) -> Tensor:
    """Return which balls around places [N, 3] of a radius [N] may be in the picture, [N]."""
    local = places @ view.viewmat[:3, :3].T + view.viewmat[:3, 3]
    left, right, top, bottom = slopes(view).unbind()
    seen = local[:, 2] > -reach
    for axis, (before, behind) in enumerate(((left, right), (top, bottom))):
        across, depth = local[:, axis], local[:, 2]
        seen &= across >= -before * depth - reach * torch.sqrt(1 + before.square())
        seen &= across <= behind * depth + reach * torch.sqrt(1 + behind.square())
    return seen


def boxes_met(lower: npt.NDArray[np.float32], upper: npt.NDArray[np.float32], view: RenderCamera) -> list[int]:
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


@dataclass
class BlockCache:
    """Blocks of a splat file on the device that renders, as rows of their properties; the latest used stay there."""

    blocks: Blocks
    device: torch.device
    most: int
    """Gaussians that may lie there at once, besides those that are drawn; one block always does."""
    _held: dict[int, Tensor] = field(default_factory=dict)
    num_loaded: int = 0
    """Gaussians read so far."""

    def seen_from(self, frame: LocalFrame, view: RenderCamera) -> Parameters:
        """Return the Gaussians that a camera may show, in the frame that it stands in.

        Raises:
            ValueError: the file has become shorter.
        """
        there = _in_model(frame, view)
        met = boxes_met(self.blocks.lower, self.blocks.upper, there)
        kept = [rows[_seen_rows(rows, there, self.blocks.columns)] for rows in self._tables(met)]
        rows = torch.cat(kept) if kept else self._nothing()
        return parameters_of(rows if len(rows) else self._nothing(), self.blocks.columns, frame)

    def _nothing(self) -> Tensor:
        """Return a Gaussian too faint to be drawn: not every rasteriser takes none at all."""
        row = torch.zeros(1, len(self.blocks.columns), device=self.device)
        row[:, self.blocks.columns.index("opacity")] = FAINTEST_LOGIT
        row[:, self.blocks.columns.index("rot_0")] = 1.0
        return row

    def _tables(self, wanted: Sequence[int]) -> Iterator[Tensor]:
        """Yield blocks, as many at a time as there is room for; those that are there already come first."""
        here = [one for one in wanted if one in self._held]
        for one in here:
            self._held[one] = self._held.pop(one)  # the latest used stands last
            yield self._held[one]
        for batch in self._batches([one for one in wanted if one not in self._held]):
            self._make_room(sum(int(self.blocks.counts[one]) for one in batch))
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

    def _make_room(self, num: int) -> None:
        while self._held and sum(len(rows) for rows in self._held.values()) + num > self.most:
            del self._held[next(iter(self._held))]


def _in_model(frame: LocalFrame, view: RenderCamera) -> RenderCamera:
    """Return a camera of a frame as one in the frame of the splat."""
    viewmat = view.viewmat.double().clone()
    origin = torch.from_numpy(frame.origin).to(viewmat)
    viewmat[:3, 3] = frame.scale * viewmat[:3, 3] - viewmat[:3, :3] @ origin
    return RenderCamera(viewmat.float(), view.K, view.width, view.height)


def _seen_rows(rows: Tensor, view: RenderCamera, columns: Sequence[str]) -> Tensor:
    scale = columns.index("scale_0")
    reach = SIGMAS * rows[:, scale : scale + 3].amax(dim=1).exp()
    return may_be_seen(rows[:, :3], reach, view)


def parameters_of(rows: Tensor, columns: Sequence[str], frame: LocalFrame) -> Parameters:
    """Return rows of a splat file as what is rendered, in a frame."""
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
