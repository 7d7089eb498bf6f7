"""A seam from both sides: what one patch shows of the part that two were trained on, against what the other shows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from splatbatch.config import Offset
from splatbatch.scene.partition.boxes import Box
from splatbatch.scene.partition.record import Partition
from splatbatch.store.records.evaluation import SeamMeasured
from splatbatch.training.evaluation.evaluate import MOST_PSNR_DB
from splatbatch.training.gaussians import Parameters
from splatbatch.training.rendering.rasterize import RasterOptions, View, rasterize
from splatbatch.training.scene.depth import depth_of, places_of
from splatbatch.training.scene.photographs import Shot
from splatbatch.training.scene.store import Standpoint, Store

OPAQUE = 0.5
"""Opacity from which on a pixel shows something that has a depth."""
MOST_PIXELS = 50_000
"""Of a view that are kept for the medians."""
LEAST_PIXELS = 500
"""Of all views together, below which a seam has no figures."""


@dataclass(frozen=True)
class Shown:
    """What one side shows to a view."""

    colors: Tensor  # [H, W, 3]
    depths: Tensor  # [H, W], in units of the view
    is_common: Tensor  # [H, W], whether it lies where both patches were trained
    num_common: int
    """Gaussians that may be seen there."""


@dataclass
class Band:
    """Where two patches were both trained, asked of places in the splats' frame."""

    partition: Partition
    box: Box
    offset: Offset

    def holds(self, places: Tensor, standpoint: Standpoint) -> Tensor:
        """Return which places around a standpoint [..., 3], in its unit, lie there, [...]."""
        there = standpoint.unit * places.double() + torch.tensor(standpoint.place, device=places.device)
        flat = self.partition.in_axes(there.reshape(-1, 3).cpu().numpy(), self.offset)
        return torch.from_numpy(self.box.holds(flat)).to(places.device).reshape(places.shape[:-1])


@dataclass
class Sides:
    """The splats of two patches, compared view by view."""

    one: Store
    other: Store
    band: Band
    options: RasterOptions
    _differences: list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = field(default_factory=list)
    _steps: list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = field(default_factory=list)
    _squares: float = 0.0
    _num_compared: int = 0
    _num_pixels: int = 0
    _num_views: int = 0
    _num_one: int = 0
    _num_other: int = 0

    @torch.inference_mode()
    def look(self, shots: Iterable[Shot]) -> None:
        """Render both sides from where photographs were taken; the photographs themselves have no say."""
        for shot in shots:
            one, other = (self._shown(store, shot.photo.view, shot.standpoint) for store in (self.one, self.other))
            self._compare(one, other)

    def _shown(self, store: Store, view: View, standpoint: Standpoint) -> Shown:
        gaussians = store.seen_from(standpoint, view)
        options = replace(self.options, sh_degree=store.blocks.header.sh_degree)
        depths, alphas = depth_of(gaussians, view, options)
        is_common = (alphas > OPAQUE) & self.band.holds(places_of(depths, view), standpoint)
        return Shown(_colors(gaussians, view, options), depths, is_common, int(self._common(gaussians, standpoint)))

    def _common(self, gaussians: Parameters, standpoint: Standpoint) -> Tensor:
        return self.band.holds(gaussians["means"], standpoint).sum()

    def _compare(self, one: Shown, other: Shown) -> None:
        both = one.is_common & other.is_common
        self._num_views += 1
        self._num_pixels += both.numel()
        self._num_one += one.num_common
        self._num_other += other.num_common
        difference = (one.colors[both] - other.colors[both]).cpu().numpy()
        step = (2 * (one.depths[both] - other.depths[both]) / (one.depths[both] + other.depths[both])).cpu().numpy()
        self._num_compared += len(step)
        self._squares += float(np.square(difference.astype(np.float64)).sum())
        stride = max(1, math.ceil(len(step) / MOST_PIXELS))
        self._differences.append(difference[::stride])
        self._steps.append(step[::stride])

    def figures(self) -> SeamMeasured:
        """Return what was found; a problem, and no figures, where too little is seen of what both were trained on."""
        found = SeamMeasured(num_views=self._num_views)
        if self._num_compared < LEAST_PIXELS:
            why = f"{self._num_compared} pixels of {self._num_views} views show what both patches were trained on"
            return replace(found, problem=why)
        offsets = 255 * np.median(np.concatenate(self._differences), axis=0)
        error = self._squares / (3 * self._num_compared)
        return replace(
            found,
            share=self._num_compared / self._num_pixels,
            psnr_between=min(MOST_PSNR_DB, -10 * math.log10(error)) if error else MOST_PSNR_DB,
            color_offset=float(np.abs(offsets).max()),
            color_offsets=(float(offsets[0]), float(offsets[1]), float(offsets[2])),
            depth_step=float(np.median(np.concatenate(self._steps))),
            density_ratio=self._num_one / self._num_other if self._num_other else None,
        )


def _colors(gaussians: Parameters, view: View, options: RasterOptions) -> Tensor:
    return rasterize(gaussians, view, options).colors.clamp(0, 1)
