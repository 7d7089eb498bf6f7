"""What only one photograph shows: people, cars, shadows. Its pixels teach nothing of the scene, and are left out.

Between steps the training photographs are compared with their renderings, at a small size. Where a photograph differs
much more than others do at the same place in the scene, something stood there when it was taken. Details that are not
learned yet, and poses that are off, are wrong in more photographs of a place, or another time elsewhere: so it must be
found twice in a row, against nearly all others. Around what is sure like this, less is enough.

The loss without outliers is RobustNeRF's (Sabour 2023, arXiv 2302.00833); which pixels are outliers is told by other
photographs here, not by a share that is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from scipy.ndimage import label
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, max_pool2d

from splatbatch.training.border import NONE, PatchBorder
from splatbatch.training.gaussians import Parameters
from splatbatch.training.photos.posed_image import PosedImage, shrink
from splatbatch.training.rendering.rasterize import depth_of, places_of, rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera

LOOKS = (0.08, 0.2, 0.5, 0.8)
"""Shares of the run after which photographs are compared; the first only notes. One more, at 0.04, gave twice as much
back of what movers cost, and cost a room in which nothing moves 0.2 dB (docs/benchmarks.md)."""
MOST_PIXELS = 40_000
"""Of a picture that is compared."""
CELL_PX = 4
"""Of that picture, along both sides: a difference is the mean over a cell, so that fine detail is none."""
LEAST = 0.1
"""Difference of a channel, 0 to 1, from which on something may have stood there."""
TIMES = 2.0
"""The difference that others have at the same place: the largest of a cell and those around it, since the depth of what
is half learned is off by a cell."""
OTHERS = 8
"""Photographs from nearby that are asked."""


@dataclass(frozen=True)
class TransientEvidence:
    """What a cell is held against: so many others must show the place, and such a share of them be less off."""

    least_others: int
    share: float


WEAK, STRONG = TransientEvidence(2, 0.5), TransientEvidence(4, 0.75)
LEAST_CELLS = 4
"""In one piece, and sure in it: fewer are an edge or a glint."""
MOST = 0.4
"""Share of a photograph: where more of it differs, it is no mover."""


@dataclass(frozen=True)
class ResidualMap:
    """How far a photograph is from its rendering, in cells; that of the worst channel, 0 to 1."""

    view: RenderCamera  # of the small picture
    residual: Tensor  # [h, w]; NaN where pixels do not count
    num_entries: Tensor | None = None
    """Of its tile lists, []."""

    @property
    def center(self) -> Tensor:
        """Return where the camera stood, [3]."""
        return -self.view.viewmat[:3, 3] @ self.view.viewmat[:3, :3]


class TransientMask:
    """Which pixels of the training photographs are left out, and the looks that find them."""

    def __init__(
        self, photos: Sequence[PosedImage], options: RasterOptions, max_steps: int, border: PatchBorder = NONE
    ) -> None:
        self._photos, self._options, self._border = photos, options, border
        self._steps = {round(share * max_steps) for share in LOOKS}
        self._cells: dict[str, Tensor] = {}  # by photograph, [h, w] bool, true where something stood
        self._sure: dict[str, Tensor] = {}  # likewise, what was sure at the last look; on the CPU

    def step_begins(self, step: int, gaussians: Parameters, capacity: int | None = None) -> None:
        """Compare photographs with what is learned where that is due before this step; see `look`."""
        if step in self._steps:
            self.look(gaussians, capacity)

    @torch.no_grad()
    def look(self, gaussians: Parameters, capacity: int | None = None) -> None:
        """Compare all photographs with their renderings: what is found now is left out, and nothing else.

        Pictures are drawn one after the other and fetched at once; cells are few, and looked at on the CPU.

        Args:
            gaussians: what is learned.
            capacity: of tile lists, so that nothing waits for a GPU in between; None: whatever it takes.
        """
        drawn = self._border.with_backdrop(gaussians)
        compared = [self._compared(drawn, photo, capacity) for photo in self._photos]
        here = _on_cpu(compared)
        if capacity is not None and any(int(one.num_entries or 0) > capacity for one in here):
            return self.look(gaussians)
        cells_of_all = ResidualGrid.of(here)
        off = [large(one.residual > LEAST) for one in here]
        suspects = [index for index, is_off in enumerate(off) if is_off.any()]
        places = _fetched([self._places(drawn, compared[index].view, capacity) for index in suspects])
        before, self._sure, self._cells = self._sure, {}, {}
        for index, place in zip(suspects, places, strict=True):
            name, seen = self._photos[index].name, cells_of_all.seen_from(index, place)
            maybe, sure = (large(off[index] & alone(here[index].residual, seen, one)) for one in (WEAK, STRONG))
            self._sure[name] = sure
            cells = grown(pieces_of(maybe, sure & before.get(name, torch.zeros_like(sure))))
            if cells.any() and cells.float().mean() <= MOST:
                self._cells[name] = cells.to(compared[index].residual.device)
        return None

    def without(self, photo: PosedImage) -> PosedImage:
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
        return {"cells": dict(self._cells), "sure": dict(self._sure)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Leave out what a checkpoint says."""
        self._cells = dict(state["cells"])
        self._sure = {name: sure.cpu() for name, sure in state["sure"].items()}

    def _compared(self, drawn: Mapping[str, Tensor], photo: PosedImage, capacity: int | None) -> ResidualMap:
        factor = math.ceil(math.sqrt(photo.view.width * photo.view.height / MOST_PIXELS))
        small = shrink(photo, factor) if factor > 1 else photo
        rendering = rasterize(drawn, small.view, self._options, capacity)
        colors, target = small.to_compare(rendering.colors)
        off = (colors - (target if small.correction is not None else target / 255)).movedim(-1, 0)
        valid = small.valid()
        off = off if valid is None else torch.where(valid, off, torch.nan)
        return ResidualMap(small.view, avg_pool2d(off, CELL_PX).abs().amax(dim=0), rendering.info.get("num_entries"))

    def _places(self, drawn: Mapping[str, Tensor], view: RenderCamera, capacity: int | None) -> Tensor:
        depths, _ = depth_of(drawn, view, self._options, capacity)
        return middles(depths, view)


