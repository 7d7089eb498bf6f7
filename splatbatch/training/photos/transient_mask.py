"""Transient masks: pixels of people, cars and shadows, which only one photograph shows, are left out of the loss.

Between steps the training photographs are compared with their renderings at a small size. Where the residual of a
photograph is much larger than that of others at the same place in the scene, its pixels are transient. Details that
are not trained yet, and wrong poses, give residuals in several photographs, or elsewhere at the next comparison. So a
region needs strong evidence, against most of the nearest photographs, in two comparisons in a row. Cells connected to
such a region need only weak evidence.

A loss without outliers is RobustNeRF's (Sabour 2023, arXiv 2302.00833). There a share of outliers is assumed; here
outliers are found by comparison with other photographs.
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
"""Shares of the run after which photographs are compared; the first comparison masks nothing.

A further comparison, at 0.04, regained twice as much of what transient objects cost, but lost 0.2 dB in a room in which
nothing moves (docs/benchmarks.md).
"""
MOST_PIXELS = 40_000
"""Approximate largest number of pixels of the shrunk photograph that is compared with a rendering."""
CELL_PX = 4
"""Side of a cell, in px of the shrunk photograph: differences are averaged over a cell, so that fine detail cancels."""
LEAST = 0.1
"""Residual of a cell, the difference of a colour channel from 0 to 1, above which the cell can be transient."""
TIMES = 2.0
"""Factor by which the residual of a cell must exceed the residuals of other photographs at the same place.

The other photographs' residuals are the largest of a cell and its neighbours, since depth is off by a cell early in
training.
"""
OTHERS = 8
"""Number of other photographs, those with the nearest cameras, with which a photograph is compared."""


@dataclass(frozen=True)
class TransientEvidence:
    """Evidence that makes a cell transient: how many other photographs show its place, and what it must exceed."""

    least_others: int
    """Least number of other photographs that must show the place of the cell."""
    share: float
    """Quantile, 0 to 1, of the other photographs' residuals that, times `TIMES`, the cell's residual must exceed."""


WEAK, STRONG = TransientEvidence(2, 0.5), TransientEvidence(4, 0.75)
"""Evidence that every cell of a masked region needs, and that `LEAST_CELLS` of its cells need twice in a row."""
LEAST_CELLS = 4
"""Fewest cells of a connected region, and fewest of these with strong evidence: smaller regions are edges or glints."""
MOST = 0.4
"""Largest share of a photograph that is masked; a photograph of which more differs is not masked at all."""


@dataclass(frozen=True)
class ResidualMap:
    """Residual of a photograph against its rendering, by cell: the largest difference of a channel, 0 to 1."""

    view: RenderCamera  # of the small picture
    residual: Tensor  # [h, w]; NaN where pixels do not count
    num_entries: Tensor | None = None
    """Number of tile list entries that the rendering needed, []; None where this package's kernels did not render."""

    @property
    def center(self) -> Tensor:
        """Return the position of the camera in the frame of the training, [3]."""
        return -self.view.viewmat[:3, 3] @ self.view.viewmat[:3, :3]


