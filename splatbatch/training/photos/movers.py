"""What only one photograph shows: people, cars, shadows. Its pixels teach nothing of the scene, and are left out.

Between steps the training photographs are compared with their renderings, at a small size. Where a photograph differs
much more than others do at the same place in the scene, something stood there when it was taken. Details that are not
learned yet, and poses that are off, are wrong in all photographs of a place: so nothing is left out of clean scenes.

The loss without outliers is RobustNeRF's (Sabour 2023, arXiv 2302.00833); which pixels are outliers is told by other
photographs here, not by a share that is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from scipy.ndimage import label
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, max_pool2d

from splatbatch.training.border.surroundings import NONE, Surroundings
from splatbatch.training.gaussians import Parameters
from splatbatch.training.photos.coarse import shrink
from splatbatch.training.photos.views import Photo
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, View
from splatbatch.training.scene.depth import depth_of, places_of

LOOKS = (0.15, 0.3, 0.45, 0.6)
"""Shares of the run after which photographs are compared. The first is early: what is learned first is what most
photographs show; later a splat may have something before a single camera that shows its mover."""
MOST_PIXELS = 40_000
"""Of a picture that is compared."""
CELL_PX = 4
"""Of that picture, along both sides: a difference is the mean over a cell, so that fine detail is none."""
LEAST = 0.1
"""Difference of a channel, 0 to 1, from which on something may have stood there."""
TIMES = 3.0
"""The difference that others have at the same place."""
OTHERS, LEAST_OTHERS = 8, 2
"""Photographs from nearby that are asked, and of which so many must show the place."""
LEAST_CELLS = 4
"""In one piece: fewer are an edge or a glint."""
MOST = 0.4
"""Share of a photograph: where more of it differs, it is no mover."""


@dataclass(frozen=True)
class Compared:
    """How far a photograph is from its rendering, in cells; that of the worst channel, 0 to 1."""

    view: View  # of the small picture
    off: Tensor  # [h, w]; NaN where pixels do not count

    @property
    def center(self) -> Tensor:
        """Return where the camera stood, [3]."""
        return -self.view.viewmat[:3, 3] @ self.view.viewmat[:3, :3]


class Movers:
    """Which pixels of the training photographs are left out, and the looks that find them."""

    def __init__(
        self, photos: Sequence[Photo], options: RasterOptions, max_steps: int, surroundings: Surroundings = NONE
    ) -> None:
        self._photos, self._options, self._surroundings = photos, options, surroundings
        self._steps = {round(share * max_steps) for share in LOOKS}
        self._cells: dict[str, Tensor] = {}  # by photograph, [h, w] bool, true where something stood

    def step_begins(self, step: int, gaussians: Parameters) -> None:
        """Compare photographs with what is learned where that is due before this step."""
        if step in self._steps:
            self.look(gaussians)

    @torch.no_grad()
    def look(self, gaussians: Parameters) -> None:
        """Compare all photographs with their renderings: what is found now is left out, and nothing else."""
        drawn = self._surroundings.drawn_with(gaussians)
        compared = [self._compared(drawn, photo) for photo in self._photos]
        centers = torch.stack([one.center for one in compared])
        self._cells = {}
        for photo, one in zip(self._photos, compared, strict=True):
            is_off = large(one.off > LEAST)
            if not is_off.any():
                continue
            near = (centers - one.center).norm(dim=1).argsort(stable=True)[1 : 1 + OTHERS].tolist()
            depths, _ = depth_of(drawn, one.view, self._options)
            cells = grown(large(is_off & alone(one, depths, [compared[other] for other in near])))
            if cells.any() and cells.float().mean() <= MOST:
                self._cells[photo.name] = cells

    def without(self, photo: Photo) -> Photo:
        """Return a photograph, of any size, without the pixels that are left out."""
        cells = self._cells.get(photo.name)
        if cells is None:
            return photo
        is_scene = interpolate((~cells)[None, None].float(), (photo.view.height, photo.view.width))[0, 0] > 0
        return replace(photo, mask=is_scene if photo.mask is None else photo.mask & is_scene)

    def warnings(self) -> tuple[str, ...]:
        """Say what is left out, in one sentence, if anything is."""
        if not self._cells:
            return ()
        shares = {name: float(cells.float().mean()) for name, cells in self._cells.items()}
        most = max(shares, key=lambda name: shares[name])
        who = f"{len(shares)} of {len(self._photos)} photographs show something that others do not"
        return (f"movers: {who}, as {most} ({100 * shares[most]:.1f} % of it): those pixels were left out",)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return dict(self._cells)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Leave out what a checkpoint says."""
        self._cells = dict(state)

    def _compared(self, drawn: Mapping[str, Tensor], photo: Photo) -> Compared:
        factor = math.ceil(math.sqrt(photo.view.width * photo.view.height / MOST_PIXELS))
        small = shrink(photo, factor) if factor > 1 else photo
        colors, target = small.to_compare(rasterize(drawn, small.view, self._options).colors)
        off = (colors - (target if small.tone is not None else target / 255)).movedim(-1, 0)
        valid = small.valid()
        off = off if valid is None else torch.where(valid, off, torch.nan)
        return Compared(small.view, avg_pool2d(off, CELL_PX).abs().amax(dim=0))


def alone(one: Compared, depths: Tensor, others: Sequence[Compared]) -> Tensor:
    """Return in which cells a photograph of such depths, [H, W], is further off than others are there, [h, w] bool."""
    middles = slice(CELL_PX // 2, None, CELL_PX)
    height, width = one.off.shape
    places = places_of(depths, one.view)[middles, middles][:height, :width].float()  # [h, w, 3]
    seen = [_off_at(other, places) for other in others]
    if len(seen) < LEAST_OTHERS:
        return torch.zeros_like(one.off, dtype=torch.bool)
    off = torch.stack(seen)  # [others, h, w]
    is_seen = (~off.isnan()).sum(dim=0) >= LEAST_OTHERS
    return is_seen & (one.off > TIMES * off.nanmedian(dim=0).values)


def _off_at(other: Compared, places: Tensor) -> Tensor:
    """Return how far another photograph is off at places [h, w, 3]; NaN where it does not show them."""
    local = places @ other.view.viewmat[:3, :3].T + other.view.viewmat[:3, 3]
    pixels = local @ other.view.K.T
    at = (pixels[..., :2] / pixels[..., 2:].clamp_min(1e-9) / CELL_PX).floor().long()
    height, width = other.off.shape
    column, row = at.unbind(dim=-1)
    is_inside = (local[..., 2] > 0) & (column >= 0) & (row >= 0) & (column < width) & (row < height)
    return torch.where(is_inside, other.off[row.clamp(0, height - 1), column.clamp(0, width - 1)], torch.nan)


def large(cells: Tensor) -> Tensor:
    """Return the cells, [h, w] bool, of pieces that are no specks."""
    numbers, num = label(cells.cpu().numpy())
    pieces = torch.from_numpy(numbers).to(cells.device).long()
    sizes = torch.bincount(pieces.ravel(), minlength=num + 1)
    return cells & (sizes[pieces] >= LEAST_CELLS)


def grown(cells: Tensor) -> Tensor:
    """Return cells with those around them: where a mover ends, a cell is half scene."""
    return max_pool2d(cells[None].float(), 3, stride=1, padding=1)[0] > 0
