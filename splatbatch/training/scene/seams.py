"""A seam from both sides: what one patch shows of the part that two were trained on, against what the other shows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from splatbatch.output.records.evaluation import SeamMeasurement
from splatbatch.output.records.metrics import MOST_PSNR_DB
from splatbatch.training.frame import LocalFrame
from splatbatch.training.gaussians import Parameters
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera
from splatbatch.training.scene.depth import depth_of, places_of
from splatbatch.training.scene.patch_renderer import PatchPlacement, PatchRenderer
from splatbatch.training.scene.photographs import CameraView

OPAQUE = 0.5
"""Opacity from which on a pixel shows something that has a depth."""
MOST_PIXELS = 50_000
"""Of a view that are kept for the medians."""
LEAST_PIXELS = 500
"""Of all views together, below which a seam has no figures."""


@dataclass(frozen=True)
class SideView:
    """What one side shows to a view."""

    colors: Tensor  # [H, W, 3]
    depths: Tensor  # [H, W], in units of the view
    is_common: Tensor  # [H, W], whether it lies where both patches were trained
    num_common: int
    """Gaussians that may be seen there."""


@dataclass
class SeamSides:
    """The splats of two patches, compared view by view."""

    one: PatchRenderer
    other: PatchRenderer
    band: PatchPlacement
    """Where both patches have Gaussians of their own."""
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
    def look(self, shots: Iterable[CameraView]) -> None:
        """Render both sides from where photographs were taken; the photographs themselves have no say."""
        for shot in shots:
            one, other = (self._shown(side, shot.photo.view, shot.frame) for side in (self.one, self.other))
            self._compare(one, other)

    def _shown(self, side: PatchRenderer, view: RenderCamera, frame: LocalFrame) -> SideView:
        own, every = side.seen_from(frame, view)
        options = replace(self.options, sh_degree=side.sh_degree)
        depths, alphas = depth_of(every, view, options)
        is_common = (alphas > OPAQUE) & self.band.holds(places_of(depths, view), frame)
        num_common = int(self.band.holds(own["means"], frame).sum())
        return SideView(_colors(every, view, options), depths, is_common, num_common)

    def _compare(self, one: SideView, other: SideView) -> None:
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

    def figures(self) -> SeamMeasurement:
        """Return what was found; a problem, and no figures, where too little is seen of what both were trained on."""
        found = SeamMeasurement(num_views=self._num_views)
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


def _colors(gaussians: Parameters, view: RenderCamera, options: RasterOptions) -> Tensor:
    return rasterize(gaussians, view, options).colors.clamp(0, 1)
