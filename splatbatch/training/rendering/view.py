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
    """Pinhole camera with its pose, which looks along +z; pixel centres are at half integers."""

    viewmat: Tensor  # [4, 4], world to camera
    K: Tensor  # [3, 3], px
    width: int  # px
    height: int  # px

    def center(self) -> Floats:
        """Return the position of the camera in the frame of the Gaussians, float64 [3]; waits for the GPU."""
        matrix = self.viewmat.double().cpu().numpy()
        position: Floats = -matrix[:3, :3].T @ matrix[:3, 3]
        return position

    def moved(self, step: float) -> RenderCamera:
        """Return the camera moved to its right by `step`, in units of the frame; negative: to its left.

        The orientation stays the same.
        """
        viewmat = self.viewmat.clone()
        viewmat[0, 3] -= step
        return replace(self, viewmat=viewmat)

    def sees(self, points: Tensor, beside: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
        """Return projections [N, 2] in px and depths [N] of points [N, 3], and a mask [N] of those in the picture.

        Points in the picture lie in front of the camera. Points of depth 0 have infinite or NaN projections. Device and
        precision are those of the points.

        Args:
            points: in the frame of the camera's pose.
            beside: share of width and height by which the picture is enlarged on each side; 0: it is not.
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
    """Highest degree of the harmonics that is rendered, 0 to 3; 0: colours do not depend on the direction."""
    absgrad: bool = False
    """Whether gradients of projected means are also summed as absolute values over pixels (AbsGS)."""
    antialiased: bool = False
    """Whether Gaussians are rendered with antialiasing (Mip-Splatting, Yu 2024)."""
    fused: bool = True
    """Whether to use this package's CUDA kernels where they work; else gsplat's."""
    near_plane: float = 0.01
    """Least depth of a rendered Gaussian, in units of the frame."""
    far_plane: float = 1e10
    """Largest depth of a rendered Gaussian, in units of the frame."""

    @classmethod
    def of(cls, recipe: Recipe, sh_degree: int | None = None) -> RasterOptions:
        """Return the options of a recipe; `sh_degree` None: the full degree of harmonics of the recipe."""
        training = recipe.training
        degree = training.sh_degree if sh_degree is None else sh_degree
        fused = training.kernels == "auto"
        return cls(degree, recipe.refinement.absgrad, training.antialiased, fused)


def drawn_as(recipe: Recipe, header: SplatHeader) -> Recipe:
    """Return a recipe with the degree of harmonics and the antialiasing of a splat file.

    Where the header does not say whether the splat was trained with antialiasing, the setting of the recipe stays.
    """
    said = {"sh_degree": header.sh_degree}
    if header.antialiased is not None:
        said["antialiased"] = header.antialiased
    return recipe.with_training(said)


@dataclass(frozen=True)
class Rendering:
    """Result of a rendering: an image over black, its alphas, and values for the strategies."""

    colors: Tensor  # [H, W, 3], not clamped: may exceed 1
    alphas: Tensor  # [H, W, 1]
    info: dict[str, Any]
    """Values by name, as gsplat's `rasterization` returns them; some names differ between the kernels."""


@dataclass(frozen=True)
class BlendedView:
    """Rendering of a view over black, with depths that are alpha-blended like the colours."""

    colors: Tensor  # [H, W, 3], not clamped
    alphas: Tensor  # [H, W]
    depths: Tensor  # [H, W], expected depth along the camera's axis, in units of the frame; 0: nothing there


def to_pixels(colors: Tensor) -> Pixels:
    """Return colours [H, W, 3] as bytes in host memory: clamped to [0, 1], scaled to 0 to 255 and rounded.

    Waits for the GPU.
    """
    found: Pixels = (255 * colors.clamp(0, 1)).round().to(torch.uint8).contiguous().cpu().numpy()
    return found
