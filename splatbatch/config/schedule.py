"""When things happen in a run of `max_steps`: given for 30,000 steps, fitted so that a short run is a whole run.

Pure arithmetic, so that `plan` can print what the training process will do.

A run of 30,000 steps is the field's own, to the step. What of it shrinks with the run differs by strategy:

- `mcmc` adds 5 % at each refinement, wherever that is: the number of refinements counts, so all of it shrinks.
- `default` reads where to refine from gradients averaged since the last refinement. Before step 500 the picture
  still forms, and 50 steps are hardly a pass over the photographs: down to runs of 7,000 steps these steps stay as they
  are. So do those between opacity resets, or the splat has no time to recover. Refining ends half-way, always.
- `default` raises the degree of the spherical harmonics the later the shorter the run: colours that depend on the view
  hide from the training photographs that a Gaussian is in the wrong place, and a short run settles late.

Measured on one H200 with 7,000 steps, at most 400,000 Gaussians, hold-out PSNR in dB. Runs alike differ by up to 3.2 on
one patch (single views with few neighbours decide) and by 0.5 in the mean of four: smaller differences mean nothing.

| `default` on caliterra p0 to p3, mean | PSNR | Gaussians |
|---|---|---|
| all shrunk in proportion, four resets | 30.16 | up to 400,000 |
| as here (three runs) | 32.45, 31.92, 32.12 | 170,000 to 275,000 |
| as here, but refining to 4,667 | 32.33 | 215,000 to 355,000 |
| as here, but a degree every 1,000 steps instead of 2,000 | 31.95 | 170,000 to 269,000 |
| gsplat's simple_trainer, which never resets: one by one, four at once | 31.99, 31.36 | 245,000 to 442,000 |

On p1 and p3 alone, mean of the two: three resets, refining to 4,667, 30.9 where none gives 31.6; the degree every 233
steps, else as simple_trainer, 30.2, every 1,000 30.9. `mcmc` shows no gain: 33.5 with 233, 33.2 with 1,000.
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
"""Of the Gaussians that are removed at once.

One H200, caliterra p0, p1 and p2, 7,000 steps, hold-out PSNR: 32.33 dB and 83,000 Gaussians with 65 % removed in this
order; by the sum over all photographs 31.74 dB and 84,000; as many as cost 0.5 dB at once by that sum, 31.81 dB and
116,000; with 3 % removed or less 32.05 dB and 239,000 (mean of five runs, which differ by 0.3)."""


@dataclass(frozen=True)
class Schedule:
    """The steps of one run, and what its length does to the learning rates."""

    max_steps: int
    refine_start: int
    refine_stop: int
    refine_every: int
    full_size_at: int
    """Step from which on photographs that began small have their full size, at the latest."""
    reset_every: int
    """Opacity resets of `default`, as long as it refines; 0 for none."""
    prune_at: int
    """Step at which `default` removes what photographs do not miss; 0 for none."""
    sh_every: int
    """Steps between two rises of the degree of the spherical harmonics."""
    means_gain: float
    """Factor on the learning rate of the means."""
    gain: float
    """Factor on the other learning rates, opacities excepted."""

    @property
    def reset_stop(self) -> int:
        """Step from which on opacities are not reset: the splat needs the last sixth of the run at least to recover."""
        return min(self.refine_stop, self.max_steps - self.max_steps // 6)


def schedule(recipe: Recipe) -> Schedule:
    """Return the schedule of a recipe.

    Adam moves a parameter by at most about its learning rate per step, so what a run can reach is rate times steps.
    Runs shorter than 3,000 steps get their reach back: in full for the means (up to tenfold), by the square root for
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
    """Return the steps between refinements, which never become more, nor by shortening fewer than 50."""
    shortened = round(refinement.refine_every * factor)
    return min(refinement.refine_every, max(FEWEST_STEPS_BETWEEN_REFINEMENTS, shortened))
