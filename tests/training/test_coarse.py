"""Coarse to fine: which sizes, when, how many Gaussians; and that small photographs are what large ones show."""

from __future__ import annotations

from itertools import product
from statistics import fmean

import numpy as np
import pytest
import torch
from cpu_scenes import view
from small_patch import recipe, trained

from splatbatch.config.schedule import schedule
from splatbatch.scene.patches import Patch
from splatbatch.training.frame import LocalFrame
from splatbatch.training.photos import coarse
from splatbatch.training.photos.coarse import (
    CoarseStage,
    CoarseToFine,
    Pyramid,
    content_of,
    contents,
    plan_sizes,
    stages,
)
from splatbatch.training.photos.dataset import TrainingImages
from splatbatch.training.photos.posed_image import PosedImage, shrink
from splatbatch.training.rendering.rasterize import rasterize


def photo(height: int, width: int, detail: float, name: str = "a.png") -> PosedImage:
    """Waves of one direction each, whose height falls with their frequency the more, the less detail there is."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    grey = sum(
        k**-detail * torch.sin(2 * torch.pi * (k * rows / height + 0.7 * k * columns / width)) for k in range(1, 128)
    )
    pixels = (128 + 40 * grey / grey.abs().max()).to(torch.uint8)[..., None].expand(-1, -1, 3)
    return PosedImage(name, view(width=width, height=height), pixels.contiguous())


def test_sharper_photographs_come_to_their_full_size_later() -> None:
    sharp, soft = (contents([photo(256, 256, detail)]) for detail in (0.5, 2.0))
    assert list(sharp) == [4, 3, 2]
    assert all(soft[factor] > sharp[factor] for factor in sharp)
    assert soft[4] < soft[3] < soft[2] < 1


def test_the_stages_go_from_coarse_to_fine_and_leave_out_sizes_that_show_too_little() -> None:
    planned = stages({8: 0.1, 4: 0.3, 2: 0.6}, 1000)
    assert planned == (CoarseStage(4, 300), CoarseStage(2, 600))
    sizes = CoarseToFine(planned, first=100, cap_max=900, max_steps=1000)
    assert [sizes.factor(step) for step in (0, 299, 300, 599, 600, 999)] == [4, 4, 2, 2, 1, 1]


def test_the_budget_grows_with_the_pixels_up_to_the_cap() -> None:
    sizes = CoarseToFine((CoarseStage(4, 300), CoarseStage(2, 600)), first=100, cap_max=900, max_steps=1000)
    budgets = [sizes.budget(step) for step in range(1000)]
    assert budgets == sorted(budgets)
    assert budgets[0] == 100 + 800 / 16
    assert budgets[600] == budgets[-1] == 900


@pytest.mark.parametrize("stages", [(), (CoarseStage(4, 300), CoarseStage(2, 600))])
def test_more_sparse_points_than_the_cap_do_not_raise_it(stages: tuple[CoarseStage, ...]) -> None:
    sizes = CoarseToFine(stages, first=5000, cap_max=900, max_steps=1000)
    assert {sizes.budget(step) for step in range(1000)} == {900}


def test_unless_asked_for_every_photograph_is_as_it_is() -> None:
    settings, photos = recipe(), [photo(256, 256, 1.0)]
    frame, content = LocalFrame(np.zeros(3), scale=1.0, scene_scale=1.0), content_of(photos, settings)
    sizes = plan_sizes(
        TrainingImages(tuple(photos), (), frame, (), {}, content=content), settings, schedule(settings), 10
    )
    assert sizes.stages == ()
    assert Pyramid(sizes).at(0, photos[0]) is photos[0]
    assert sizes.budget(0) == settings.training.cap_max


@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_photographs_are_large_by_the_middle_of_a_run(strategy: str) -> None:
    """mcmc refines on to five sixths of a run: photographs that grow as long leave it too few full pixels."""
    settings, photos = recipe(strategy=strategy, max_steps=6000, coarse_to_fine=True), [photo(256, 256, 1.0)]
    frame, content = LocalFrame(np.zeros(3), scale=1.0, scene_scale=1.0), content_of(photos, settings)
    views = TrainingImages(tuple(photos), (), frame, (), {}, content=content)
    sizes = plan_sizes(views, settings, schedule(settings), 10)
    assert len(sizes.stages) == 3
    assert 2000 < sizes.stages[-1].until <= 3000


@pytest.mark.parametrize(("strategy", "shrinks"), [("default", True), ("mcmc", False)])
def test_unless_told_otherwise_it_is_for_default_alone(strategy: str, *, shrinks: bool) -> None:
    settings, photos = recipe(strategy=strategy), (photo(256, 256, 1.0),)
    assert bool(stages(content_of(photos, settings), schedule(settings).full_size_at)) is shrinks


def test_too_small_photographs_are_not_shrunk_and_none_are_no_fault() -> None:
    assert contents([photo(100, 256, 1.0)]) == contents([]) == {}


@pytest.mark.parametrize("factor", [2, 3, 8])
def test_pixels_are_means_and_the_far_edge_takes_what_there_is(factor: int) -> None:
    large = photo(64, 50, 1.0)
    small = shrink(large, factor)
    rows, columns = -(-64 // factor), -(-50 // factor)
    assert (small.pixels.shape, small.view.height, small.view.width) == ((rows, columns, 3), rows, columns)
    corner = large.pixels[(rows - 1) * factor :, (columns - 1) * factor :].float().mean(dim=(0, 1))
    assert torch.allclose(small.pixels[-1, -1].float(), corner, atol=0.51)


def test_a_small_photograph_shows_what_its_camera_sees() -> None:
    generator = torch.Generator().manual_seed(0)
    num = 60
    blobs = {
        "means": torch.randn(num, 3, generator=generator) * 0.5 + torch.tensor([0.0, 0.0, 4.0]),
        "quats": torch.randn(num, 4, generator=generator),
        "scales": torch.full((num, 3), -1.2),
        "opacities": torch.zeros(num),
        "sh0": torch.randn(num, 1, 3, generator=generator) * 0.5,
        "shN": torch.zeros(num, 15, 3),
    }
    where = view(width=192, height=128)
    where.K[:2] *= 4
    large = rasterize(blobs, where).colors.clamp(0, 1)
    small = shrink(PosedImage("a", where, (255 * large).round().to(torch.uint8)), 4)
    again = rasterize(blobs, small.view).colors.clamp(0, 1)
    assert float((again - small.pixels.float() / 255).abs().mean()) < 0.004


def test_a_photograph_is_made_small_once_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(coarse, "shrink", lambda one, factor: made.append(factor) or shrink(one, factor))
    pyramid = Pyramid(CoarseToFine((CoarseStage(4, 5), CoarseStage(2, 10)), 1, 1, 20))
    sizes = [pyramid.at(step, photo(64, 64, 1.0, f"{step % 2}")).view.width for step in range(12)]
    assert sizes == [16] * 5 + [32] * 5 + [64] * 2
    assert made == [4, 4, 2, 2]


@pytest.mark.all
@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_a_coarse_to_fine_training_is_as_good(patch: Patch, monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    monkeypatch.setattr(coarse, "SMALLEST_PX", 8)
    figures: dict[bool, list[float]] = {False: [], True: []}
    for wanted, seed in product(figures, (1, 2, 3)):  # a seed alone may be 1 dB off
        asked = recipe(strategy=strategy, coarse_to_fine=wanted, seed=seed)
        figures[wanted].append(trained(patch, asked, f"a-{wanted}-{seed}")[1].metrics["final"]["psnr"])
    assert fmean(figures[True]) > fmean(figures[False]) - 1


@pytest.mark.all
@pytest.mark.parametrize(("strategy", "wanted"), [("default", True), ("mcmc", False)])
def test_unless_told_otherwise_a_training_is_that_of_its_strategy(
    patch: Patch, monkeypatch: pytest.MonkeyPatch, strategy: str, *, wanted: bool
) -> None:
    monkeypatch.setattr(coarse, "SMALLEST_PX", 8)
    folders = [
        trained(patch, recipe(strategy=strategy, max_steps=40, coarse_to_fine=one), f"a-{one}")[0]
        for one in ("auto", wanted, not wanted)
    ]
    unset, same, other = (folder.splat.read_bytes() for folder in folders)
    assert unset == same != other
