"""What a mask ignores has no gradient and no part in any figure."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from PIL import Image as Pillow
from small_patch import paint, recipe, trained
from torch import Tensor

from splatbatch.config import load
from splatbatch.scene.patches import find_patches
from splatbatch.training.loss import masked, of_what_counts, photometric_loss, psnr, ssim
from splatbatch.training.photos.posed_image import PosedImage, shrink
from splatbatch.training.rendering.view import RenderCamera

if TYPE_CHECKING:
    from fake_batch import FakeBatch


def images() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    render = torch.rand(40, 60, 3, generator=generator, requires_grad=True)
    photo = (torch.rand(40, 60, 3, generator=generator) * 255).to(torch.uint8)
    mask = torch.ones(40, 60, dtype=torch.bool)
    mask[:, 30:] = False
    return render, photo, mask


def figures(render: Tensor, photo: Tensor, mask: Tensor | None) -> dict[str, float]:
    seen = masked(render.detach(), photo, mask)
    return of_what_counts({"psnr": float(psnr(*seen)), "ssim": float(ssim(*seen))}, mask)


def test_without_a_mask_nothing_changes() -> None:
    render, photo, _ = images()
    assert masked(render, photo, None) == (render, photo)


def test_ignored_pixels_have_no_gradient_and_others_have_one() -> None:
    render, photo, mask = images()
    photometric_loss(*masked(render, photo, mask)).backward()
    assert render.grad is not None
    assert not render.grad[~mask].any()
    assert render.grad[mask].any(dim=1).all()


def test_what_lies_under_a_mask_changes_neither_loss_nor_figures() -> None:
    render, photo, mask = images()
    other = torch.where(mask[..., None], photo, 255 - photo)
    assert photometric_loss(*masked(render, photo, mask)) == photometric_loss(*masked(render, other, mask))
    assert figures(render, photo, mask) == figures(render, other, mask)


def test_psnr_is_that_of_the_pixels_that_count() -> None:
    render, photo, mask = images()
    error = (render.detach()[mask] - photo[mask] / 255).square().mean()
    assert figures(render, photo, mask)["psnr"] == pytest.approx(-10 * math.log10(error), abs=1e-3)


def test_ssim_of_half_a_photograph_is_as_of_the_half_alone() -> None:
    render, photo, mask = images()
    alone = float(ssim(render.detach()[:, :30], photo[:, :30]))
    assert figures(render, photo, mask)["ssim"] == pytest.approx(alone, abs=0.05)


def test_equal_pixels_are_perfect_whatever_is_ignored() -> None:
    _, photo, mask = images()
    seen = figures(photo / 255, photo, mask)
    assert seen["ssim"] == pytest.approx(1, abs=1e-6)


def test_a_smaller_photograph_has_a_smaller_mask() -> None:
    _, pixels, mask = images()
    mask[:, 20:] = False
    view = RenderCamera(torch.eye(4), torch.eye(3), 60, 40)
    small = shrink(PosedImage("a.png", view, pixels, mask), 8)
    assert small.mask is not None
    assert small.mask.shape == small.pixels.shape[:2] == (5, 8)
    assert small.mask.all(dim=0).tolist() == [True] * 2 + [False] * 6


def paint_over(images: Path, color: tuple[int, int, int]) -> None:
    """Paint the left of every photograph, and mask it."""
    masks = images.with_name("masks")
    masks.mkdir(exist_ok=True)
    for path in sorted(images.iterdir()):
        picture = Pillow.open(path)
        mask = Pillow.new("L", picture.size, 255)
        picture.paste(color, (0, 0, 12, 24))
        mask.paste(0, (0, 0, 12, 24))
        picture.save(path)
        mask.save(masks / f"{path.name}.png")


def test_whatever_lies_under_the_masks_the_splat_is_the_same(batch: FakeBatch) -> None:
    paint((batch.make("p0").folder) / "images")
    splats = []
    for name, color in (("a-1", (255, 0, 255)), ("a-2", (0, 255, 0))):
        paint_over(batch.folder / "images", color)
        (patch,) = find_patches(load(batch.config).scene)
        splats.append(trained(patch, recipe(max_steps=20), name)[1])
    one, other = splats
    assert one.path.read_bytes() == other.path.read_bytes()
    assert one.metrics["final"]["psnr"] == other.metrics["final"]["psnr"]
