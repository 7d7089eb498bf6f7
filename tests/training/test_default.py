"""`default`: what becomes of a Gaussian that is split; and that nothing is refined in the tail, as in `mcmc`."""

from dataclasses import replace

import pytest
import torch

from splatbatch.config import Recipe
from splatbatch.config.schedule import schedule
from splatbatch.training.cuda_graph import GraphedStep
from splatbatch.training.gaussians import Parameters
from splatbatch.training.optim import make_optimizers
from splatbatch.training.rendering.view import RasterOptions
from splatbatch.training.step import Step, TileCapacity
from splatbatch.training.strategies import STRATEGIES, default
from splatbatch.training.strategies.default import Default
from splatbatch.training.strategies.importance import PruningViews


def one_gaussian(logit: float) -> Parameters:
    values = {
        "means": torch.zeros(1, 3),
        "scales": torch.zeros(1, 3),
        "quats": torch.tensor([[1.0, 0.0, 0.0, 0.0]]),
        "opacities": torch.full((1,), logit),
        "sh0": torch.zeros(1, 1, 3),
        "shN": torch.zeros(1, 15, 3),
    }
    return {name: torch.nn.Parameter(value) for name, value in values.items()}


@pytest.mark.parametrize("logit", [-3.0, 0.0, 2.0, 40.0])
def test_the_halves_of_a_gaussian_cover_together_as_much_as_it_did(logit: float) -> None:
    gaussians = one_gaussian(logit)
    recipe = Recipe.model_validate({"training": {"strategy": "default", "max_steps": 7000, "cap_max": 100}})
    plan = schedule(recipe)
    rule = Default(gaussians, make_optimizers(gaussians, recipe, plan, 1.0), recipe, plan, 1.0)
    rule.state()["grad2d"].fill_(1.0)
    rule.state()["count"].fill_(1.0)
    step = (plan.refine_start // plan.refine_every + 1) * plan.refine_every
    assert rule.refine(step)
    halves = gaussians["opacities"].detach().sigmoid()
    assert len(halves) == 2
    together = 1 - (1 - halves).prod()
    assert float(together) == pytest.approx(float(torch.tensor(logit).sigmoid()), abs=1e-5)
    assert gaussians["opacities"].isfinite().all()


@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_nothing_is_refined_pruned_or_reset_in_the_tail(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        default, "prunable", lambda gaussians, *_: torch.ones(len(gaussians["means"]), dtype=torch.bool)
    )
    settings = {"training": {"strategy": strategy, "max_steps": 3000, "cap_max": 100}}
    recipe, gaussians = Recipe.model_validate(settings), one_gaussian(2.0)
    plan = replace(schedule(recipe), refine_stop=2995, prune_at=2990, reset_every=5, max_steps=6000)
    optimizers, options = make_optimizers(gaussians, recipe, plan, 1.0), RasterOptions()
    rule = STRATEGIES[strategy](gaussians, optimizers, recipe, plan, 1.0, pruning_views=PruningViews((), options))
    for tensor in rule.state().values():
        if isinstance(tensor, torch.Tensor):
            tensor.fill_(1.0)
    capacity = TileCapacity(gaussians, (), options)
    step = GraphedStep(Step(rule, capacity, (0.9, 1.0)))
    step.begin_tail((0.9, 0.9))
    assert not any(step.refine(done) for done in range(2880, 3000))
    assert len(gaussians["means"]) == 1
    assert float(gaussians["opacities"].detach()) == 2.0
