"""A camera, how it is drawn by, and what comes of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splatbatch.config import Recipe
from splatbatch.splats import SplatHeader
from splatbatch.training.photos.decode import Pixels


@dataclass(frozen=True)
class RenderCamera:
    """What a photo was taken with, and from where: a pinhole looking along +z, pixel centres at half integers."""

    viewmat: Tensor  # [4, 4], world to camera
    K: Tensor  # [3, 3], px
    width: int
    height: int

    def project(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return where points [N, 3] fall, in pixels [N, 2], and their depths [N], in the precision of the points.

        What lies in the camera's plane falls at infinity, or nowhere (NaN).
        """
        viewmat, K = self.viewmat.to(points), self.K.to(points)
        # products of so few columns need no cuBLAS, whose loading takes as long as a hundred of them
        local = (points[:, None] * viewmat[:3, :3]).sum(dim=2) + viewmat[:3, 3]
        depths = local[:, 2]
        return local[:, :2] / depths[:, None] * K.diagonal()[:2] + K[:2, 2], depths

    def shows(self, pixels: Tensor, beside: float = 0.0) -> Tensor:
        """Return which of some places [N, 2] lie in the picture, or beside it by such a share of it at most; [N]."""
        size = pixels.new_tensor([self.width, self.height])
        return ((pixels >= -beside * size) & (pixels < (1 + beside) * size)).all(dim=1)


@dataclass(frozen=True)
class RasterOptions:
    """How to draw."""

    sh_degree: int = 3
    absgrad: bool = False
    antialiased: bool = False
    fused: bool = True
    """With our own kernels for CUDA, where they work."""
    near_plane: float = 0.01
    far_plane: float = 1e10

    @classmethod
    def of(cls, recipe: Recipe, sh_degree: int | None = None) -> RasterOptions:
        """Return how a recipe draws; with all its spherical harmonics unless told otherwise."""
        training = recipe.training
        degree = training.sh_degree if sh_degree is None else sh_degree
        fused = training.kernels == "auto"
        return cls(degree, recipe.refinement.absgrad, training.antialiased, fused)


def drawn_as(recipe: Recipe, header: SplatHeader) -> Recipe:
    """Return a recipe that draws a splat as its file says: all its colours, and antialiased if it was trained so."""
    said = {"sh_degree": header.sh_degree}
    if header.antialiased is not None:
        said["antialiased"] = header.antialiased
    return recipe.with_training(said)


@dataclass(frozen=True)
class Rendering:
    """An image over black, and what gsplat's strategies read after the backward pass."""

    colors: Tensor  # [H, W, 3], not clamped: may exceed 1
    alphas: Tensor  # [H, W, 1]
    info: dict[str, Any]


def to_pixels(colors: Tensor) -> Pixels:
    """Return colours [H, W, 3] as bytes on the host; what lies beyond 0 and 1 is cut off."""
    found: Pixels = (255 * colors.clamp(0, 1)).round().to(torch.uint8).contiguous().cpu().numpy()
    return found
