"""The photometric loss, SSIM and PSNR against references written another way."""

import math

import pytest
import torch
from torch import Tensor

from splatbatch.training import loss
from splatbatch.training.loss import photometric_loss, psnr, ssim


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    torch.set_num_threads(1)


def images(height: int = 21, width: int = 34, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """A photo as bytes, and a rendering that resembles it."""
    generator = torch.Generator().manual_seed(height)
    photo = torch.randint(0, 256, (height, width, 3), generator=generator, dtype=torch.uint8)
    noise = 0.2 * torch.randn(height, width, 3, generator=generator, dtype=torch.float64)
    return (photo / 255.0).to(dtype) + noise.to(dtype), photo


def ssim_map(a: Tensor, b: Tensor) -> Tensor:
    """SSIM as 3DGS writes it, with one full 11 x 11 window per pixel instead of separable convolutions: `[H, W, 3]`."""
    places = torch.arange(-5, 6, dtype=torch.float64)
    window = torch.exp(-(places[:, None] ** 2 + places**2) / (2 * 1.5**2))
    window = (window / window.sum())[:, :, None]

    def blurred(image: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(image, (0, 0, 5, 5, 5, 5))
        return (padded.unfold(0, 11, 1).unfold(1, 11, 1).movedim(2, -1) * window).sum((2, 3))

    mean_a, mean_b = blurred(a), blurred(b)
    var_a, var_b = blurred(a * a) - mean_a**2, blurred(b * b) - mean_b**2
    covariance = blurred(a * b) - mean_a * mean_b
    numerator = (2 * mean_a * mean_b + 1e-4) * (2 * covariance + 9e-4)
    return numerator / ((mean_a**2 + mean_b**2 + 1e-4) * (var_a + var_b + 9e-4))


@pytest.mark.parametrize("ssim_lambda", [0.0, 0.2, 1.0])
def test_the_loss_equals_a_float64_reference(ssim_lambda):
    render, photo = images()
    target = photo.double() / 255
    expected = (1 - ssim_lambda) * (render - target).abs().mean() + ssim_lambda * (1 - ssim_map(render, target).mean())
    assert photometric_loss(render, photo, ssim_lambda) == pytest.approx(expected.item(), abs=1e-12)
    assert photometric_loss(render.float(), photo, ssim_lambda) == pytest.approx(expected.item(), abs=1e-5)


def test_bytes_and_floats_give_the_same_loss():
    render, photo = images(dtype=torch.float32)
    expected = photometric_loss(render, photo)
    assert torch.equal(photometric_loss(render, photo / 255.0), expected)


def test_an_evaluation_before_training_does_no_harm():
    loss.window.cache_clear()
    render, photo = images()
    with torch.inference_mode():
        ssim(render, photo)
    photometric_loss(render.requires_grad_(), photo).backward()
    assert render.grad.isfinite().all()


def test_the_gradient_of_the_loss_is_the_numerical_one():
    render, photo = images(6, 13)
    target = photo.double() / 255
    assert torch.autograd.gradcheck(lambda image: photometric_loss(image, target, 0.3), render.requires_grad_())


def test_ssim_equals_torchmetrics_inside_the_border():
    from torchmetrics.functional.image import structural_similarity_index_measure  # two seconds of every worker

    render, photo = images(40, 30)
    target = photo.double() / 255
    _, theirs = structural_similarity_index_measure(
        render.movedim(-1, 0)[None], target.movedim(-1, 0)[None], data_range=1.0, return_full_image=True
    )  # pads by reflection, so only pixels whose window is inside can agree
    inside = ssim_map(render, target)[5:-5, 5:-5]
    assert (theirs[0].movedim(0, -1)[5:-5, 5:-5] - inside).abs().max() < 1e-10
    assert ssim(render, photo).item() == pytest.approx(ssim_map(render, target).mean().item(), abs=1e-12)


def test_ssim_of_an_image_with_itself_is_one():
    _, photo = images()
    assert ssim(photo, photo).item() == pytest.approx(1.0, abs=1e-6)


def test_psnr_of_a_tenth_is_twenty_decibels():
    assert psnr(torch.full((4, 5, 3), 0.6), torch.full((4, 5, 3), 0.5)).item() == pytest.approx(20.0, abs=1e-4)


def test_psnr_scales_bytes():
    black, white = torch.zeros(4, 5, 3), torch.full((4, 5, 3), 51, dtype=torch.uint8)
    assert psnr(black, white).item() == pytest.approx(-20 * math.log10(0.2), abs=1e-4)