def middles(depths: Tensor, view: RenderCamera) -> Tensor:
    """Return where the middles of the whole cells of a view lie whose pixels have such depths, [h, w, 3]."""
    each = slice(CELL_PX // 2, None, CELL_PX)
    height, width = view.height // CELL_PX, view.width // CELL_PX
    return places_of(depths, view)[each, each][:height, :width].float()


def _on_cpu(compared: Sequence[ResidualMap]) -> list[ResidualMap]:
    """Return what was compared, waited for once."""
    views = _fetched([torch.cat((one.view.viewmat.flatten(), one.view.K.flatten())) for one in compared])
    offs = _fetched([one.residual for one in compared])
    counted = _fetched([one.num_entries for one in compared if one.num_entries is not None])
    nums: Sequence[Tensor | None] = counted or [None] * len(compared)
    return [
        ResidualMap(RenderCamera(view[:16].view(4, 4), view[16:].view(3, 3), one.view.width, one.view.height), off, num)
        for one, view, off, num in zip(compared, views, offs, nums, strict=True)
    ]


def _fetched(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors in host memory, fetched at once."""
    if not tensors:
        return []
    parts = torch.cat([one.reshape(-1) for one in tensors]).cpu()
    ends = list(accumulate(one.numel() for one in tensors))
    return [parts[end - one.numel() : end].view(one.shape) for end, one in zip(ends, tensors, strict=True)]


@dataclass(frozen=True)
class ResidualGrid:
    """What was compared of all photographs, side by side."""

    residual: Tensor  # [photographs, h, w] of the largest, NaN beyond their own
    viewmats: Tensor  # [photographs, 4, 4]
    Ks: Tensor  # [photographs, 3, 3]
    near: Tensor  # [photographs, OTHERS at most], the nearest first

    @classmethod
    def of(cls, compared: Sequence[ResidualMap]) -> ResidualGrid:
        """Lay them side by side."""
        height, width = (max(one.residual.shape[axis] for one in compared) for axis in (0, 1))
        off = torch.full((len(compared), height, width), torch.nan)
        for index, one in enumerate(compared):
            off[index, : one.residual.shape[0], : one.residual.shape[1]] = one.residual
        off = widened(off)
        centers = torch.stack([one.center for one in compared])
        near = torch.stack([(centers - center).norm(dim=1).argsort(stable=True)[1 : 1 + OTHERS] for center in centers])
        viewmats, Ks = (torch.stack([getattr(one.view, name) for one in compared]) for name in ("viewmat", "K"))
        return cls(off, viewmats, Ks, near)

    def seen_from(self, index: int, places: Tensor) -> Tensor:
        """Return how far photographs near one are off at places [h, w, 3]; NaN where they do not show them."""
        others = self.near[index]
        rotations, shifts = self.viewmats[others, :3, :3], self.viewmats[others, :3, 3]
        local = places @ rotations.transpose(1, 2)[:, None] + shifts[:, None, None]  # [others, h, w, 3]
        pixels = local @ self.Ks[others].transpose(1, 2)[:, None]
        column, row = (pixels[..., :2] / pixels[..., 2:].clamp_min(1e-9) / CELL_PX).floor().long().unbind(dim=-1)
        height, width = self.residual.shape[1:]
        is_inside = (local[..., 2] > 0) & (column >= 0) & (row >= 0) & (column < width) & (row < height)
        found = self.residual[others[:, None, None], row.clamp(0, height - 1), column.clamp(0, width - 1)]
        return torch.where(is_inside, found, torch.nan)


def widened(off: Tensor) -> Tensor:
    """Return the largest of each cell and those around it, [photographs, h, w]; NaN where a cell does not count."""
    return torch.where(off.isnan(), torch.nan, max_pool2d(off.nan_to_num(0.0)[None], 3, stride=1, padding=1)[0])


def alone(off: Tensor, seen: Tensor, evidence: TransientEvidence) -> Tensor:
    """Return in which cells a photograph is further off than others are at the same places, [h, w] bool.

    Args:
        off: [h, w], as `ResidualMap` has it.
        seen: [others, h, w], as `ResidualGrid.seen_from` has it.
        evidence: how many others, and how many of them.
    """
    if len(seen) < evidence.least_others:
        return torch.zeros_like(off, dtype=torch.bool)
    is_seen = (~seen.isnan()).sum(dim=0) >= evidence.least_others
    return is_seen & (off > TIMES * seen.nanquantile(evidence.share, dim=0))


def large(cells: Tensor) -> Tensor:
    """Return the cells, [h, w] bool, of pieces that are no specks."""
    return pieces_of(cells, cells)


def pieces_of(cells: Tensor, sure: Tensor) -> Tensor:
    """Return the cells, [h, w] bool, of pieces of which enough cells are sure, [h, w] bool."""
    numbers, num = label(cells.cpu().numpy())
    pieces = torch.from_numpy(numbers).to(cells.device).long()
    counts = torch.bincount(pieces[sure & cells], minlength=num + 1)
    return cells & (counts[pieces] >= LEAST_CELLS)


def grown(cells: Tensor) -> Tensor:
    """Return cells with those around them: where a mover ends, a cell is half scene."""
    return max_pool2d(cells[None].float(), 3, stride=1, padding=1)[0] > 0
