"""What Gaussians are worth to photographs, and which of them are removed for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cpu_scenes import view
from small_patch import recipe, trained
from torch import Tensor

from splatbatch.config import Recipe
from splatbatch.config.schedule import schedule
from splatbatch.scene.patches import Patch
from splatbatch.training.border import NONE, PatchBorder
from splatbatch.training.optim import make_optimizers
from splatbatch.training.photos.posed_image import PosedImage, in_tone
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions
from splatbatch.training.strategies import importance
from splatbatch.training.strategies.default import Default
from splatbatch.training.strategies.importance import Importance, PruningViews, prunable

OPAQUE = 25.0
"""A logit whose sigmoid is 1 in float32."""


def gaussians(num: int = 12, seed: int = 0) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {
        "means": torch.randn(num, 3, generator=random) * 0.5 + torch.tensor([0.0, 0.0, 4.0]),
        "quats": torch.randn(num, 4, generator=random),
        "scales": 0.3 * torch.randn(num, 3, generator=random) - 1.0,
        "opacities": torch.randn(num, generator=random),
        "sh0": torch.randn(num, 1, 3, generator=random),
        "shN": torch.zeros(num, 0, 3),
    }


def photo(of: dict[str, Tensor], mask: Tensor | None = None) -> PosedImage:
    where = view()
    pixels = (255 * rasterize(of, where, RasterOptions(0)).colors.clamp(0, 1)).round().to(torch.uint8)
    return PosedImage("a.png", where, pixels, mask)


def album(*photos: PosedImage, **more: Any) -> PruningViews:
    return PruningViews(photos, RasterOptions(0), **more)


def without(all_of_them: dict[str, Tensor], which: Tensor) -> dict[str, Tensor]:
    return {name: value[~which] for name, value in all_of_them.items()}


def measured(all_of_them: dict[str, Tensor], one: PosedImage, around: PatchBorder = NONE) -> Tensor:
    """The same by leaving out each Gaussian and drawing again."""

    def draw(some: dict[str, Tensor]) -> Tensor:
        return rasterize(around.with_backdrop(some), one.view, RasterOptions(0)).colors

    colors, each = draw(all_of_them), torch.eye(len(all_of_them["means"]), dtype=torch.bool)
    drawn = [draw(without(all_of_them, out)) for out in each]
    valid = torch.ones(colors.shape[:2]) if one.mask is None else one.mask.float()
    return torch.stack([((colors - other).square().sum(-1) * valid).sum() for other in drawn])


def in_the_mean(all_of_them: dict[str, Tensor], one: PosedImage, **more: Any) -> Tensor:
    drawn = [album(one, seed=seed, **more).importance(all_of_them).total for seed in range(400)]
    return torch.stack(drawn).mean(0)


@pytest.mark.all
def test_importance_is_the_change_of_the_picture_that_leaving_one_out_makes() -> None:
    some = gaussians()
    estimated, exact = in_the_mean(some, photo(some)), measured(some, photo(some))
    assert torch.allclose(estimated, exact, rtol=0.25, atol=0.01 * float(exact.max()))
    assert float(exact.min()) < 0.1 * float(exact.max())  # there is something to tell apart


@pytest.mark.all
def test_an_opaque_gaussian_is_as_important_as_it_looks() -> None:
    some = gaussians()
    some["opacities"][3] = OPAQUE
    estimated, exact = in_the_mean(some, photo(some)), measured(some, photo(some))
    assert float(estimated[3]) == pytest.approx(float(exact[3]), rel=0.25)


@pytest.mark.all
def test_pixels_that_do_not_count_make_nothing_important() -> None:
    some, mask = gaussians(), torch.ones(32, 48, dtype=torch.bool)
    mask[:, 20:] = False
    one = photo(some, mask)
    estimated, exact = in_the_mean(some, one), measured(some, one)
    assert torch.allclose(estimated, exact, rtol=0.25, atol=0.01 * float(exact.max()))
    nothing = photo(some, torch.zeros_like(mask))
    assert not album(nothing).importance(some).total.any()


def test_an_evened_photograph_is_compared_in_the_colours_of_the_scene() -> None:
    some, where = gaussians(), view()
    tone = torch.tensor([0.5, 0.6, 0.7, 4 / (where.width**2 + where.height**2), -0.1, 0.05])
    colors = rasterize(some, where, RasterOptions(0)).colors.clamp(0, 1)
    taken = (255 * in_tone(colors, tone, where)).round().to(torch.uint8)
    evened, as_it_is = (PosedImage("a.png", where, taken, correction=one) for one in (tone, None))
    assert 50 * album(evened).error(some, (evened,)) < album(as_it_is).error(some, (as_it_is,))


@pytest.mark.all
def test_before_a_backdrop_the_patchs_own_are_judged_by_the_whole_picture() -> None:
    some, around = gaussians(), PatchBorder(backdrop=gaussians(20, seed=1))
    estimated, exact = in_the_mean(some, photo(some), border=around), measured(some, photo(some), around)
    assert estimated.shape == (12,)
    assert torch.allclose(estimated, exact, rtol=0.25, atol=0.01 * float(exact.max()))
    assert not torch.allclose(exact, measured(some, photo(some)), rtol=0.25)  # what the backdrop hides counts less


def test_a_backdrop_is_drawn_where_a_removal_is_judged_and_stays_whole() -> None:
    some, behind = gaussians(60), gaussians(20, seed=1)
    around = PatchBorder(backdrop=behind)
    leaves = prunable(some, album(photo(dict(around.with_backdrop(some))), border=around), 1.0)
    assert leaves.shape == (60,) and leaves.any()
    assert len(behind["means"]) == 20


def test_what_no_photograph_shows_goes_first_and_costs_nothing() -> None:
    some = gaussians()
    some["means"][:3, 2] = -5.0  # behind the camera
    leaves = prunable(some, album(photo(some)), 1e-6)
    assert leaves[:3].all()


@pytest.mark.parametrize("loss_db", [0.1, 1.0])
def test_no_more_is_lost_than_allowed_and_one_more_would_be_too_much(loss_db: float) -> None:
    some = gaussians(60)
    noisy = {**some, "sh0": some["sh0"] + 0.3}
    judge = album(photo(noisy))
    leaves = prunable(some, judge, loss_db)
    before, after = (judge.error(kept, judge.photos) for kept in (some, without(some, leaves)))
    assert 0 < int(leaves.sum()) < 45
    assert after <= before * 10 ** (loss_db / 10)


def test_the_same_seed_removes_the_same() -> None:
    some, judge = gaussians(60), album(photo(gaussians(60, seed=2)), seed=3)
    assert prunable(some, judge, 0.5).equal(prunable(some, judge, 0.5))


def test_a_part_stays_however_much_may_be_lost() -> None:
    assert int(prunable(gaussians(100), album(photo(gaussians())), 1e3).sum()) <= 100 * importance.MOST_PRUNED


def test_what_one_photograph_alone_needs_goes_before_what_two_need() -> None:
    worth = Importance(total=torch.tensor([9.0, 4.0, 0.0, 1.0]), max_over_views=torch.tensor([9.0, 2.0, 0.0, 1.0]))
    assert worth.order().tolist() == [2, 3, 0, 1]


def test_of_one_photograph_the_least_important_go() -> None:
    some = gaussians(60)
    judge = album(photo(some))
    leaves, total = prunable(some, judge, 1.0), judge.importance(some).total
    assert float(total[leaves].max()) <= float(total[~leaves].min())


@pytest.mark.parametrize(("loss_db", "steps", "prunes"), [(5.0, 3000, True), (0.0, 3000, False), (5.0, 2999, False)])
def test_a_run_that_is_long_enough_is_pruned_when_refining_ends(loss_db: float, steps: int, *, prunes: bool) -> None:
    some = {name: torch.nn.Parameter(value) for name, value in gaussians(60).items()}
    settings = Recipe.model_validate(
        {
            "training": {"strategy": "default", "max_steps": steps, "cap_max": 100},
            "refinement": {"prune_loss_db": loss_db},
        }
    )
    plan = schedule(settings)
    views = album(photo(gaussians(60)))
    rule = Default(some, make_optimizers(some, settings, plan, 1.0), settings, plan, 1.0, pruning_views=views)
    rule.refine(plan.refine_stop)
    assert (len(some["means"]) < 60) is prunes
    rule.refine(plan.refine_stop + 1)  # nothing more
    assert len(rule.state()["count"]) == len(some["means"])


@pytest.mark.all
def test_a_training_ends_with_fewer_gaussians_and_nearly_as_good_a_picture(
    patch: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splatbatch.config.schedule.WARM_UP_STEPS", 100)
    ends = []
    for loss_db in (0.0, 0.05):
        tree = recipe(strategy="default", max_steps=120).model_dump()
        settings = Recipe.model_validate(tree | {"refinement": {"prune_loss_db": loss_db}})
        ends.append(trained(patch, settings, f"a-{loss_db}")[1])
    assert ends[1].num_gaussians < 0.9 * ends[0].num_gaussians
    assert ends[1].metrics["final"]["psnr"] > ends[0].metrics["final"]["psnr"] - 1
