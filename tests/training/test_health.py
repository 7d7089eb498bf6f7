"""The health rules: what each finds and what it lets pass; and planted faults, each found by the real trainer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from PIL import Image as Pillow
from small_patch import prepared, recipe, trained

from splatbatch.config import Recipe
from splatbatch.config.schedule import schedule
from splatbatch.errors import TrainerError
from splatbatch.failures.exits import meaning_of_health
from splatbatch.files import read_lines
from splatbatch.scene.patches import Patch
from splatbatch.splats.health import Expectations, StepFigures, judge, judge_evaluation
from splatbatch.training import step as training_step
from splatbatch.training.attempt import train_attempt
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import Rendering

DEFAULT = Expectations(3000, "default", cap_max=9000, refine_start=500, refine_stop=1500, refine_every=100)
MCMC = replace(DEFAULT, strategy="mcmc", refine_stop=2500)
WELL = StepFigures(step=1, loss=0.3, num_gaussians=1000, photo_gradient=1.0, gradient=1.0)


def run(grows: float = 1.1, falls: float = 0.95, **last: float) -> list[StepFigures]:
    """A run of 30 records; `last` overrides figures of the last three."""
    records = [
        replace(WELL, step=100 * i + 1, loss=0.3 * falls**i, num_gaussians=int(1000 * grows ** max(0, i - 5)))
        for i in range(30)
    ]
    return [*records[:-3], *(replace(record, **last) for record in records[-3:])]


@pytest.mark.parametrize("expected", [DEFAULT, MCMC])
def test_a_run_that_is_well_gives_no_findings_at_any_step(expected: Expectations) -> None:
    history = run(grows=1.05)
    assert [judge(history[:end], expected) for end in range(len(history) + 1)] == [()] * (len(history) + 1)


@pytest.mark.parametrize(
    ("history", "expected", "rule", "numbers", "hopeless"),
    [
        (run(loss=math.nan), MCMC, "nan_loss", "loss nan", True),
        (run(gradient=math.inf), MCMC, "nan_loss", "gradient norm inf", True),
        (run(photo_gradient=0.0), MCMC, "zero_gradients", "last 3 recorded steps, up to step 2901", True),
        (run(num_gaussians=0, photo_gradient=0.0), DEFAULT, "zero_gaussians", "step 2901", True),
        (run(num_gaussians=19), DEFAULT, "collapse", "19 of 1000", True),
        (run(num_gaussians=200, step=3000), DEFAULT, "shrunk", "200 Gaussians at the end, 1000", False),
        (run(grows=1.0), DEFAULT, "no_densification", "in 9 refinements", False),
        (run(grows=1.0), MCMC, "no_growth", "1000 Gaussians after 19 refinements, 1000", False),
        (run(falls=1.0), MCMC, "loss_not_falling", "loss 0.3 at the start, 0.3 at step 2901", False),
    ],
)
def test_each_fault_is_found_by_its_rule(
    history: list[StepFigures], expected: Expectations, rule: str, numbers: str, hopeless: bool
) -> None:
    finding = judge(history, expected)[0]
    assert (finding.rule, finding.is_fatal) == (rule, hopeless)
    assert numbers in str(finding)


@pytest.mark.parametrize(("num", "is_odd"), [(200, False), (80, True)])
def test_what_pruning_removes_by_intention_is_no_shrinking(num: int, *, is_odd: bool) -> None:
    recipe = Recipe.model_validate({"training": {"strategy": "default", "max_steps": 3000, "cap_max": 1000}})
    found = judge(run(grows=1.0, num_gaussians=num, step=3000), Expectations.of(recipe, schedule(recipe)))
    assert [one.rule for one in found] == ["shrunk"] * is_odd


@pytest.mark.parametrize("rule", ["nan_loss", "zero_gradients", "zero_gaussians", "collapse", "repeated_image"])
def test_the_diagnosis_knows_every_hopeless_finding(rule: str) -> None:
    assert meaning_of_health(f"{rule}: numbers") is not None


@pytest.mark.parametrize("expected", [DEFAULT, MCMC])
def test_a_run_taken_up_again_after_its_refining_is_judged_by_what_it_did_since(expected: Expectations) -> None:
    late = [replace(WELL, step=step, loss=0.1, num_gaussians=8000) for step in range(2600, 3000, 10)]
    assert [judge(late[:end], expected) for end in range(1, 41)] == [()] * 40


def test_at_the_cap_nothing_has_to_grow() -> None:
    assert judge(run(grows=1.0), replace(MCMC, cap_max=1000)) == ()
    assert judge(run(grows=1.0), replace(DEFAULT, cap_max=1000)) == ()


@pytest.mark.parametrize(("training", "holdout", "odd"), [(33.0, 31.0, False), (54.0, 20.0, True), (54.0, None, False)])
def test_training_views_far_above_held_out_ones_are_odd(training: float, holdout: float | None, odd: bool) -> None:
    assert bool(judge_evaluation(training, holdout)) == odd


def detached(factor: float) -> Callable[..., Rendering]:
    """A rasteriser through which no gradient comes, or one that is `factor`."""

    def draw(*arguments: object) -> Rendering:
        rendering = rasterize(*arguments)
        return replace(rendering, colors=rendering.colors.detach() + factor * rendering.colors)

    return draw


@pytest.mark.all(but="default-0.0-zero_gradients")
@pytest.mark.parametrize(("strategy", "factor", "rule"), [
    ("default", 0.0, "zero_gradients"), ("mcmc", 0.0, "zero_gradients"), ("mcmc", math.nan, "nan_loss"),
])  # fmt: skip
def test_a_planted_fault_ends_the_real_training_within_500_steps(
    patch: Patch, monkeypatch: pytest.MonkeyPatch, strategy: str, factor: float, rule: str
) -> None:
    monkeypatch.setattr(training_step, "rasterize", detached(factor))
    folder = prepared(patch, recipe(strategy=strategy, max_steps=30_000))
    with pytest.raises(TrainerError, match=f"health: {rule}"):
        train_attempt(folder)
    last = list(read_lines(folder.progress))[-1]
    assert last["health"].startswith(rule)
    assert last["step"] <= 500
    assert json.dumps(last, allow_nan=False)


def test_a_set_of_one_repeated_photograph_is_found_before_the_first_step(patch: Patch) -> None:
    for index in range(1, 9):  # other files of the same picture
        Pillow.open(patch.images / "img0.png").save(patch.images / f"img{index}.png", compress_level=index)
    folder = prepared(patch, recipe())
    with pytest.raises(TrainerError, match="health: repeated_image: all 7 training photographs are the same"):
        train_attempt(folder)
    assert list(read_lines(folder.progress))[-1]["step"] == 0


def test_photographs_that_repeat_each_other_are_a_warning_of_the_splat(patch: Patch) -> None:
    (patch.images / "img2.png").write_bytes((patch.images / "img1.png").read_bytes())
    folder, _ = trained(patch, recipe(max_steps=5))
    warnings = [record["warning"] for record in read_lines(folder.progress) if "warning" in record]
    assert warnings == ["repeated_images: 1 of 7 training photographs repeat another, as img2.png and img1.png"]
