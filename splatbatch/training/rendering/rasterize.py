"""Render Gaussians from one camera: on a GPU by this package's kernels or gsplat's, on the CPU by PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from splatbatch.training import cuda
from splatbatch.training.cpu import Ellipsoids, PinholeCameras, project, raster, view_colors
from splatbatch.training.gaussians import SH_C0
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.rendering import gsplats
from splatbatch.training.rendering.view import BlendedView, RasterOptions, RenderCamera, Rendering

FAINTEST = 1e-6
"""Least opacity, 0 to 1, by which depths are divided, to avoid a division by zero."""

PLAINLY = RasterOptions()
"""Default options of `rasterize`: degree 3 of the harmonics, no antialiasing, this package's kernels on a GPU."""


def rasterize(
    gaussians: Mapping[str, Tensor], view: RenderCamera, options: RasterOptions = PLAINLY, capacity: int | None = None
) -> Rendering:
    """Render Gaussians over black, on their device; differentiable in all six parameters.

    Args:
        gaussians: parameters before activation: `means` `[N, 3]`, `quats` `[N, 4]` (w first, any length), `scales`
            `[N, 3]` (logarithms), `opacities` `[N]` (logits), `sh0` `[N, 1, 3]`, `shN` `[N, K, 3]`.
        view: the camera, in the frame of the Gaussians.
        options: of the rasteriser.
        capacity: number of entries of the tile lists of this package's kernels; None: counted, which waits for the GPU.

    Raises:
        ValueError: on the CPU, the degree of harmonics is above 3 or above that of `shN`.
        TrainerError: no kernels for this GPU: this package's do not work, and gsplat's are not built.
    """
    if not gaussians["means"].is_cuda:
        return _rasterize_cpu(gaussians, view, options)
    if not options.fused or cuda.why_not_here():
        return gsplats.rasterize(gaussians, view, options)
    from splatbatch.training.cuda import rasterization

    return rasterization.rasterize(gaussians, view, options, capacity, cuda.loaded())


def with_depths(gaussians: Mapping[str, Tensor], view: RenderCamera, options: RasterOptions) -> BlendedView:
    """Render a view and the expected depths of its pixels, in units of the Gaussians; 0 where nothing is rendered.

    In one pass on the CPU, in two on a GPU; there the host waits.

    Raises:
        ValueError: on the CPU, the degree of harmonics is above 3 or above that of `shN`.
        TrainerError: there are no kernels for the GPU.
    """
    depths = (gaussians["means"] * view.viewmat[2, :3]).sum(dim=1) + view.viewmat[2, 3]
    if gaussians["means"].is_cuda:  # whose kernels have three channels
        rendering, drawn = rasterize(gaussians, view, options), _drawn_grey(gaussians, depths, view, options).colors
        colors = rendering.colors
    else:
        rendering = _rasterize_cpu(gaussians, view, options, depths.clamp_min(0)[:, None])
        colors, drawn = rendering.colors[..., :3], rendering.colors[..., 3:]
    alphas = rendering.alphas[..., 0]
    return BlendedView(colors, alphas, drawn[..., 0] / alphas.clamp_min(FAINTEST))


def _drawn_grey(
    gaussians: Mapping[str, Tensor],
    values: Tensor,
    view: RenderCamera,
    options: RasterOptions,
    capacity: int | None = None,
) -> Rendering:
    """Render Gaussians whose three colours are a value of each, [N]; values below 0 count as 0."""
    grey = ((values - 0.5) / SH_C0)[:, None, None].expand(-1, 1, 3).contiguous()  # colour = 0.5 + C0 sh0
    return rasterize({**gaussians, "sh0": grey}, view, replace(options, sh_degree=0), capacity)


def _rasterize_cpu(
    gaussians: Mapping[str, Tensor], view: RenderCamera, options: RasterOptions, values: Tensor | None = None
) -> Rendering:
    rotation, translation = view.viewmat[:3, :3], view.viewmat[:3, 3]
    directions = gaussians["means"] + rotation.T @ translation  # the camera stands at -R^T t
    colors = view_colors(directions[None], gaussians["sh0"], gaussians["shN"], options.sh_degree)
    if values is not None:
        colors = torch.cat([colors, values[None]], dim=-1)

    cameras = PinholeCameras(
        view.viewmat[None], view.K[None], view.width, view.height, options.near_plane, options.far_plane
    )
    scales, opacities = gaussians["scales"].exp(), gaussians["opacities"].sigmoid()
    ellipsoids = Ellipsoids(gaussians["means"], gaussians["quats"], scales, opacities)
    footprints = project(ellipsoids, cameras, antialiased=options.antialiased)
    images, alphas = raster(footprints, colors, view.width, view.height, absgrad=options.absgrad)
    info = {
        "width": view.width,
        "height": view.height,
        "n_cameras": 1,
        "gaussian_ids": None,  # as gsplat without packing: every Gaussian has a row
        # The tensor of the autograd graph itself: strategies call retain_grad() on it and read .grad or .absgrad.
        "means2d": footprints.means2d,
        "radii": footprints.radii,
    }
    return Rendering(images[0], alphas[0], info)


def depth_of(
    gaussians: Mapping[str, Tensor], view: RenderCamera, options: RasterOptions, capacity: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the expected depth along the camera's axis, in units of the Gaussians, and the opacity of a view, [H, W].

    The depth is the mean with the weights of alpha blending; 0 where nothing is rendered. `capacity` is the number of
    entries of the tile lists; None: counted, which waits for the GPU.

    Raises:
        TrainerError: there are no kernels for the GPU.
    """
    depths = gaussians["means"] @ view.viewmat[2, :3] + view.viewmat[2, 3]
    rendering = _drawn_grey(gaussians, depths, view, options, capacity)
    alphas = rendering.alphas[..., 0]
    return rendering.colors[..., 0] / alphas.clamp_min(FAINTEST), alphas


def places_of(depths: Tensor, view: RenderCamera) -> Tensor:
    """Return the points that a depth map [H, W] of a camera shows, in the camera's world frame, float64 [H, W, 3]."""
    K, viewmat = view.K.double(), view.viewmat.double()
    x = (torch.arange(view.width, device=depths.device) + 0.5 - K[0, 2]) / K[0, 0]
    y = (torch.arange(view.height, device=depths.device) + 0.5 - K[1, 2]) / K[1, 1]
    rays = torch.stack([x.expand(view.height, -1), y[:, None].expand(-1, view.width), torch.ones_like(depths)], dim=-1)
    local = rays * depths.double()[..., None]
    return (local - viewmat[:3, 3]) @ viewmat[:3, :3]


def longest_lists(
    gaussians: Mapping[str, Tensor], photos: tuple[PosedImage, ...], options: RasterOptions
) -> Tensor | None:
    """Return the largest number of tile list entries that any of the photographs needs, []; does not wait for the GPU.

    None where this package's kernels do not render, as on the CPU. There must be at least one photograph.
    """
    if not gaussians["means"].is_cuda or not options.fused or cuda.why_not_here():
        return None
    from splatbatch.training.cuda.rasterization import num_entries

    return torch.stack([num_entries(gaussians, photo.view, cuda.loaded()) for photo in photos]).max()
