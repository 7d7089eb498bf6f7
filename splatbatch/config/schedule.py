"""When things happen in a run of `max_steps`: given for 30,000 steps, scaled so that a short run is a whole run.

Pure arithmetic, so that `plan` can print what the training process will do.
"""

from __future__ import annotations

from dataclasses import dataclass

from splatbatch.config.sections import Recipe

REFERENCE_STEPS = 30_000  # the length the field's schedules were made for (3DGS, Kerbl 2023)
WARM_UP_STEPS = 3_000  # shorter runs than this need larger steps to get anywhere
SH_EVERY = 1_000
MCMC_STOP = 25_000 / 15_000  # 3DGS-MCMC refines to 25,000 where 3DGS stops at 15,000
MOST_MEANS_GAIN = 10.0
FEWEST_STEPS_BETWEEN_REFINEMENTS = 50


@dataclass(frozen=True)
class Schedule:
    """The steps of one run, and what its length does to the learning rates."""

    max_steps: int
    refine_start: int
    refine_stop: int
    refine_every: int
    reset_every: int
    """Opacity resets of `default`; 0 for none."""
    sh_every: int
    """Steps between two rises of the degree of the spherical harmonics."""
    means_gain: float
    """Factor on the learning rate of the means."""
    gain: float
    """Factor on the other learning rates, opacities excepted."""


def schedule(recipe: Recipe) -> Schedule:
    """Return the schedule of a recipe.

    Adam moves a parameter by at most about its learning rate per step, so what a run can reach is rate times steps.
    Runs shorter than 3,000 steps get their reach back: in full for the means (up to tenfold), by the square root for
    colours, scales and rotations, whose noise would otherwise show.
    """
    steps, refinement = recipe.training.max_steps, recipe.refinement
    scale = steps / REFERENCE_STEPS
    shortness = max(1.0, WARM_UP_STEPS / steps)
    mcmc = recipe.training.strategy == "mcmc"
    every = min(
        refinement.refine_every, max(FEWEST_STEPS_BETWEEN_REFINEMENTS, round(refinement.refine_every * scale**0.5))
    )
    reset = round(refinement.reset_every * scale)
    return Schedule(
        max_steps=steps,
        refine_start=round(refinement.refine_start_iter * scale),
        refine_stop=round(refinement.refine_stop_iter * scale * (MCMC_STOP if mcmc else 1)),
        refine_every=every,
        # an opacity reset costs some ten refinements to recover from: short runs have none
        reset_every=reset if not mcmc and reset >= 10 * every else 0,
        sh_every=max(1, round(SH_EVERY * scale)),
        means_gain=min(MOST_MEANS_GAIN, shortness),
        gain=shortness**0.5,
    )
