"""Exposures: found where photographs differ, the identity where they do not, and never in the common look."""

from __future__ import annotations

import copy

import pytest
import torch
from PIL import Image as Pillow
from small_patch import recipe, trained
from torch import Tensor

from splatbatch.scene.patches import Patch
from splatbatch.training.photos.exposure import Exposures
from splatbatch.training.photos.views import Photo
from splatbatch.training.rendering.rasterize import View

GAINS = {"dark.jpg": 0.7, "fair.jpg": 1.0, "light.jpg": 1.3}


def photos() -> list[Photo]:
    view = View(torch.eye(4), torch.eye(3), 8, 6)
    return [Photo(name, view, torch.zeros(6, 8, 3, dtype=torch.uint8)) for name in GAINS]


def scene() -> Tensor:
    return torch.rand(6, 8, 3, generator=torch.Generator().manual_seed(1))


def learn(exposures: Exposures, colors: Tensor, passes: int) -> None:
    for _ in range(passes):
        for name, gain in GAINS.items():
            (exposures.apply(colors, name) - gain * scene()).abs().mean().backward()
            exposures.step()


def test_it_begins_as_if_it_were_not_there() -> None:
    assert torch.equal(Exposures(photos(), 10).apply(scene(), "dark.jpg"), scene())


def test_photographs_of_other_exposures_are_matched() -> None:
    exposures = Exposures(photos(), 300)
    learn(exposures, scene(), 100)
    for name, gain in GAINS.items():
        assert (exposures.apply(scene(), name) - gain * scene()).abs().mean() < 0.02


def test_what_all_have_in_common_is_left_to_the_gaussians() -> None:
    exposures = Exposures(photos(), 300)
    learn(exposures, 0.5 * scene(), 100)
    mean = torch.stack([exposures.apply(scene(), name) for name in GAINS]).mean(dim=0)
    assert torch.allclose(mean, scene(), atol=1e-4)


def test_a_step_moves_the_photo_that_was_shown_and_no_other() -> None:
    exposures = Exposures(photos(), 100)
    for name in ("dark.jpg", "light.jpg"):
        exposures.apply(scene(), name).sum().backward()
        exposures.step()
    assert torch.equal(exposures.apply(scene(), "fair.jpg"), scene())
    assert not torch.equal(exposures.apply(scene(), "dark.jpg"), scene())


def test_gaussians_are_told_through_the_transform() -> None:
    exposures, colors = Exposures(photos(), 100), scene().requires_grad_()
    exposures.apply(colors, "dark.jpg").sum().backward()
    assert colors.grad is not None and colors.grad.eq(1).all()


@pytest.mark.parametrize("passes", [1, 7])
def test_it_goes_on_from_its_state_as_if_it_had_never_stopped(passes: int) -> None:
    one, other = Exposures(photos(), 300), Exposures(photos(), 300)
    learn(one, scene(), passes)
    other.restore(copy.deepcopy(one.state()))
    for exposures in (one, other):
        learn(exposures, scene(), 3)
    assert torch.equal(one.state()["values"], other.state()["values"])


def test_photographs_that_differ_in_exposure_give_a_better_splat_with_it(patch: Patch) -> None:
    for number, path in enumerate(sorted(patch.images.iterdir())):
        gain = 1.0 if path.name in ("img0.png", "img8.png") else 0.75 + 0.5 * (number % 2)
        Pillow.open(path).point(lambda value, gain=gain: round(min(255, 0.8 * gain * value))).save(path)
    settings = {"strategy": "default", "max_steps": 150}
    without, with_it = (trained(patch, recipe(exposure=on, **settings), f"a-{on:d}")[1] for on in (False, True))
    print(without.metrics["final"]["psnr"], with_it.metrics["final"]["psnr"])
    assert with_it.metrics["final"]["psnr"] > without.metrics["final"]["psnr"]
