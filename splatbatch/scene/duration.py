"""How long the training of a patch will take, told before it starts: pure arithmetic on counts and sizes.

A step costs so much for each pixel of its photograph and so much for each Gaussian there is by then. Measured:

- CPU: one core of an Intel Xeon (2026), one thread, `mcmc`, SH degree 3, seconds per step at fixed numbers of Gaussians
  on real photographs. Of whole runs, start and evaluation left out, steps took 0.14 s (320x241, `default`, 4,000 to
  12,917 Gaussians), 0.10 s (`mcmc`, 4,000 to 5,359) and 1.5 s (995x748, 27,583).

  | photographs | Gaussians | measured | model |
  |---|---|---|---|
  | 320x241 | 3,000, 30,000, 300,000 | 0.07, 0.16, 1.60 | 0.13, 0.27, 1.62 |
  | 498x374 | 10,000, 100,000, 400,000 | 0.29, 0.54, 1.88 | 0.33, 0.78, 2.28 |
  | 995x748 | 10,000, 100,000, 400,000, 1,000,000 | 0.91, 1.27, 3.22, 6.00 | 1.17, 1.62, 3.12, 6.12 |

- GPU: one H200, patches of 7,000 steps at 995x748 from start to exit: 13 s with `default` (some 200,000 Gaussians at
  the end), 20 s with `mcmc` to 400,000; the model says 14 and 19. Other GPUs differ; nothing here knows by how much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from splatbatch.config import Recipe
from splatbatch.config.schedule import schedule
from splatbatch.scene.footprint import GROWTH, Footprint


@dataclass(frozen=True)
class Throughput:
    """What trains how fast, in seconds."""

    start: float
    """From the start of a process to its first step, and from its last step to its end."""
    step: float
    """Of each step, whatever it works on."""
    pixel: float
    """Of each step, per pixel."""
    gaussian: float
    """Of each step, per Gaussian."""


CPU = Throughput(start=4.0, step=0.0, pixel=1.5e-6, gaussian=5e-6)
H200 = Throughput(start=3.0, step=0.3e-3, pixel=0.5e-9, gaussian=5e-9)
DEFAULT_GROWTH = 6.0
"""At least so many Gaussians per sparse point after a run with `default`, below the cap: 4 to 6 in runs of 400 to 7,000
steps. Longer ones grow as `mcmc` does, by 5 % at each refinement, or not at all: that is from above."""


def training_s(recipe: Recipe, need: Footprint, throughput: Throughput) -> float:
    """Return the seconds that one attempt takes, from the start of its process to its end."""
    return throughput.start + stepping_s(recipe, need, throughput)


def stepping_s(recipe: Recipe, need: Footprint, throughput: Throughput, until: float | None = None) -> float:
    """Return the seconds that the steps of an attempt take, all of them or so many of the first."""
    steps = recipe.training.max_steps if until is None else min(until, recipe.training.max_steps)
    of_each = throughput.step + throughput.pixel * need.mean_px
    return steps * of_each + throughput.gaussian * gaussian_steps(recipe, need, steps)


def gaussian_steps(recipe: Recipe, need: Footprint, until: float) -> float:
    """Return how many Gaussians so many steps have together: they grow by a factor at each refinement."""
    plan, first = schedule(recipe), max(1, need.num_points)
    refinements = max(1, (plan.refine_stop - plan.refine_start) // plan.refine_every)
    growth = math.log(GROWTH)
    if recipe.training.strategy == "default":
        growth = max(growth, math.log(DEFAULT_GROWTH) / refinements)
    total = min(refinements * growth, math.log(max(1.0, need.num_gaussians / first)))
    grown_at = min(plan.max_steps, plan.refine_start + total / growth * plan.refine_every)
    before = min(plan.refine_start, grown_at, until)
    meanwhile = min(until, grown_at) - before
    after = until - before - meanwhile
    rate = total / (grown_at - min(plan.refine_start, grown_at)) if grown_at > plan.refine_start else 0.0
    grown = first * math.expm1(rate * meanwhile) / rate if rate else first * meanwhile  # exponential growth, summed up
    return first * before + grown + first * math.exp(total) * after
