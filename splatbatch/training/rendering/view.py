"""Camera, options and result of a rendering."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from splatbatch.config import Recipe
from splatbatch.scene.colmap.types import Floats
from splatbatch.splats import SplatHeader
from splatbatch.training.photos.decode import Pixels


@dataclass(frozen=True)
class RenderCamera:
    """Pinhole camera of a photograph, with its pose: it looks along +z, pixel centres are at half integers."""

    viewmat: Tensor  # [4, 4], world to camera
    K: Tensor  # [3, 3], px
    width: int
    height: int

    def center(self) -> Floats:
        """Return the position of the camera, [3]."""
        matrix = self.viewmat.double().cpu().numpy()
        position: Floats = -matrix[:3, :3].T @ matrix[:3, 3]
        return position

    def moved(self, step: float) -> RenderCamera:
        """Return the camera moved to its right by `step`, with the same orientation."""
        viewmat = self.viewmat.clone()
        viewmat[0, 3] -= step
        return replace(self, viewmat=viewmat)

    def sees(self, points: Tensor, beside: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
        """Return the projections of points [N, 3] in pixels [N, 2], depths [N], and which are in the picture, [N].

        In the precision of the points. Those in the picture lie before the camera; the picture is enlarged on each side
        by the share `beside`. Points of depth 0 have infinite or NaN pixels.
        """
        viewmat, K = self.viewmat.to(points), self.K.to(points)
        # a sum instead of a matrix product: loading cuBLAS takes as long as a hundred of these
        local = (points[:, None] * viewmat[:3, :3]).sum(dim=2) + viewmat[:3, 3]
        depths = local[:, 2]
        pixels = local[:, :2] / depths[:, None] * K.diagonal()[:2] + K[:2, 2]
        size = pixels.new_tensor([self.width, self.height])
        inside = ((pixels >= -beside * size) & (pixels < (1 + beside) * size)).all(dim=1)
        return pixels, depths, (depths > 0) & inside


@dataclass(frozen=True)
class RasterOptions:
    """Options of the rasteriser."""

    sh_degree: int = 3
    absgrad: bool = False
    antialiased: bool = False
    fused: bool = True
    """Whether to use our own CUDA kernels where they work; else gsplat's."""
    near_plane: float = 0.01
    far_plane: float = 1e10

    @classmethod
    def of(cls, recipe: Recipe, sh_degree: int | None = None) -> RasterOptions:
        """Return the options of a recipe, with its full degree of spherical harmonics unless `sh_degree` is given."""
        training = recipe.training
        degree = training.sh_degree if sh_degree is None else sh_degree
        fused = training.kernels == "auto"
        return cls(degree, recipe.refinement.absgrad, training.antialiased, fused)


def drawn_as(recipe: Recipe, header: SplatHeader) -> Recipe:
    """Return a recipe with the degree and, where the header names it, the antialiasing of a splat file."""
    said = {"sh_degree": header.sh_degree}
    if header.antialiased is not None:
        said["antialiased"] = header.antialiased
    return recipe.with_training(said)


@dataclass(frozen=True)
class Rendering:
    """Result of a rendering: an image over black, and `info`, which gsplat's strategies read after backpropagation."""

    colors: Tensor  # [H, W, 3], not clamped: may exceed 1
    alphas: Tensor  # [H, W, 1]
    info: dict[str, Any]


@dataclass(frozen=True)
class BlendedView:
    """Rendering of a view, with depths alpha-blended like its colours."""

    colors: Tensor  # [H, W, 3], not clamped
    alphas: Tensor  # [H, W]
    depths: Tensor  # [H, W], expected depth along the camera's axis, in units of the frame


def to_pixels(colors: Tensor) -> Pixels:
    """Return colours [H, W, 3] as bytes on the host, clamped to [0, 1] and rounded."""
    found: Pixels = (255 * colors.clamp(0, 1)).round().to(torch.uint8).contiguous().cpu().numpy()
    return found
