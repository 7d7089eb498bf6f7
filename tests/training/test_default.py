"""`default`: what becomes of a Gaussian that is split."""

import pytest
import torch

from splatbatch.config import Recipe
from splatbatch.config.schedule import schedule
from splatbatch.training.optim import make_optimizers
from splatbatch.training.strategies.default import Default


@pytest.mark.parametrize("logit", [-3.0, 0.0, 2.0, 40.0])
def test_the_halves_of_a_gaussian_cover_together_as_much_as_it_did(logit: float) -> None:
    values = {
        "means": torch.zeros(1, 3),
        "scales": torch.zeros(1, 3),
        "quats": torch.tensor([[1.0, 0.0, 0.0, 0.0]]),
        "opacities": torch.full((1,), logit),
        "sh0": torch.zeros(1, 1, 3),
        "shN": torch.zeros(1, 15, 3),
    }
    gaussians = {name: torch.nn.Parameter(value) for name, value in values.items()}
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
