"""A photograph with the camera that took it and its colour correction, which is divided out for the loss.

Pixels stay bytes. A splat has the colours of the corrected scene; its rendering times a photograph's correction is what
that photograph shows.

A correction (in code: tone) is a tensor, so that it can be on a GPU. Its first four numbers are the gain in R, G and B
and one over the square of half the diagonal in px. Then follow, as far as the correction has them: v1 and v2 of the
vignetting; two of the shading gradient; three of the shading's colour, and the grid of the shading.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, pad

from splatbatch.scene.colmap.types import Image
from splatbatch.scene.colors.correction import NODES, ColorCorrection
from splatbatch.scene.colors.shading_grid import field_at
from splatbatch.scene.coverage_mask import LEAST_SHARE, CoverageMask
from splatbatch.training.frame import LocalFrame
from splatbatch.training.loss import CLIPPED, CLIPPED_COUNTS
from splatbatch.training.photos.decode import Decoded
from splatbatch.training.rendering.view import RenderCamera

_BEFORE_VIGNETTING, _BEFORE_TILT, _BEFORE_TINT, _BEFORE_FIELD = 4, 6, 8, 11


def tone_of(tone: ColorCorrection, decoded: Decoded) -> Tensor | None:
    """Return a colour correction as a tensor for decoded, undistorted pixels; None if the correction changes nothing.

    The numbers are listed at the top of this module; the tensor is in host memory.
    """
    vignetting = (*tone.vignetting, 0.0)[:2] if any(tone.vignetting) else ()
    if vignetting and decoded.undistort_map is not None:
        vignetting = _straightened(vignetting, decoded.undistort_map)
    if not vignetting and not any(tone.shading_gradient) and not tone.shading_grid and tone.gain == (1.0, 1.0, 1.0):
        return None
    field = (
        _field_straightened(tone.shading_grid, decoded.undistort_map)
        if tone.shading_grid and decoded.undistort_map is not None
        else tone.shading_grid
    )
    gain_and_others = replace(tone, vignetting=vignetting, shading_grid=field).values()
    return torch.tensor([*gain_and_others[:3], decoded.half_diagonal_px**-2, *gain_and_others[3:]])


def alike(tones: Iterable[Tensor | None]) -> list[Tensor | None]:
    """Return colour corrections zero-padded to the length of the longest, so that one CUDA graph serves all.

    None, for no correction, stays None.
    """
    every = list(tones)
    longest = max((tone.numel() for tone in every if tone is not None), default=0)
    return [None if tone is None else pad(tone, (0, longest - tone.numel())) for tone in every]


def _straightened(vignetting: tuple[float, ...], bent: NDArray[np.float64]) -> tuple[float, ...]:
    """Return the vignetting for the pixels of the undistorted photograph, by least squares.

    `bent` [2, n]: the squared radius at sample pixels, undistorted and as taken.
    """
    powers = np.arange(1, max(2, len(vignetting)) + 1)
    wanted = bent[1][:, None] ** powers[: len(vignetting)] @ np.array(vignetting)
    found, *_ = np.linalg.lstsq(bent[0][:, None] ** powers, wanted, rcond=None)
    return tuple(map(float, found))


def _field_straightened(field: tuple[float, ...], bent: NDArray[np.float64]) -> tuple[float, ...]:
    """Return the shading grid for the undistorted photograph: each node has the value at its position as taken."""
    down, across = np.mgrid[-1 : 1 : NODES * 1j, -1 : 1 : NODES * 1j]
    place = np.stack([across.ravel(), down.ravel()], axis=1)
    order, radius = np.argsort(bent[0]), np.linalg.norm(place, axis=1)
    straight, taken = np.sqrt(bent[0][order]), np.sqrt(bent[1][order])
    scale = np.interp(radius, straight, taken) / np.clip(radius, 1e-9, straight[-1])
    return tuple(map(float, field_at(place * scale[:, None], np.array(field))))


def shrunk(tone: Tensor | None, factor: float) -> Tensor | None:
    """Return a colour correction for the photograph shrunk by `factor` along both axes; None stays None.

    The correction is the same at the same place of the picture.
    """
    if tone is None:
        return None
    small = tone.clone()
    small[3] *= factor**2
    return small


def num_coefficients(tone: Tensor) -> int:
    """Return how many numbers of a colour correction describe vignetting and shading: 2, 4 or 88; 0: a gain alone."""
    return tone.numel() - _BEFORE_VIGNETTING


def photometric_gain(tone: Tensor, view: RenderCamera, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the factor from the colours of the splat to those of a photograph, by the photograph's correction.

    [H, W, 3] on the correction's device, or [3] for a gain alone. `view` gives size and principal point.
    """
    values = tone.to(dtype)
    gain, coefficients, tilt = values[:3], values[_BEFORE_VIGNETTING:_BEFORE_TILT], values[_BEFORE_TILT:_BEFORE_TINT]
    if not len(coefficients):
        return gain
    x = torch.arange(view.width, dtype=dtype, device=tone.device) + 0.5 - view.K[0, 2]
    y = torch.arange(view.height, dtype=dtype, device=tone.device) + 0.5 - view.K[1, 2]
    square = (x.square() + y.square()[:, None]) * values[3]  # [H, W], r^2
    logarithm = torch.zeros_like(square)
    for coefficient in coefficients.flip(0):
        logarithm = (logarithm + coefficient) * square
    if len(tilt):
        logarithm = logarithm + (tilt[0] * x + tilt[1] * y[:, None]) * values[3].sqrt()
    shading = logarithm[..., None]
    if len(field := values[_BEFORE_FIELD:]):
        down, across = (_shares(one * values[3].sqrt()) for one in (y, x))
        own = down @ field.reshape(NODES, NODES) @ across.T
        shading = shading + own[..., None] * values[_BEFORE_TINT:_BEFORE_FIELD]
    return gain * shading.exp()


