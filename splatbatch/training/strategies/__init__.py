"""Densification strategies: interchangeable rules that add, move and remove Gaussians during training."""

from __future__ import annotations

from splatbatch.training.strategies.default import Default
from splatbatch.training.strategies.mcmc import Mcmc
from splatbatch.training.strategies.strategy import Strategy

__all__ = ["STRATEGIES", "Strategy"]

STRATEGIES: dict[str, type[Strategy]] = {"default": Default, "mcmc": Mcmc}
"""Densification strategies by the value of `training.strategy`."""
