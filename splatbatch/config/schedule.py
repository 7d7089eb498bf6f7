"""Training schedule: the steps of refinement, resets, pruning and SH degrees, fitted to a run of `max_steps`.

The settings are given for 30,000 steps. Pure arithmetic, so that `plan` can print the schedule before training.

A run of 30,000 steps has nearly the schedule of 3DGS, or of 3DGS-MCMC. In shorter runs the strategies differ:

- `mcmc` adds 5 % of Gaussians at each refinement, whatever the step. The number of refinements counts, so the whole
  schedule shrinks with the run.
- `default` refines by gradients averaged since the last refinement. Before step 500 the renderings are still coarse,
  and 50 steps are hardly a pass over the photographs. So in runs down to 7,000 steps, the first refinement and the
  steps between refinements stay the same. The steps between opacity resets do, too, since the splat must recover from
  each. By default, refining ends half-way.
- `default` raises the degree of the spherical harmonics later in shorter runs. View-dependent colours hide misplaced
  Gaussians from the training photographs, and a short run settles late.

Measured on one H200 with 7,000 steps, at most 400,000 Gaussians, hold-out PSNR in dB. Equal runs differ by up to 3.2 on
one patch (single views with few neighbours decide) and by 0.5 in the mean of four; smaller differences mean nothing.

| `default` on caliterra p0 to p3, mean | PSNR | Gaussians |
|---|---|---|
| all shrunk in proportion, four resets | 30.16 | up to 400,000 |
| this schedule (three runs) | 32.45, 31.92, 32.12 | 170,000 to 275,000 |
| this schedule, but refining to 4,667 | 32.33 | 215,000 to 355,000 |
| this schedule, but a degree every 1,000 steps instead of 2,000 | 31.95 | 170,000 to 269,000 |
| gsplat's simple_trainer, which never resets: patches one by one, four at once | 31.99, 31.36 | 245,000 to 442,000 |

On p1 and p3 alone, mean of both, refining to 4,667: 30.9 dB with three resets, 31.6 dB with none. With a degree every
233 steps, else as simple_trainer, 30.2 dB; every 1,000 steps, 30.9 dB. `mcmc` shows no gain: 33.5 dB with 233 steps,
33.2 dB with 1,000.
"""

from __future__ import annotations

from dataclasses import dataclass

from splatbatch.config.recipe import Recipe, Refinement

REFERENCE_STEPS = 30_000  # the length the field's schedules were made for (3DGS, Kerbl 2023)
UNSCALED_STEPS = 7_000  # down to this length `default` keeps the field's steps between things: 3DGS's own short run
WARM_UP_STEPS = 3_000  # shorter runs than this need larger steps to get anywhere
SH_EVERY = 1_000
MCMC_STOP = 25_000 / 15_000  # 3DGS-MCMC refines to 25,000 where 3DGS stops at 15,000
MOST_MEANS_GAIN = 10.0
FEWEST_STEPS_BETWEEN_REFINEMENTS = 50
MOST_PRUNED = 0.65
"""Largest share of the Gaussians that is removed at `prune_at`, the least important first.

One H200, caliterra p0, p1 and p2, 7,000 steps, hold-out PSNR: 32.33 dB and 83,000 Gaussians with 65 % removed by the
importance that training uses. With importance summed over all photographs instead: 31.74 dB and 84,000. With as many
removed as cost 0.5 dB at once by that sum: 31.81 dB and 116,000. With 3 % removed or less: 32.05 dB and 239,000 (mean
of five runs, which differ by 0.3)."""


@dataclass(frozen=True)
class Schedule:
    """The schedule of one run: steps at which something happens, and factors on learning rates for the run's length.

    Gaussians are added and removed every `refine_every` steps, after `refine_start` and up to `refine_stop`.
    """

    max_steps: int
    refine_start: int
    refine_stop: int
    refine_every: int
    full_size_at: int
    """Latest step from which photographs have their full size, with `coarse_to_fine`."""
    reset_every: int
    """Steps between two opacity resets of `default`, up to `reset_stop`; 0: no resets."""
    prune_at: int
    """Step at which `default` removes Gaussians that the photographs do not need; 0: never."""
    sh_every: int
    """Steps between two rises of the degree of the spherical harmonics."""
    means_gain: float
    """Factor on the learning rate of the means: 1 from 3,000 steps on, up to 10 in shorter runs."""
    gain: float
    """Factor on the other learning rates, opacities excepted: 1 from 3,000 steps on, more in shorter runs."""

    @property
    def reset_stop(self) -> int:
        """Step from which opacities are not reset, since the splat needs the last sixth of the run to recover."""
        return min(self.refine_stop, self.max_steps - self.max_steps // 6)


def schedule(recipe: Recipe) -> Schedule:
    """Return the schedule of a recipe, by its `max_steps`, strategy and section `refinement`.

    Adam moves a parameter by at most about its learning rate per step, so the reach of a run is rate times steps. Runs
    shorter than 3,000 steps get their reach back: in full for the means (up to tenfold), by the square root for
    colours, scales and rotations, whose noise would otherwise show.
    """
    steps = recipe.training.max_steps
    shortness = max(1.0, WARM_UP_STEPS / steps)
    of_strategy = _mcmc if recipe.training.strategy == "mcmc" else _default
    return of_strategy(recipe.refinement, steps, min(MOST_MEANS_GAIN, shortness), shortness**0.5)


def _mcmc(refinement: Refinement, steps: int, means_gain: float, gain: float) -> Schedule:
    scale = steps / REFERENCE_STEPS
    return Schedule(
        max_steps=steps,
        refine_start=round(refinement.refine_start_iter * scale),
        refine_stop=round(refinement.refine_stop_iter * scale * MCMC_STOP),
        # by the square root: half of the refinements that a proportional shortening would keep
        refine_every=_every(refinement, scale**0.5),
        # where `default` ends refining: relocating goes on, and needs full pixels
        full_size_at=round(refinement.refine_stop_iter * scale),
        reset_every=0,
        prune_at=0,
        sh_every=max(1, round(SH_EVERY * scale)),
        means_gain=means_gain,
        gain=gain,
    )


def _default(refinement: Refinement, steps: int, means_gain: float, gain: float) -> Schedule:
    scale = steps / REFERENCE_STEPS
    kept = max(scale, min(1.0, steps / UNSCALED_STEPS))
    refine_stop, reset_every = round(refinement.refine_stop_iter * scale), round(refinement.reset_every * kept)
    sh_every = SH_EVERY * max(scale, scale**-0.5)
    return Schedule(
        max_steps=steps,
        refine_start=round(refinement.refine_start_iter * kept),
        refine_stop=refine_stop,
        refine_every=_every(refinement, kept),
        full_size_at=refine_stop,
        # after the last reset the splat needs as long again to refine: runs too short for two intervals have none
        reset_every=reset_every if steps >= WARM_UP_STEPS and 2 * reset_every <= refine_stop else 0,
        # what a short run has it needs: it ends before it has learned all that so many Gaussians can show
        prune_at=refine_stop if steps >= WARM_UP_STEPS else 0,
        # two sevenths: the last degree keeps a seventh of the run
        sh_every=max(1, min(round(sh_every), 2 * steps // 7)),
        means_gain=means_gain,
        gain=gain,
    )


def _every(refinement: Refinement, factor: float) -> int:
    """Return the steps between refinements: never more than the setting, nor shortened below 50."""
    shortened = round(refinement.refine_every * factor)
    return min(refinement.refine_every, max(FEWEST_STEPS_BETWEEN_REFINEMENTS, shortened))