def _shares(places: Tensor) -> Tensor:
    """Return the weights of linear interpolation of the grid's nodes at positions [N] along an axis, [N, NODES]."""
    at = (places.clamp(-1, 1) + 1) / 2 * (NODES - 1)
    return (1 - (at[:, None] - torch.arange(NODES, dtype=at.dtype, device=at.device)).abs()).clamp_min(0)


def in_tone(colors: Tensor, tone: Tensor | None, view: RenderCamera) -> Tensor:
    """Return a rendering [H, W, 3] with a photograph's colour correction applied, not clamped; unchanged for None."""
    return colors if tone is None else colors * photometric_gain(tone, view, colors.dtype)


def normalise(pixels: Tensor, tone: Tensor, view: RenderCamera, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a photograph with its colour correction divided out, [H, W, 3] floating point; values may exceed 1.

    `pixels` are uint8 [H, W, 3], on the device of the correction `tone`.
    """
    return pixels.to(dtype) / 255 / photometric_gain(tone, view, dtype)


def to_compare(colors: Tensor, pixels: Tensor, tone: Tensor, view: RenderCamera) -> tuple[Tensor, Tensor]:
    """Return a rendering, and the photograph with its colour correction divided out, [H, W, 3] each, for the loss.

    Where a photograph is clipped and the rendering brighter, difference and gradient are multiplied by
    `CLIPPED_COUNTS`. So L1 has exactly this weight there.

    Args:
        colors: rendering, [H, W, 3].
        pixels: photograph, uint8 [H, W, 3].
        tone: colour correction of the photograph.
        view: camera of the photograph.
    """
    target, seen = normalise(pixels, tone, view, colors.dtype), colors.detach()
    is_brighter = (pixels >= CLIPPED) & (seen > target)
    return (
        torch.where(is_brighter, seen + CLIPPED_COUNTS * (colors - seen), colors),
        torch.where(is_brighter, seen + CLIPPED_COUNTS * (target - seen), target),
    )


@dataclass(frozen=True)
class PosedImage:
    """A photograph of the training or hold-out set with its camera, masks and colour correction."""

    name: str
    view: RenderCamera
    pixels: Tensor  # [H, W, 3] uint8, where it fits
    mask: Tensor | None = None  # [H, W] bool, true where a pixel counts; lies beside the pixels; None: everywhere
    correction: Tensor | None = None  # as `tone_of` makes it, on the device that renders; None: neutral
    coverage_mask: Tensor | None = None  # [H, W] bool, of a held-out photograph; None: too few, or not known
    covered_share: float | None = None  # of the pixels that its own mask leaves; None: not determined

    def target(self) -> Tensor:
        """Return the pixels, uint8 [H, W, 3], on the device that renders, without waiting for an upload."""
        return self.pixels.to(self.view.viewmat.device, non_blocking=True)

    def valid(self) -> Tensor | None:
        """Return the mask, bool [H, W], on the device that renders, true for valid pixels; None: all are valid."""
        return None if self.mask is None else self.mask.to(self.view.viewmat.device, non_blocking=True)

    def covered_pixels(self) -> Tensor | None:
        """Return the mask of covered pixels, bool [H, W], on the device that renders; None: too few, or not known."""
        return (
            None if self.coverage_mask is None else self.coverage_mask.to(self.view.viewmat.device, non_blocking=True)
        )

    def as_taken(self, colors: Tensor) -> Tensor:
        """Return a rendering [H, W, 3] with the photograph's colour correction applied, not clamped.

        Unchanged if the photograph has no correction.
        """
        return in_tone(colors, self.correction, self.view)

    def normalised(self) -> Tensor:
        """Return the photograph, floating point [H, W, 3], with its colour correction divided out; may exceed 1."""
        pixels = self.target()
        return pixels / 255 if self.correction is None else normalise(pixels, self.correction, self.view)

    def to_compare(self, colors: Tensor) -> tuple[Tensor, Tensor]:
        """Return a rendering and the photograph, floating point [H, W, 3] each, for the loss.

        The photograph's colour correction is divided out.
        """
        if self.correction is None:
            return colors, self.normalised()
        return to_compare(colors, self.target(), self.correction, self.view)

    def counts(self) -> bool:
        """Return whether any pixel is valid; without a mask all are."""
        return self.mask is None or bool(self.mask.any())


def photo_in(image: Image, decoded: Decoded, frame: LocalFrame, tone: ColorCorrection) -> PosedImage:
    """Return a decoded photograph as tensors in host memory, with its pinhole camera in the frame of the training.

    A mask that is true everywhere is dropped.
    """
    viewmat, camera = frame.viewmat(image.world_to_camera()), decoded.camera
    matrices = torch.tensor(viewmat, dtype=torch.float32), torch.tensor(camera.K, dtype=torch.float32)
    mask = None if decoded.mask is None or decoded.mask.all() else torch.from_numpy(decoded.mask)
    view, pixels = RenderCamera(*matrices, camera.width, camera.height), torch.from_numpy(decoded.pixels)
    return PosedImage(image.name, view, pixels, mask, tone_of(tone, decoded))


def covered_in(photo: PosedImage, covered: CoverageMask) -> PosedImage:
    """Return a photograph with the mask of its covered pixels and their share among its valid pixels, 0 to 1.

    The mask is left out where the share is below `LEAST_SHARE` (2 %). A photograph that `covered` does not know has
    the share 0.
    """
    found = covered.of(photo.name, photo.view.width, photo.view.height)
    if found is None:
        return replace(photo, covered_share=0.0)
    pixels = torch.from_numpy(found).to(photo.pixels.device)
    num = pixels.numel()
    if photo.mask is not None:
        pixels, num = pixels & photo.mask, int(photo.mask.sum())
    share = float(pixels.sum()) / max(1, num)
    return replace(photo, coverage_mask=pixels if share >= LEAST_SHARE else None, covered_share=share)


def settled(photo: PosedImage, home: torch.device, device: torch.device) -> PosedImage:
    """Return a photograph with camera and colour correction on `device`, and pixels and masks on `home`.

    Pixels and masks are in pinned memory if `home` is the host and `device` a GPU.
    """
    view = replace(photo.view, viewmat=photo.view.viewmat.to(device), K=photo.view.K.to(device))

    def settle(tensor: Tensor) -> Tensor:
        if home.type == "cuda":
            return tensor.to(home, non_blocking=True)
        return tensor.pin_memory() if device.type == "cuda" else tensor

    mask, covered = (None if one is None else settle(one) for one in (photo.mask, photo.coverage_mask))
    tone = None if photo.correction is None else photo.correction.to(device)
    return replace(photo, view=view, pixels=settle(photo.pixels), mask=mask, correction=tone, coverage_mask=covered)


@torch.no_grad()
def shrink(photo: PosedImage, factor: int) -> PosedImage:
    """Return a photograph whose pixels are the means of factor x factor pixels; of fewer at the right and bottom edges.

    K is divided exactly by the factor, since pixels are grouped from the top-left corner on. A pixel is valid if all
    that are averaged are valid. Mask and colour correction are adapted, the coverage mask is not. With factor 1 the
    photograph is returned.
    """
    if factor == 1:
        return photo
    means = _means(photo.target().movedim(-1, 0).float(), factor)  # [3, h, w]
    pixels = _beside(photo, means.round().to(torch.uint8).movedim(0, -1).contiguous())
    valid = photo.valid()  # a pixel counts if all pixels that it averages count
    mask = None if valid is None else _beside(photo, _means(valid[None].float(), factor)[0] == 1)
    K = photo.view.K.clone()
    K[:2] /= factor
    view = RenderCamera(photo.view.viewmat, K, width=pixels.shape[1], height=pixels.shape[0])
    return replace(photo, view=view, pixels=pixels, mask=mask, correction=shrunk(photo.correction, factor))


def resized(photo: PosedImage, most_pixels: int) -> PosedImage:
    """Return a photograph reduced to about `most_pixels`, with camera, masks and colour correction to match.

    A photograph with no more pixels is returned unchanged. A pixel of a reduced one is valid, or covered, if more than
    half of what it averages is. Pixels and masks are then on the device that renders.
    """
    view = photo.view
    factor = math.sqrt(most_pixels / (view.width * view.height))
    if factor >= 1:
        return photo
    width, height = max(1, round(factor * view.width)), max(1, round(factor * view.height))

    def reduced(channels: Tensor) -> Tensor:  # on the device that renders: a GPU is faster
        return interpolate(channels[None].float(), size=(height, width), mode="area")[0]

    pixels = reduced(photo.target().movedim(-1, 0)).movedim(0, -1).round().to(torch.uint8)
    masks = (None if one is None else reduced(one[None])[0] > 0.5 for one in (photo.valid(), photo.covered_pixels()))
    scale = view.K.new_tensor([[width / view.width], [height / view.height], [1.0]])
    small, (mask, covered) = RenderCamera(view.viewmat, scale * view.K, width, height), masks
    tone = shrunk(photo.correction, 1 / factor)
    return replace(photo, view=small, pixels=pixels, mask=mask, correction=tone, coverage_mask=covered)


def _means(channels: Tensor, factor: int) -> Tensor:
    return avg_pool2d(channels, factor, ceil_mode=True, count_include_pad=False)


def _beside(photo: PosedImage, small: Tensor) -> Tensor:
    """Return a tensor on the device of the photograph's pixels; in pinned memory if it is moved from a GPU."""
    return small if photo.pixels.device == small.device else small.to(photo.pixels.device).pin_memory()
