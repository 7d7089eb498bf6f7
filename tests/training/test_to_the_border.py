"""Training to the border: what a patch with a core spends, what is drawn behind it, and that others know of nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cut_scene import halves
from small_patch import STEPS, prepared, recipe, trained

from splatbatch.config import Recipe
from splatbatch.config.schedule import schedule
from splatbatch.errors import TrainerError
from splatbatch.files import read_json, write_json
from splatbatch.hashing import sha256_of
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import PatchFolder
from splatbatch.scene.partition.border import Border, border_of
from splatbatch.scene.partition.boxes import EVERYWHERE, Box
from splatbatch.scene.patches import Patch
from splatbatch.splats import read_splat
from splatbatch.tasks.fingerprint import fingerprint
from splatbatch.training.attempt import prepare, train_attempt
from splatbatch.training.border import ALONE, Boundary, PatchBorder, boundary_init, split_up
from splatbatch.training.evaluation.evaluate import evaluate
from splatbatch.training.gaussians import Parameters, as_parameters, load_splat, values_of
from splatbatch.training.optim import make_optimizers
from splatbatch.training.photos.dataset import TrainingImages, boundary_mask, boundary_mask_of
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.progress import ProgressRecorder
from splatbatch.training.rendering.view import RenderCamera, Rendering
from splatbatch.training.strategies import STRATEGIES, Strategy

CPU = torch.device("cpu")
WIDE = 1e6


def border() -> Border:
    found = border_of(halves(Path()), "p0")
    assert found is not None
    return found


@pytest.fixture
def backdrop(patch: Patch) -> Path:
    """The whole scene, trained coarsely, as an accepted product."""
    whole = replace(patch, name="backdrop", is_whole=True)
    folder, _ = trained(whole, recipe(cap_max=30), "whole-01")
    home = PatchFolder(patch.images.parent / "backdrop")
    home.path.mkdir()
    home.splat.write_bytes(folder.splat.read_bytes())
    write_json(home.result, {"splat": {"sha256": sha256_of(home.splat)}})
    return home.path


@pytest.fixture
def bordered(patch: Patch, backdrop: Path) -> Patch:
    return replace(patch, border=border(), behind=backdrop)


def within(splat: Path, room: Box) -> float:
    return float(room.holds(read_splat(splat).means.astype(np.float64)).mean())


@pytest.mark.all
@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_a_patch_with_a_core_keeps_its_gaussians_within_reach(bordered: Patch, strategy: str) -> None:
    folder, _ = trained(bordered, recipe(strategy=strategy))
    assert bordered.border is not None
    assert within(folder.splat, bordered.border.core) >= 0.75
    assert within(folder.splat, bordered.border.reach) >= 0.95


@pytest.mark.all
@pytest.mark.parametrize(
    ("border", "is_bounded", "num_behind"), [("core", True, 0), ("backdrop", False, 1), ("none", False, 0)]
)
def test_each_part_of_the_border_can_be_turned_off_to_compare(
    bordered: Patch, border: str, is_bounded: bool, num_behind: int
) -> None:
    settings = recipe(border=border)
    folder = prepared(bordered, settings)
    read = prepare(folder.read_settings(), settings, ProgressRecorder(folder.progress, STEPS))
    around = read.views.border
    assert (around.bounds is not None, min(1, around.num_behind)) == (is_bounded, num_behind)
    assert ALONE not in folder.progress.read_text()
    now, usual = (fingerprint(bordered, one) for one in (settings, recipe()))
    assert (bool(now.border), bool(now.backdrop)) == (is_bounded, bool(num_behind))
    assert usual.border and usual.backdrop and usual.recipe != now.recipe


@pytest.mark.all
def test_a_border_around_everything_computes_to_the_bit_what_none_does(bordered: Patch, patch: Patch) -> None:
    room = Box((-WIDE,) * 3, (WIDE,) * 3)
    unbounded = Border(((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)), EVERYWHERE, room)
    for strategy in ("default", "mcmc"):
        plain, _ = trained(patch, recipe(strategy=strategy), f"plain-{strategy}-01")
        bounded, _ = trained(replace(bordered, border=unbounded), recipe(strategy=strategy), f"bounded-{strategy}-01")
        assert sha256_of(plain.splat) == sha256_of(bounded.splat)


@pytest.mark.all
@pytest.mark.parametrize("more", [{}, {"coarse_to_fine": True}, {"antialiased": True}])
def test_trained_twice_against_a_backdrop_is_the_same_splat(bordered: Patch, more: dict[str, bool]) -> None:
    once, again = (trained(bordered, recipe(**more), name)[0] for name in ("once-01", "again-01"))
    assert sha256_of(once.splat) == sha256_of(again.splat)


@pytest.mark.all
def test_the_product_holds_the_patch_alone_and_is_measured_with_the_backdrop(bordered: Patch) -> None:
    folder, splat = trained(bordered, recipe())
    settings = folder.read_settings()
    read = prepare(settings, Recipe.model_validate(settings.recipe), ProgressRecorder(folder.progress, STEPS))
    own = load_splat(read_splat(folder.splat), read.views.frame, CPU)
    drawn = read.views.border.with_backdrop(own)
    assert len(drawn["means"]) == splat.num_gaussians + read.views.border.num_behind
    assert read.views.border.num_behind > 0
    told = splat.metrics["final"]["psnr"]
    holdout = boundary_mask(read.views).holdout
    again, alone = (evaluate(one, holdout, read.recipe) for one in (drawn, own))
    assert again is not None
    assert alone is not None
    assert again["psnr"] == pytest.approx(told, abs=1e-4)
    assert alone["psnr"] < told


@pytest.mark.all
def test_a_patch_answers_for_the_pixels_that_show_it(bordered: Patch) -> None:
    folder = prepared(bordered, recipe(), "attempt-09")
    views = prepare(folder.read_settings(), recipe(), ProgressRecorder(folder.progress, STEPS)).views
    masks = [photo.mask for photo in boundary_mask(opaque(views)).training]
    # cameras at x = 0 to 0.8, 3 before a plane, look along z: x = 0 is at columns 8 to 16
    left, right = (
        [float(mask[8:16, columns].float().mean()) for mask in masks if mask is not None]
        for columns in (slice(0, 6), slice(17, 19))
    )
    assert min(left) >= 0.9
    assert max(right) <= 0.1


@pytest.mark.all
def test_a_thin_backdrop_that_lies_outside_is_not_taken_for_the_patch(bordered: Patch) -> None:
    folder = prepared(bordered, recipe(), "attempt-09")
    views = prepare(folder.read_settings(), recipe(), ProgressRecorder(folder.progress, STEPS)).views
    thin = opaque(views, opacity=-3.0)
    for photo in boundary_mask(thin).training:
        assert photo.mask is not None
        assert float(photo.mask[8:16, 17:19].float().mean()) <= 0.1


def test_before_an_opaque_backdrop_the_share_that_lies_outside_is_what_is_rendered_of_it() -> None:
    outside = torch.linspace(0, 1, 4 * 4).reshape(4, 4)
    photo = PosedImage("a", RenderCamera(torch.eye(4), torch.eye(3), 4, 4), torch.zeros(4, 4, 3, dtype=torch.uint8))
    for alpha, most in ((1.0, 0.5), (0.2, 0.1)):
        shown = Rendering(outside[..., None].repeat(1, 1, 3), torch.full((4, 4, 1), alpha), {})
        mask = boundary_mask_of(photo, shown).mask
        assert mask is not None
        assert torch.equal(mask, outside <= most)


def opaque(views: TrainingImages, opacity: float = 8.0) -> TrainingImages:
    """Views before a backdrop without gaps, thin where its opacity says so."""
    around = views.border

    def wall(values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        size = math.log(0.3 / views.frame.scale)
        return {
            **values,
            "opacities": torch.full_like(values["opacities"], opacity),
            "scales": torch.full_like(values["scales"], size),
        }

    return replace(
        views,
        border=replace(around, backdrop=wall(around.backdrop), backdrop_inside=wall(around.backdrop_inside)),
    )


@pytest.mark.all
def test_what_a_mask_ignores_stays_ignored_before_a_backdrop(bordered: Patch) -> None:
    folder = prepared(bordered, recipe(), "attempt-09")
    views = prepare(folder.read_settings(), recipe(), ProgressRecorder(folder.progress, STEPS)).views
    nothing_on_top = torch.ones(views.training[0].pixels.shape[:2], dtype=torch.bool)
    nothing_on_top[:5] = False
    masked = replace(views, training=(replace(views.training[0], mask=nothing_on_top),))
    seen = boundary_mask(masked).training[0].mask
    assert seen is not None
    assert not seen[:5].any()
    assert seen.any()


def test_without_a_backdrop_the_views_are_left_as_they_are(patch: Patch) -> None:
    folder = prepared(patch, recipe(), "attempt-09")
    views = prepare(folder.read_settings(), recipe(), ProgressRecorder(folder.progress, STEPS)).views
    assert boundary_mask(views) is views


@pytest.mark.all
def test_a_backdrop_is_drawn_and_never_moves(bordered: Patch) -> None:
    folder = prepared(bordered, recipe(), "attempt-09")
    read = prepare(folder.read_settings(), recipe(), ProgressRecorder(folder.progress, STEPS))
    around = read.views.border
    assert not any(value.requires_grad for value in around.backdrop.values())
    assert bordered.border is not None
    assert around.bounds is not None
    assert not around.bounds.contains(around.backdrop["means"]).any()
    assert around.bounds.contains(read.gaussians["means"]).all()


@pytest.mark.all
def test_without_its_backdrop_a_patch_trains_as_others_do_and_says_so(patch: Patch) -> None:
    lost = replace(patch, border=border(), behind=patch.images.parent / "nowhere")
    folder, _ = trained(lost, recipe())
    plain, _ = trained(patch, recipe(), "attempt-02")
    assert sha256_of(folder.splat) == sha256_of(plain.splat)
    assert ALONE in [line.warning for line in folder.read_progress()]


@pytest.mark.all
def test_a_backdrop_that_changed_since_the_patch_was_started_ends_it(bordered: Patch) -> None:
    folder = prepared(bordered, recipe(), "attempt-09")
    assert bordered.behind is not None
    PatchFolder(bordered.behind).splat.write_bytes(b"another")
    with pytest.raises(TrainerError, match="backdrop is missing or has changed"):
        train_attempt(folder)


@pytest.mark.all
def test_a_checkpoint_goes_on_to_the_bit_against_the_same_backdrop_and_no_other(bordered: Patch) -> None:
    whole, _ = trained(bordered, recipe(), "whole-02")
    folder = prepared(bordered, recipe(checkpoint_every=STEPS // 2), "attempt-11")
    kept = folder.path / "kept.pt"
    _train_keeping(folder, kept)
    assert "backdrop" not in json.dumps(sorted(torch.load(kept, weights_only=True)["run"]))
    resumed = _resumed(bordered, kept, "attempt-12")
    assert sha256_of(resumed.splat) == sha256_of(whole.splat)
    other = _resumed(replace(bordered, behind=None), kept, "attempt-13")
    assert any("of other settings or photographs" in (line.warning or "") for line in other.read_progress())


def _train_keeping(folder: AttemptFolder, kept: Path) -> None:
    """Train, and keep the checkpoint, which a training that has ended removes."""
    kept.touch()
    folder.checkpoint.unlink(missing_ok=True)
    kept.unlink()
    unlink = Path.unlink

    def keeping(path: Path, missing_ok: bool = False) -> None:
        if path == folder.checkpoint:
            path.rename(kept)
        else:
            unlink(path, missing_ok=missing_ok)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "unlink", keeping)
        train_attempt(folder)


def _resumed(patch: Patch, checkpoint: Path, name: str) -> AttemptFolder:
    folder = prepared(patch, recipe(), name)
    record = read_json(folder.settings)
    write_json(folder.settings, {**(record or {}), "resume": str(checkpoint)})
    train_attempt(folder)
    return folder


def bounds(lower: float = 0.0, upper: float = math.inf, margin: float = 0.1) -> Boundary:
    """A core from `lower` to `upper` along x, and its reach."""
    core = torch.tensor([[lower, -math.inf, -math.inf], [upper, math.inf, math.inf]])
    reach = torch.tensor([[lower - margin, -9.0, -9.0], [min(upper, 9.0), 9.0, 9.0]])
    return Boundary(torch.eye(3), core, reach, margin)


def some(num: int = 40) -> Parameters:
    generator = torch.Generator().manual_seed(1)
    shapes = {"means": (3,), "scales": (3,), "quats": (4,), "opacities": (), "sh0": (1, 3), "shN": (15, 3)}
    return as_parameters({name: torch.randn(num, *shape, generator=generator) for name, shape in shapes.items()}, CPU)


def a_strategy(name: str, gaussians: Parameters, around: PatchBorder) -> tuple[Strategy, int]:
    settings = recipe(strategy=name, cap_max=60, max_steps=7000)
    plan = schedule(settings)
    optimizers = make_optimizers(gaussians, settings, plan, 1.0)
    strategy = STRATEGIES[name](gaussians, optimizers, settings, plan, 1.0, around)
    due = next(step for step in range(plan.refine_start + 1, plan.max_steps) if step % plan.refine_every == 0)
    return strategy, due


@pytest.mark.parametrize("name", ["default", "mcmc"])
def test_refining_leaves_nothing_outside_and_keeps_to_the_cap(name: str) -> None:
    gaussians = some()
    strategy, due = a_strategy(name, gaussians, PatchBorder(bounds()))
    assert not bounds().contains(gaussians["means"]).all()
    strategy.refine(due)
    assert bounds().contains(gaussians["means"]).all()
    assert 0 < len(gaussians["means"]) <= 60


def test_no_gaussian_reaches_over_the_border_by_more_than_the_margin() -> None:
    gaussians, room = some(), bounds()
    PatchBorder(room).clamp_scales(gaussians)
    x, largest = gaussians["means"][:, 0], gaussians["scales"].exp().amax(dim=1)
    is_inside = x >= 0
    assert (3 * largest[is_inside] <= x[is_inside].clamp_min(room.margin) * 1.0001).all()
    assert (3 * largest[~is_inside] <= x[~is_inside].abs().clamp_min(room.margin) * 1.0001).all()


def test_what_is_too_large_near_a_border_becomes_parts_that_fill_the_same_place() -> None:
    values, room = {name: value.detach() for name, value in some().items()}, bounds()
    pieces, origin, is_part = split_up(values, room)
    assert is_part.any() and not is_part.all()
    assert torch.equal(pieces["means"][~is_part], values["means"][origin[~is_part]])
    assert torch.equal(pieces["sh0"], values["sh0"][origin])
    away = (pieces["means"] - values["means"][origin])[is_part].norm(dim=1)
    widest = values["scales"].exp().amax(dim=1)[origin][is_part]
    assert (away <= 5 * widest).all() and (away > 0.1 * widest).any()
    assert len(origin) <= 2 * len(values["means"])


@pytest.mark.all
def test_a_patch_begins_with_parts_of_the_backdrop_and_is_drawn_before_none_that_the_crop_takes(
    bordered: Patch,
) -> None:
    settings = recipe()
    folder = prepared(bordered, settings)
    told = folder.read_settings()
    read = prepare(told, settings, ProgressRecorder(folder.progress, STEPS))
    around = read.views.border
    assert around.bounds is not None and len(around.boundary_init["means"])
    assert around.bounds.contains(around.boundary_init["means"]).all()
    points = int(around.bounds.contains(torch.as_tensor(read.gaussians["means"])).sum()) - len(
        around.boundary_init["means"]
    )
    assert 0 < points < len(read.gaussians["means"])
    whole = values_of(read_splat(Path(told.backdrop)), read.views.frame)
    outside = whole["means"][~around.bounds.contains(whole["means"])]
    assert around.num_behind and all((outside - one).norm(dim=1).min() < 3 for one in around.backdrop["means"])
    assert len(boundary_init(read.gaussians, around.boundary_init, cap=3)["means"]) == len(read.gaussians["means"]) + 1


def test_a_part_is_held_where_it_lies_and_shines_no_further_over_the_border_than_others() -> None:
    values, room = {name: value.detach() for name, value in some().items()}, bounds()
    values["means"][:, 0] -= 4.0  # far outside, where much is allowed, and large enough to have parts beside the core
    values["scales"] += 1.0
    pieces, _, _ = split_up(values, room)
    x, reach = pieces["means"][:, 0], 3 * pieces["scales"].exp().amax(dim=1)
    assert (x.abs() < 0.5).any()
    assert (reach <= 1.0001 * x.abs().clamp_min(room.margin)).all()


def test_where_a_margin_is_much_wider_than_a_gaussian_the_backdrop_is_left_as_it_is() -> None:
    values, room = {name: value.detach() for name, value in some().items()}, bounds()
    values["scales"] -= 9.0
    pieces, _, is_part = split_up(values, room)
    assert not is_part.any()
    torch.testing.assert_close(pieces, values, rtol=1e-6, atol=0.0)


def test_deep_inside_nothing_is_made_smaller() -> None:
    gaussians = some()
    before = gaussians["scales"].detach().clone()
    PatchBorder(bounds(lower=-1e3)).clamp_scales(gaussians)
    assert torch.equal(gaussians["scales"], before)


def test_what_is_drawn_behind_counts_for_no_refinement() -> None:
    own, behind = some(30), {name: value.detach() for name, value in some(12).items()}
    strategy, _ = a_strategy("default", own, PatchBorder(bounds(), behind))
    drawn = PatchBorder(bounds(), behind).with_backdrop(own)
    assert torch.equal(drawn["means"][:30], own["means"])
    state = strategy.state()
    strategy.step_post_backward(_seen(42), torch.tensor(0.0))
    state = strategy.state()
    assert state["count"].tolist() == [1.0] * 30
    assert (state["grad2d"] > 0).all()


def _seen(num: int):  # type: ignore[no-untyped-def]
    """A rendering that shows all of `num` Gaussians, after its backward pass."""
    means2d = torch.rand(1, num, 2, requires_grad=True)
    means2d.grad = torch.ones_like(means2d)
    info = {"means2d": means2d, "radii": torch.ones(1, num, 2), "width": 4, "height": 4, "n_cameras": 1}
    return Rendering(torch.zeros(4, 4, 3), torch.zeros(4, 4, 1), {**info, "gaussian_ids": None})


@pytest.mark.all
def test_points_outside_the_reach_start_nothing(bordered: Patch) -> None:
    folder = prepared(bordered, recipe(cap_max="2x"), "attempt-09")
    read = prepare(folder.read_settings(), recipe(cap_max="2x"), ProgressRecorder(folder.progress, STEPS))
    num_cover = min(36 // 3, len(read.views.border.boundary_init["means"]))
    assert len(read.gaussians["means"]) == 18 + num_cover  # of 6 x 6 points half lie below x = 0
    assert read.recipe.training.cap_max == 36
