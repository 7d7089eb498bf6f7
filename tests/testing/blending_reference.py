"""Blending by the book, in float64 with torch's own derivatives, and made-up pictures to blend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

TILE_PX = 16
ALPHA_MIN, ALPHA_MAX, TRANSMITTANCE_MIN = 1 / 255, 0.999, 1e-4


@dataclass
class Picture:
    """What is blended, as gsplat's `rasterize_to_pixels` takes it."""

    means2d: Tensor  # [1, N, 2]
    conics: Tensor  # [1, N, 3]
    colors: Tensor  # [1, N, 3]
    opacities: Tensor  # [1, N]
    offsets: Tensor  # [1, rows, columns] int32
    ids: Tensor  # [entries] int32
    width: int
    height: int
    masks: Tensor | None = None  # [1, rows, columns] bool

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.means2d, self.conics, self.colors, self.opacities

    def to(self, device: str) -> Picture:
        moved = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **moved)


def a_picture(
    num: int,
    size: tuple[int, int] = (40, 24),
    *,
    largest: float = 6.0,
    opacity: float | None = None,
    padding: int = 0,
    seed: int = 0,
) -> Picture:
    """Gaussians of all shapes and opacities over an image and around it, in random order; padding: see tile_lists."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    width, height = size
    opacities = uniform(num) * 0.9 + 0.05 if opacity is None else torch.full((num,), opacity)
    means2d = uniform(num, 2) * torch.tensor([width + 16.0, height + 16.0]) - 8
    angles, sides = uniform(num) * torch.pi, 0.6 + largest * uniform(num, 2) ** 2
    turn = torch.stack((angles.cos(), -angles.sin(), angles.sin(), angles.cos()), 1).view(num, 2, 2)
    inverse = turn @ torch.diag_embed(1 / sides**2) @ turn.transpose(1, 2)
    conics = torch.stack((inverse[:, 0, 0], inverse[:, 0, 1], inverse[:, 1, 1]), 1)
    colors = uniform(num, 3)
    offsets, ids = tile_lists(means2d, 3.4 * sides.amax(1), size, padding)
    return Picture(means2d[None], conics[None], colors[None], opacities[None], offsets[None], ids, width, height)


def tile_lists(means2d: Tensor, radii: Tensor, size: tuple[int, int], padding: int) -> tuple[Tensor, Tensor]:
    """List what the box around each Gaussian touches; with padding, in one more row of tiles."""
    columns, rows = -(-size[0] // TILE_PX), -(-size[1] // TILE_PX)
    lists = []
    for row in range(rows):
        for column in range(columns):
            middle = torch.tensor([column + 0.5, row + 0.5]) * TILE_PX
            near = ((means2d - middle).abs() < radii[:, None] + TILE_PX / 2).all(1)
            lists.append(near.nonzero()[:, 0])
    if padding:
        lists += [torch.zeros(padding, dtype=torch.int64), *[torch.zeros(0, dtype=torch.int64)] * (columns - 1)]
        rows += 1
    lengths = torch.tensor([len(one) for one in lists])
    offsets = lengths.cumsum(0) - lengths
    return offsets.view(rows, columns).int(), torch.cat(lists).int()


def reference(picture: Picture) -> tuple[Tensor, Tensor, Tensor]:
    """Return image [H, W, 3], alpha [H, W], differentiable in float64, and which pixels rounding may not change."""
    height, width = picture.height, picture.width
    rows, columns = picture.offsets.shape[1:]
    starts = [*picture.offsets.flatten().tolist(), len(picture.ids)]
    images = picture.colors.new_zeros(rows * TILE_PX, columns * TILE_PX, picture.colors.shape[2], dtype=torch.float64)
    alphas, sure = (
        torch.zeros_like(images[..., 0]),
        torch.ones(images.shape[:2], dtype=torch.bool, device=images.device),
    )
    for tile in range(rows * columns):
        if tile // columns * TILE_PX >= height:
            continue
        there = slice(tile // columns * TILE_PX, (tile // columns + 1) * TILE_PX)
        across = slice(tile % columns * TILE_PX, (tile % columns + 1) * TILE_PX)
        ids = picture.ids[starts[tile] : starts[tile + 1]].long()
        if picture.masks is not None and not picture.masks.flatten()[tile]:
            ids = ids[:0]
        ys, xs = (torch.arange(part.start, part.stop, device=images.device) + 0.5 for part in (there, across))
        tile_image, tile_alpha, tile_sure = _tile(picture, ids, xs, ys)
        images = images.index_put((_rows(there, images), _columns(across, images)), tile_image)
        alphas = alphas.index_put((_rows(there, images), _columns(across, images)), tile_alpha)
        sure[there, across] = tile_sure
    return images[:height, :width], alphas[:height, :width], sure[:height, :width]


def _rows(part: slice, of: Tensor) -> Tensor:
    return torch.arange(part.start, part.stop, device=of.device)[:, None]


def _columns(part: slice, of: Tensor) -> Tensor:
    return torch.arange(part.start, part.stop, device=of.device)[None, :]


def _tile(picture: Picture, ids: Tensor, xs: Tensor, ys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    means, conics, colors, opacities = (value[0].double() for value in picture.inputs)
    dx = (means[ids, 0, None, None] - xs[None, None, :]).expand(-1, len(ys), -1)
    dy = (means[ids, 1, None, None] - ys[None, :, None]).expand(-1, -1, len(xs))
    xx, xy, yy = conics[ids].t()[:, :, None, None]
    sigma = 0.5 * (xx * dx * dx + yy * dy * dy) + xy * dx * dy
    raw = opacities[ids, None, None] * torch.exp(-sigma)
    visible = raw >= ALPHA_MIN
    alpha = torch.where(visible, raw.clamp_max(ALPHA_MAX), 0.0)
    after = torch.cumprod(1 - alpha, 0)
    before = torch.cat((torch.ones_like(after[:1]), after[:-1])) if len(ids) else after
    weights = torch.where(after > TRANSMITTANCE_MIN, alpha * before, 0.0)
    close = ((raw / ALPHA_MIN).log().abs() < 1e-4) | ((after / TRANSMITTANCE_MIN).log().abs() < 1e-3)
    close |= (raw / ALPHA_MAX).log().abs() < 1e-5
    left = 1 - weights.sum(0)
    image = torch.einsum("nyx,nc->yxc", weights, colors[ids])
    return image, 1 - left, ~close.any(0)


COLUMNS = {"means2d": slice(0, 2), "conics": slice(2, 5), "opacities": 5, "colors": slice(6, 9)}
"""Of a row, as our kernels take and make it."""


def rows_of(picture: Picture, *, absgrad: bool = False) -> Tensor:
    """Return the rows that our kernels blend; with absgrad their gradients leave the absolute ones with means2d."""
    nothing = torch.zeros_like(picture.colors)
    rows = torch.cat((picture.means2d, picture.conics, picture.opacities[..., None], picture.colors, nothing), -1)
    if absgrad:
        rows.register_hook(lambda v: setattr(picture.means2d, "absgrad", v[..., 10:]))
    return rows


@dataclass(frozen=True)
class Derived:
    """An image, its alpha, and the gradients of what it was made of."""

    image: Tensor  # [H, W, 3]
    alphas: Tensor  # [H, W]
    gradients: dict[str, Tensor]
    absgrad: Tensor | None = None


INPUTS = ("means2d", "conics", "colors", "opacities")


def derive(picture: Picture, draw: Callable[[Picture], tuple[Tensor, Tensor]], v: tuple[Tensor, Tensor]) -> Derived:
    """Draw a picture, and derive its inner product with v: gradients of the image [H, W, 3] and of alpha [H, W]."""
    leaves = {name: getattr(picture, name).clone().requires_grad_() for name in INPUTS}
    image, alphas = draw(replace(picture, **leaves))
    loss = (image * v[0]).sum() + ((alphas * v[1]).sum() if v[1].any() else 0)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    absolute = getattr(leaves["means2d"], "absgrad", None)
    return Derived(image.detach(), alphas.detach(), dict(zip(leaves, gradients, strict=True)), absolute)


def some_slopes(picture: Picture, sure: Tensor, *, of_alphas: bool = True) -> tuple[Tensor, Tensor]:
    """Return gradients of an image and of alpha; none where rounding decides what a pixel sees."""
    generator = torch.Generator().manual_seed(5)
    v_image = torch.randn(picture.height, picture.width, picture.colors.shape[2], generator=generator)
    v_alphas = torch.randn(picture.height, picture.width, generator=generator) * of_alphas
    return v_image.to(sure.device) * sure[..., None], v_alphas.to(sure.device) * sure


def relative(ours: Tensor, theirs: Tensor) -> float:
    """Return the error of a tensor against another, by their norms."""
    return float((ours.double() - theirs).norm() / theirs.norm().clamp_min(1e-12))
