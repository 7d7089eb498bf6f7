"""Our blending kernels, run on the CPU lane by lane, draw and derive what the book says, in float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from blending_reference import Derived, Picture, a_picture, derive, reference, relative, rows_of, some_slopes
from emulated_kernels import COMPILER, OnCpu

from splatbatch.training.cuda.blend import Lists, blend

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU"),
    pytest.mark.usefixtures("what_is_not_written_is_nan"),
]

PICTURES = {
    "small ones": lambda: a_picture(60),
    "an odd size": lambda: a_picture(90, (37, 51)),
    "narrower than a warp": lambda: a_picture(40, (5, 3)),
    "one wide row": lambda: a_picture(200, (97, 1)),
    "more than 32 in a tile": lambda: a_picture(150, (20, 20), largest=12.0),
    "more than 256 in a tile": lambda: a_picture(900, (33, 17), largest=4.0, opacity=0.03),
    "opaque ones, which end pixels": lambda: a_picture(300, largest=20.0, opacity=0.95),
    "too opaque ones": lambda: a_picture(100, opacity=1.0),
    "too faint ones": lambda: a_picture(100, opacity=0.0038),
    "huge ones": lambda: a_picture(40, largest=400.0),
    "lists with padding": lambda: a_picture(120, padding=70),
    "none at all": lambda: a_picture(1, opacity=0.001),
    "empty lists": lambda: emptied(a_picture(5)),
    "piles of a pixel each, which end unseen by others": lambda: piled(a_picture(200)),
    "masked tiles": lambda: replace(a_picture(90), masks=torch.tensor([[[True, False, True], [False, True, True]]])),
}


def piled(picture: Picture) -> Picture:
    """Put all Gaussians on three pixels and make them so small that no other pixel sees them."""
    places = torch.tensor([[4.6, 2.4], [6.4, 3.6], [20.6, 17.6]])
    piles = replace(
        picture, means2d=places.repeat(67, 1)[None, :200], conics=torch.tensor([40.0, 3.0, 30.0]).repeat(1, 200, 1)
    )
    tiles = picture.offsets.numel()
    piles.ids = torch.arange(200).int().repeat(tiles)
    piles.offsets = (torch.arange(tiles).int() * 200).view_as(picture.offsets)
    return piles


def emptied(picture: Picture) -> Picture:
    return replace(picture, offsets=torch.zeros_like(picture.offsets), ids=picture.ids[:0])


def ours(picture: Picture, kernels: OnCpu, *, absgrad: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    columns = picture.offsets.shape[-1]
    lists = Lists(picture.offsets, picture.ids, picture.masks, columns, picture.width, picture.height)
    image, alphas = blend(rows_of(picture, absgrad=absgrad), lists, kernels, absgrad=absgrad)
    return image[0], alphas[0, ..., 0]


def both(
    picture: Picture, kernels: OnCpu, *, of_alphas: bool = True, absgrad: bool = False, most: float = 1e-5
) -> tuple[Derived, Derived]:
    """Return ours and the book's, where rounding does not decide; they differ by `most`."""
    sure = reference(picture)[2]
    assert sure.float().mean() > 0.95
    v = some_slopes(picture, sure, of_alphas=of_alphas)
    made = derive(picture, lambda one: ours(one, kernels, absgrad=absgrad), v)
    expected = derive(picture, lambda one: reference(one)[:2], v)
    assert float(((made.image - expected.image).abs() * sure[..., None]).max()) < most
    assert float(((made.alphas - expected.alphas).abs() * sure).max()) < most
    return made, expected


@pytest.mark.all
@pytest.mark.parametrize("named", PICTURES)
def test_what_is_drawn_and_derived_is_what_float64_says(named: str, kernels: OnCpu) -> None:
    # rounding of a polynomial grows with the conic: piles have twelve times the sharpest that projection lets through
    most = 1e-4 if named.startswith("piles") else 1e-5
    made, expected = both(PICTURES[named](), kernels, most=most)
    for name, gradient in expected.gradients.items():
        assert relative(made.gradients[name], gradient) < 10 * most, name


def test_lanes_may_run_in_any_order(kernels: OnCpu) -> None:
    picture = a_picture(300, largest=12.0)
    rising, _ = both(picture, kernels)
    kernels.in_order(-1)
    falling, _ = both(picture, kernels)
    kernels.in_order(1)
    assert torch.equal(rising.image, falling.image)
    for name, gradient in rising.gradients.items():
        assert relative(falling.gradients[name], gradient) < 1e-5, name


def test_alpha_needs_no_gradient(kernels: OnCpu) -> None:
    made, expected = both(a_picture(90), kernels, of_alphas=False)
    for name, gradient in expected.gradients.items():
        assert relative(made.gradients[name], gradient) < 1e-4, name


@pytest.mark.all
def test_absolute_gradients_are_sums_over_pixels_of_absolute_ones(kernels: OnCpu) -> None:
    picture = a_picture(25, (20, 12))
    made, _ = both(picture, kernels, absgrad=True)
    v = some_slopes(picture, reference(picture)[2])
    expected = torch.zeros(1, 25, 2, dtype=torch.float64)
    for y, x in ((y, x) for y in range(12) for x in range(20)):
        alone = torch.zeros(12, 20)
        alone[y, x] = 1
        by_pixel = derive(picture, lambda one: reference(one)[:2], (v[0] * alone[..., None], v[1] * alone))
        expected += by_pixel.gradients["means2d"].abs()
    assert made.absgrad is not None
    assert relative(made.absgrad, expected) < 1e-4


def test_what_lies_behind_the_end_of_a_pixel_learns_nothing_from_it(kernels: OnCpu) -> None:
    picture = piled(a_picture(200, opacity=0.5))  # they end it at 2^-13: one behind would fit
    picture.conics[0, 150:], picture.opacities[0, 150:] = torch.tensor([0.01, 0.0, 0.01]), 0.05  # for all to see
    v = torch.zeros(picture.height, picture.width, 3)
    v[2, 4] = 1  # where 50 lie one behind the other
    made = derive(picture, lambda one: ours(one, kernels), (v, v[..., 0]))
    assert made.gradients["colors"][0, 0].abs().max() > 0
    assert made.gradients["colors"][0, 150:].abs().max() == 0


def test_nothing_is_kept_where_nothing_is_learnt(kernels: OnCpu) -> None:
    picture = a_picture(60)
    picture.means2d.requires_grad_()
    with torch.no_grad():
        image, _ = ours(picture, kernels)
    assert image.grad_fn is None
    assert torch.equal(image, ours(picture, kernels)[0])
