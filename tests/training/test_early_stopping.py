"""A training ends at the plateau of its held-out photographs, by its own rules, and says what that saved."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_patch import recipe, trained
from test_checkpoint import died

from splatbatch.config import Recipe
from splatbatch.files import MIB, read_lines
from splatbatch.outcome import Splat
from splatbatch.output.records.metrics import Metrics
from splatbatch.scene.patches import Patch
from splatbatch.splats import read_header
from splatbatch.training.cuda_graph import GraphedStep
from splatbatch.training.evaluation.early_stopping import StoppingRule
from splatbatch.training.evaluation.windows import StoppingWindows, psnr_in, window_of
from splatbatch.training.gaussians import Parameters, as_parameters
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera
from splatbatch.training.step import Step

STEPS = 60
EASY = {"stop_after": 1, "least_gain_db": 99.0}
"""With these whatever is checked over a fifth of the run so far is a plateau."""
AT_ITS_CAP = 36
"""Gaussians: the scene begins with as many."""


def early(strategy: str = "mcmc", evaluation: dict[str, Any] | None = None, **training: Any) -> Recipe:
    tree = recipe(**{"max_steps": STEPS, "strategy": strategy, "sh_degree": 0, **training}).model_dump()
    return Recipe.model_validate({**tree, "evaluation": {**EASY, **(evaluation or {})}})


def photo(name: str, width: int = 40, height: int = 30, mask: torch.Tensor | None = None) -> PosedImage:
    K = torch.tensor([[30.0, 0, width / 2], [0, 30.0, height / 2], [0, 0, 1]])
    pixels = torch.randint(0, 256, (height, width, 3), generator=torch.Generator().manual_seed(len(name))).byte()
    return PosedImage(name, RenderCamera(torch.eye(4), K, width, height), pixels, mask)


def cloud() -> Parameters:
    random = torch.Generator().manual_seed(3)
    means = torch.rand(200, 3, generator=random) * torch.tensor([4.0, 3.0, 1.0]) - torch.tensor([2.0, 1.5, -2.5])
    values = {
        "means": means,
        "scales": torch.full((200, 3), -3.0),
        "quats": torch.tensor([[1.0, 0, 0, 0]]).repeat(200, 1),
        "opacities": torch.zeros(200),
        "sh0": torch.rand(200, 1, 3, generator=random),
        "shN": torch.zeros(200, 0, 3),
    }
    return as_parameters(values, torch.device("cpu"))


@pytest.mark.all
@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_a_run_at_its_plateau_ends_after_a_tail_and_leaves_a_whole_splat(patch: Patch, strategy: str) -> None:
    settings = early(strategy, cap_max=AT_ITS_CAP)
    folder, splat = trained(patch, settings)
    told = splat.metrics["early_stopping"]
    assert (
        told["tail_from"] < splat.step == told["ended_at"] == told["tail_from"] + StoppingRule.of(settings).tail < STEPS
    )
    assert read_header(folder.splat).planned == STEPS
    assert f"comment splatbatch step {splat.step} of {STEPS}, stopped early\n".encode() in folder.splat.read_bytes()
    assert splat.metrics["final"]["step"] == splat.step
    record = Metrics.from_record(splat.metrics).early_stopping
    assert record is not None
    assert record.in_words().startswith(f"ended early, when it improved no more, after {splat.step} of {STEPS} steps")
    assert [one["max_steps"] for one in read_lines(folder.progress)][-1] == splat.step


@pytest.mark.all
def test_mcmc_refines_no_more_in_its_tail(patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    refined: list[int] = []
    of_step = Step.refine

    def refine(self: Step, step: int) -> bool:
        has_changed = of_step(self, step)
        refined.extend([step] if has_changed else [])
        return has_changed

    monkeypatch.setattr(Step, "refine", refine)
    tree = early(cap_max=60, max_steps=120).model_dump() | {"refinement": {"refine_start_iter": 0, "refine_every": 1}}
    _, splat = trained(patch, Recipe.model_validate(tree))
    assert refined[-1] + 1 == splat.metrics["early_stopping"]["tail_from"] < 100  # by its schedule it goes on to 100


@pytest.mark.all(but="default-early")
@pytest.mark.parametrize("evaluation", [{}, {"stop_after": 0}], ids=["early", "whole"])
@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_in_the_tail_all_learning_rates_fall_to_a_hundredth(
    patch: Patch, monkeypatch: pytest.MonkeyPatch, strategy: str, evaluation: dict[str, Any]
) -> None:
    rates: list[dict[str, float]] = []
    of_step = Step.update

    def update(self: Step, rendering: Any) -> None:
        rates.append(rates_of(self))
        of_step(self, rendering)
        rates.append(rates_of(self))

    monkeypatch.setattr(Step, "update", update)
    settings = early(strategy, evaluation)
    _, splat = trained(patch, settings)
    steps = list(zip(rates[::2], rates[1::2], strict=True))
    tail = StoppingRule.of(settings).tail
    assert len(steps) == splat.step
    assert rates[-1] == pytest.approx({name: 0.01 * rate for name, rate in rates[0].items()}, rel=1e-3)
    assert all(after["means"] < before["means"] for before, after in steps)
    assert all(after | {"means": 0} == rates[0] | {"means": 0} for _, after in steps[:-tail])
    assert all(after["opacities"] < before["opacities"] for before, after in steps[-tail:])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")
@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_recorded_steps_follow_the_tail(patch: Patch, monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    rates: list[tuple[dict[str, float], Step]] = []  # the first of each run, and the step that has its last
    make = GraphedStep.__init__
    monkeypatch.setattr("splatbatch.training.attempt.rehearse", lambda *_: None)  # whose rates are of its own

    def keep(self: GraphedStep, step: Step) -> None:
        rates.append((rates_of(step), step))
        make(self, step)

    monkeypatch.setattr(GraphedStep, "__init__", keep)
    stopped, whole = (
        on_a_cleared_gpu(patch, early(strategy, stops, cap_max=AT_ITS_CAP, max_steps=200, device="cuda"), name)
        for name, stops in (("attempt-01", {}), ("attempt-02", {"stop_after": 0}))
    )
    assert stopped.step == stopped.metrics["early_stopping"]["ended_at"]
    assert stopped.metrics["peak"]["training_mib"] <= whole.metrics["peak"]["training_mib"] + 1
    for first, step in rates:
        assert rates_of(step) == pytest.approx({name: 0.01 * rate for name, rate in first.items()}, rel=1e-2)


def rates_of(step: Step) -> dict[str, float]:
    return {name: float(one.param_groups[0]["lr"]) for name, one in step.strategy.optimizers.items()}


def on_a_cleared_gpu(patch: Patch, settings: Recipe, name: str) -> Splat:
    """Train; print the peaks, which count what is there from the beginning: of earlier tests nothing is left."""
    gc.collect()
    left_mib = torch.cuda.memory_allocated() / MIB
    splat = trained(patch, settings, name)[1]
    print(f"{name}: {left_mib:.1f} MiB before it, {splat.metrics['peak']}, ended after {splat.step} steps")
    return splat


@pytest.mark.all
@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_nothing_ends_before_the_splat_has_grown(patch: Patch, strategy: str) -> None:
    settings = early(strategy, cap_max=100_000)  # mcmc never reaches it
    told = trained(patch, settings)[1].metrics["early_stopping"]
    assert told["checks"][0][0] > {"default": STEPS / 2, "mcmc": STEPS * 5 / 6}[strategy]


@pytest.mark.all
@pytest.mark.parametrize("dies_at", [30, 36, 38])  # before the plateau is found, then within the tail
def test_a_run_that_was_killed_ends_where_it_would_have_ended_bit_by_bit(patch: Patch, dies_at: int) -> None:
    settings = early(checkpoint_every=4, cap_max=AT_ITS_CAP, max_steps=100)
    _, straight = trained(patch, settings, "straight-01")
    told = straight.metrics["early_stopping"]
    assert (told["tail_from"], straight.step) == (34, 38)
    died(patch, settings, dies_at=dies_at)
    _, again = trained(patch, settings, "attempt-02")
    assert again.metrics["resumed_from"]["attempt"] == "attempt-01"
    assert again.path.read_bytes() == straight.path.read_bytes()
    timeless = [{**one.metrics["early_stopping"], "saved_s": 0} for one in (straight, again)]
    assert timeless[0] == timeless[1]


@pytest.mark.all
@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_a_short_run_is_as_if_nobody_had_thought_of_its_end(patch: Patch, strategy: str) -> None:
    splats = [
        trained(patch, early(strategy, {"stop_after": asked}), name)[1]
        for name, asked in (("auto-01", "auto"), ("never-01", 0))
    ]
    assert [one.step for one in splats] == [STEPS, STEPS]
    assert splats[0].path.read_bytes() == splats[1].path.read_bytes()
    assert [one.metrics["early_stopping"] for one in splats] == [None, None]


@pytest.mark.all
def test_checks_change_nothing_of_a_run_that_goes_on(patch: Patch) -> None:
    checked = trained(patch, early(evaluation={"stop_after": 100}, cap_max=AT_ITS_CAP), "checked-01")[1]
    never = trained(patch, early(evaluation={"stop_after": 0}, cap_max=AT_ITS_CAP), "never-01")[1]
    assert checked.path.read_bytes() == never.path.read_bytes()
    assert len(checked.metrics["early_stopping"]["checks"]) > 9
    assert checked.metrics["early_stopping"]["ended_at"] is None


@pytest.mark.all
def test_photographs_that_choose_the_end_count_in_no_figure(patch: Patch) -> None:
    ended = trained(patch, early(evaluation={"holdout_every": 2}))[1].metrics
    whole = trained(patch, early(evaluation={"holdout_every": 2, "stop_after": 0}), "whole-01")[1].metrics
    chosen_by, images = ended["early_stopping"]["chosen_by"], ended["final"]["images"]
    assert chosen_by and set(chosen_by).isdisjoint(images)
    assert sorted([*chosen_by, *images]) == sorted(whole["final"]["images"])
    assert ended["early_stopping"]["pixels"] == "covered"
    psnrs = [one["psnr_covered"] for one in images.values()]
    assert ended["final"]["psnr_covered"] == pytest.approx(sum(psnrs) / len(psnrs))
    assert ended["covered"]["hash"] != whole["covered"]["hash"]  # so that unlike figures are never compared


@pytest.mark.all
def test_with_one_held_out_photograph_a_run_makes_all_its_steps_and_says_why(patch: Patch, tmp_path: Path) -> None:
    (tmp_path / "held.txt").write_text("img0.png\n")
    folder, splat = trained(patch, early(evaluation={"holdout_list": str(tmp_path / "held.txt")}))
    assert splat.step == STEPS
    assert "1 held-out photograph, and 2 are needed" in splat.metrics["early_stopping"]["note"]
    assert any("evaluation.stop_after: 1 held-out" in one.get("warning", "") for one in read_lines(folder.progress))


def test_where_nothing_is_covered_all_pixels_count_and_that_is_said() -> None:
    chosen = StoppingWindows.of([replace(photo(f"{index}.png"), covered_share=0.0) for index in range(5)])
    assert not chosen.is_covered
    assert "all pixels decide on an early end" in chosen.note
    assert chosen.names == ("0.png", "2.png", "4.png")
    assert all(window.mask is None for window in chosen.windows)
    assert not StoppingWindows.of([photo(f"{index}.png") for index in range(5)]).note  # of a backdrop nobody has looked


def test_a_photograph_of_which_nothing_is_covered_does_not_choose() -> None:
    seen = torch.zeros(30, 40, dtype=torch.bool)
    seen[:, :10] = True
    photos = [
        replace(
            photo(f"{index}.png"), coverage_mask=None if index == 2 else seen, covered_share=0.0 if index == 2 else 0.25
        )
        for index in range(5)
    ]
    chosen = StoppingWindows.of(photos)
    assert chosen.is_covered and not chosen.note
    assert chosen.names == ("0.png", "3.png")
    assert all(window.mask is not None and torch.equal(window.mask, seen) for window in chosen.windows)


@pytest.mark.parametrize(("num", "num_choosing"), [(1, 0), (2, 1), (3, 2), (5, 3), (40, 6)])
def test_at_most_six_photographs_choose_and_some_are_left_for_the_figures(num: int, num_choosing: int) -> None:
    chosen = StoppingWindows.of([photo(f"{index:03}.png") for index in range(num)])
    assert len(chosen.windows) == num_choosing
    assert bool(chosen.note) == (num < 2)


@pytest.mark.parametrize("size", [(32, 24), (300, 200), (1500, 1200)])
def test_a_window_is_small_and_shows_what_the_photograph_shows_there(size: tuple[int, int]) -> None:
    whole = photo("a.png", *size)
    part, gaussians = window_of(whole), cloud()
    assert part.view.width <= max(64, min(512, size[0] // 2))
    left, top = (round(float(whole.view.K[axis, 2] - part.view.K[axis, 2])) for axis in (0, 1))
    inside = (slice(top, top + part.view.height), slice(left, left + part.view.width))
    assert torch.equal(part.pixels, whole.pixels[inside])
    drawn = [rasterize(gaussians, one.view, RasterOptions(0)).colors for one in (whole, part)]
    assert torch.allclose(drawn[0][inside], drawn[1], atol=1e-3)


@pytest.mark.all(but="corner1")
@pytest.mark.parametrize("corner", [(0, 0), (150, 250), (199, 299), (1500, 700), (1999, 2999)])
def test_a_window_lies_where_most_pixels_count(corner: tuple[int, int]) -> None:
    size = (2000, 3000) if corner[0] > 200 else (200, 300)
    mask = torch.zeros(size, dtype=torch.bool)
    mask[corner[0] : corner[0] + 40, corner[1] : corner[1] + 40] = True
    part = window_of(photo("a.png", size[1], size[0], mask))
    assert part.mask is not None
    assert int(part.mask.sum()) >= int(mask.sum()) / 2


def test_the_psnr_of_a_window_is_that_of_the_pixels_that_count() -> None:
    mask, gaussians = torch.zeros(30, 40, dtype=torch.bool), cloud()
    mask[:10, :20] = True
    one = photo("a.png", mask=mask)
    colors = rasterize(gaussians, one.view, RasterOptions(0)).colors.detach().clamp(0, 1)
    expected = -10 * (colors - one.pixels / 255).square()[:10, :20].mean().log10()
    assert torch.allclose(psnr_in(gaussians, one, RasterOptions(0), None), expected, atol=1e-4)
