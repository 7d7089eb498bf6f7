"""When Gaussians are added, moved and removed: interchangeable densification rules."""

from __future__ import annotations

from collections.abc import Callable

from splatbatch.config import Recipe
from splatbatch.config.schedule import Schedule
from splatbatch.training.gaussians import Parameters
from splatbatch.training.optim import Optimizers
from splatbatch.training.strategies.default import Default
from splatbatch.training.strategies.mcmc import Mcmc
from splatbatch.training.strategies.strategy import Strategy

__all__ = ["STRATEGIES", "Strategy"]

STRATEGIES: dict[str, Callable[[Parameters, Optimizers, Recipe, Schedule, float], Strategy]] = {
    "default": Default,
    "mcmc": Mcmc,
}
