"""Our loss kernels, run on the CPU lane by lane, is the loss in float64, and so is its derivative."""

from __future__ import annotations

import pytest
import torch
from emulated_kernels import COMPILER, OnCpu

from splatbatch.scene.colors.correction import NODES
from splatbatch.training import loss
from splatbatch.training.cuda.loss import normalise, photometric_loss, ssim
from splatbatch.training.cuda.sources import constant
from splatbatch.training.loss import CLIPPED, CLIPPED_COUNTS
from splatbatch.training.photos import posed_image
from splatbatch.training.rendering.view import RenderCamera

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU"),
    pytest.mark.usefixtures("what_is_not_written_is_nan"),
]


@pytest.mark.parametrize("size", [(1, 1), (5, 7), (23, 43), (24, 40), (61, 97)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_value_and_derivative_are_those_of_float64(size: tuple[int, int], dtype: torch.dtype, kernels: OnCpu) -> None:
    torch.manual_seed(0)
    levels = torch.randint(0, 256, (*size, 3))
    photo = levels.to(torch.uint8) if dtype == torch.uint8 else levels / 255
    # between the levels of the photo: where both are equal, rounding decides the sign of L1's gradient
    render = ((torch.randint_like(levels, -20, 275) + torch.rand(*size, 3) * 0.8 + 0.1) / 255).requires_grad_()
    exact = render.detach().double().requires_grad_()
    expected = loss.photometric_loss(exact, photo if dtype == torch.uint8 else photo.double(), 0.3)
    value = photometric_loss(render, photo, 0.3, kernels)
    (2 * value).backward()
    (2 * expected).backward()
    assert abs(value.item() / expected.item() - 1) <= 1e-5
    assert render.grad is not None and exact.grad is not None
    assert float((render.grad - exact.grad).norm() / exact.grad.norm()) <= 1e-4


def test_what_is_brighter_than_clipped_bytes_learns_less(kernels: OnCpu) -> None:
    torch.manual_seed(0)
    taken = torch.randint(230, 256, (24, 31, 3)).to(torch.uint8)
    photo, render = taken / 255, torch.rand(24, 31, 3)
    gradients = []
    for as_taken in (None, taken):
        leaf = render.clone().requires_grad_()
        photometric_loss(leaf, photo, 0.2, kernels, as_taken).backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad)
    is_brighter = (taken >= CLIPPED) & (render > photo)
    assert is_brighter.any()
    assert torch.allclose(gradients[1], torch.where(is_brighter, CLIPPED_COUNTS * gradients[0], gradients[0]))


def test_what_a_mask_hides_is_equal_and_learns_nothing(kernels: OnCpu) -> None:
    torch.manual_seed(0)
    render, photo = torch.rand(29, 41, 3), torch.randint(0, 256, (29, 41, 3)).to(torch.uint8)
    mask = torch.rand(29, 41) > 0.3
    mask[:12, :15] = False
    leaves = [render.clone().requires_grad_(), render.double().requires_grad_()]
    ours = photometric_loss(leaves[0], photo, 0.2, kernels, mask=mask)
    expected = loss.photometric_loss(*loss.masked(leaves[1], photo, mask), 0.2)
    (ours + expected).backward()
    assert float(ours.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert leaves[0].grad is not None and leaves[1].grad is not None
    assert not leaves[0].grad[~mask].any()
    assert float((leaves[0].grad - leaves[1].grad).norm() / leaves[1].grad.norm()) <= 1e-5


def test_ssim_is_that_of_float64(kernels: OnCpu) -> None:
    torch.manual_seed(0)
    render, photo = torch.rand(21, 53, 3), torch.randint(0, 256, (21, 53, 3)).to(torch.uint8)
    assert abs(float(ssim(render, photo, kernels) - loss.ssim(render.double(), photo))) <= 1e-5


@pytest.mark.parametrize("num_coefficients", [0, 2, 4, 88])
def test_an_evened_photograph_and_its_loss_are_those_of_float64(num_coefficients: int, kernels: OnCpu) -> None:
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (21, 53, 3)).to(torch.uint8)
    pixels[:5] = 255
    some = [0.8, 1.1, 1.3, 1 / 800, -0.2, 0.1, 0.15, -0.25, 1.1, 1.0, 0.9, *torch.randn(81).mul(0.2).tolist()]
    tone = torch.tensor(some[: 4 + num_coefficients])
    K = torch.tensor([[60.0, 0, 23.5], [0, 60, 12.25], [0, 0, 1]])  # the middle of the vignetting is elsewhere
    render = (torch.rand(21, 53, 3) * 0.9 + 0.05).requires_grad_()
    exact = render.detach().double().requires_grad_()
    target = normalise(render, pixels, tone, K, kernels)
    wanted, evened = posed_image.to_compare(exact, pixels, tone, RenderCamera(torch.eye(4), K, 53, 21))
    photometric_loss(render, target, 0.2, kernels, pixels).backward()
    loss.photometric_loss(wanted, evened).backward()
    assert float((target - evened).abs().max()) <= 1e-5
    assert render.grad is not None and exact.grad is not None
    assert float((render.grad - exact.grad).norm() / exact.grad.norm()) <= 1e-5


def test_kernel_and_python_have_the_same_nodes_of_a_field() -> None:
    assert constant("NODES") == NODES