class TransientMask:
    """Transient masks of the training photographs of a run, updated by comparisons at the steps of `LOOKS`.

    The masks are part of a checkpoint.
    """

    def __init__(
        self, photos: Sequence[PosedImage], options: RasterOptions, max_steps: int, border: PatchBorder = NONE
    ) -> None:
        """Begin without masks.

        Args:
            photos: the training photographs of the run.
            options: how Gaussians are rendered.
            max_steps: planned number of steps, of which `LOOKS` are shares.
            border: border of the patch, whose backdrop is rendered too.
        """
        self._photos, self._options, self._border = photos, options, border
        self._steps = {round(share * max_steps) for share in LOOKS}
        self._cells: dict[str, Tensor] = {}  # by photograph, [h, w] bool, true where it is transient
        self._sure: dict[str, Tensor] = {}  # likewise, strong evidence at the last comparison; on the CPU

    def step_begins(self, step: int, gaussians: Parameters, capacity: int | None = None) -> None:
        """Update the masks if a comparison is due before this step, counted from 0; `capacity` is as in `look`.

        Raises:
            TrainerError: there are no kernels for the GPU.
        """
        if step in self._steps:
            self.look(gaussians, capacity)

    @torch.no_grad()
    def look(self, gaussians: Parameters, capacity: int | None = None) -> None:
        """Compare all photographs with their renderings, and replace all masks by what the comparison finds.

        Renderings are queued without waiting and fetched together; cells are few and are compared on the CPU.

        Args:
            gaussians: the patch's own Gaussians; the backdrop is added here.
            capacity: number of entries of the tile lists, so that no rendering waits for the GPU. None: counted for
                each rendering, which waits. If lists need more entries, the comparison is repeated with None.

        Raises:
            TrainerError: there are no kernels for the GPU.
        """
        drawn = self._border.with_backdrop(gaussians)
        compared = [self._compared(drawn, photo, capacity) for photo in self._photos]
        here = _on_cpu(compared)
        if capacity is not None and any(int(one.num_entries or 0) > capacity for one in here):
            return self.look(gaussians)
        cells_of_all = ResidualGrid.of(here)
        off = [large(one.residual > LEAST) for one in here]
        suspects = [index for index, is_off in enumerate(off) if is_off.any()]
        views = [compared[index].view for index in suspects]
        depths = (depth_of(drawn, view, self._options, capacity)[0] for view in views)
        places = _fetched([middles(*seen) for seen in zip(depths, views, strict=True)])
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
        """Return a photograph, shrunk or not, with its transient pixels masked; unchanged if it has none."""
        cells = self._cells.get(photo.name)
        if cells is None:
            return photo
        is_scene = interpolate((~cells)[None, None].float(), (photo.view.height, photo.view.width))[0, 0] > 0
        return replace(photo, mask=is_scene if photo.mask is None else photo.mask & is_scene)

    def warnings(self) -> tuple[str, ...]:
        """Return a warning with the number of masked photographs and the name of the most masked; empty if none is."""
        if not self._cells:
            return ()
        shares = {name: float(cells.float().mean()) for name, cells in self._cells.items()}
        most = max(shares, key=lambda name: shares[name])
        who = f"{len(shares)} of {len(self._photos)} photographs show something that others do not"
        return (f"moving objects: {who}, most of all {most} ({100 * shares[most]:.1f} %): such pixels were left out",)

    def state(self) -> dict[str, Any]:
        """Return the masks and the strong evidence of the last comparison, tensors by photograph, for a checkpoint."""
        return {"cells": dict(self._cells), "sure": dict(self._sure)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore masks and evidence from the result of `state`; masks must be on the device that renders.

        Raises:
            KeyError: the state lacks an entry.
        """
        self._cells = dict(state["cells"])
        self._sure = {name: sure.cpu() for name, sure in state["sure"].items()}

    def _compared(self, drawn: Mapping[str, Tensor], photo: PosedImage, capacity: int | None) -> ResidualMap:
        factor = math.ceil(math.sqrt(photo.view.width * photo.view.height / MOST_PIXELS))
        small = shrink(photo, factor)
        rendering = rasterize(drawn, small.view, self._options, capacity)
        colors, target = small.to_compare(rendering.colors)
        off = (colors - target).movedim(-1, 0)
        valid = small.valid()
        off = off if valid is None else torch.where(valid, off, torch.nan)
        return ResidualMap(small.view, avg_pool2d(off, CELL_PX).abs().amax(dim=0), rendering.info.get("num_entries"))


def middles(depths: Tensor, view: RenderCamera) -> Tensor:
    """Return the points in the scene that the middles of a view's cells show, [h, w, 3], by its depth map [H, W].

    Points are in the frame of the view, in which the depths are measured.
    """
    each = slice(CELL_PX // 2, None, CELL_PX)
    height, width = view.height // CELL_PX, view.width // CELL_PX
    return places_of(depths, view)[each, each][:height, :width].float()


def _on_cpu(compared: Sequence[ResidualMap]) -> list[ResidualMap]:
    """Return residual maps in host memory, fetched together."""
    views = _fetched([torch.cat((one.view.viewmat.flatten(), one.view.K.flatten())) for one in compared])
    offs = _fetched([one.residual for one in compared])
    counted = _fetched([one.num_entries for one in compared if one.num_entries is not None])
    nums: Sequence[Tensor | None] = counted or [None] * len(compared)
    return [
        ResidualMap(RenderCamera(view[:16].view(4, 4), view[16:].view(3, 3), one.view.width, one.view.height), off, num)
        for one, view, off, num in zip(compared, views, offs, nums, strict=True)
    ]


def _fetched(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors in host memory, copied as one tensor, so that the host waits for the GPU once."""
    if not tensors:
        return []
    parts = torch.cat([one.reshape(-1) for one in tensors]).cpu()
    ends = list(accumulate(one.numel() for one in tensors))
    return [parts[end - one.numel() : end].view(one.shape) for end, one in zip(ends, tensors, strict=True)]


@dataclass(frozen=True)
class ResidualGrid:
    """Residual maps and cameras of all photographs, stacked, to find the residuals at points of the scene."""

    residual: Tensor  # [photographs, h, w] of the largest, NaN beyond their own
    viewmats: Tensor  # [photographs, 4, 4]
    Ks: Tensor  # [photographs, 3, 3]
    near: Tensor  # [photographs, OTHERS at most], the nearest first

    @classmethod
    def of(cls, compared: Sequence[ResidualMap]) -> ResidualGrid:
        """Return the residual maps of all photographs, at least one, stacked, and padded with NaN to one size.

        The residual of each cell becomes the largest of the cell and its neighbours.
        """
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
        """Return the residuals, at points [h, w, 3], of the photographs nearest to photograph `index`, [others, h, w].

        NaN where a photograph does not show a point, or its pixels do not count. That something may hide a point is not
        considered.
        """
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
    """Return, for each cell, the largest residual of the cell and its 8 neighbours, [photographs, h, w].

    `off` has the residuals, in the same shape. NaN where the cell itself is NaN; neighbours that are NaN are ignored.
    """
    return torch.where(off.isnan(), torch.nan, max_pool2d(off.nan_to_num(0.0)[None], 3, stride=1, padding=1)[0])


def alone(off: Tensor, seen: Tensor, evidence: TransientEvidence) -> Tensor:
    """Return a mask [h, w] of the cells whose residual exceeds `TIMES` that of other photographs at the same place.

    Args:
        off: residual of the photograph, [h, w]; NaN exceeds nothing.
        seen: residuals of other photographs, [others, h, w], NaN where one does not show the place.
        evidence: how many others must show the place, and which quantile of their residuals counts.
    """
    if len(seen) < evidence.least_others:
        return torch.zeros_like(off, dtype=torch.bool)
    is_seen = (~seen.isnan()).sum(dim=0) >= evidence.least_others
    return is_seen & (off > TIMES * seen.nanquantile(evidence.share, dim=0))


def large(cells: Tensor) -> Tensor:
    """Return a mask [h, w] of the cells of a mask [h, w] in connected regions of at least `LEAST_CELLS` cells."""
    return pieces_of(cells, cells)


def pieces_of(cells: Tensor, sure: Tensor) -> Tensor:
    """Return a mask [h, w] of the cells in connected regions with at least `LEAST_CELLS` cells that are also in `sure`.

    `cells` and `sure` are masks [h, w]; cells that touch along a side are connected.
    """
    numbers, num = label(cells.cpu().numpy())
    pieces = torch.from_numpy(numbers).to(cells.device).long()
    counts = torch.bincount(pieces[sure & cells], minlength=num + 1)
    return cells & (counts[pieces] >= LEAST_CELLS)


def grown(cells: Tensor) -> Tensor:
    """Return a mask [h, w] of cells, dilated by one cell: at the edge of a transient object a cell shows half of it."""
    return max_pool2d(cells[None].float(), 3, stride=1, padding=1)[0] > 0
