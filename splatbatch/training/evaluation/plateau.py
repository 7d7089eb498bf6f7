"""Whether a training may end early: PSNR over steps in, go on or begin the tail out. Pure.

The rule asks what the steps that are left would still gain. Saturating exponentials, from ones that bend within two
checks to one that rises almost straight, are laid through all checks by least squares. Each says what lies between the
end of a tail that begins now and the last step; the highest of those that fit nearly as well as the best counts. So a
noisy series has to be long before it shows that it has stopped rising, and a fast recovery from pruning does not.

Made-up series of 30,000 steps, `least_gain_db` 0.05, noise of 0.02 and 0.05 dB, mean of 24 each; where the run
ends, and what it loses against all steps without noise:

| from step 15,000 or 7,000 on | ends at, % | loses, dB |
|---|---|---|
| 2 dB are recovered, by e in 300 steps | 58, 58 | 0.00, 0.00 |
| 1.5 dB so, and 0.4 dB by e in 1,500 | 58, 58 | 0.08, 0.08 |
| 1.5 dB are recovered as 300 / (300 + steps) | 58, 59 | 0.14, 0.13 |
| 1 dB is learned, by e in 4,000 steps | 66, 65 | 0.04, 0.04 |
| what is missing falls as 1 / step | 56, 64 | 0.08, 0.06 |
| straight growth, 0.5 dB in 20,000 steps | 86, 82 | 0.10, 0.14 |
| overfitting, a peak of 0.3 dB at step 12,000 | 46, 49 | -0.27, -0.23 |

Sources. Extrapolating learning curves to decide when to end: Domhan, Springenberg and Hutter 2015 (IJCAI, "Speeding up
automatic hyperparameter optimization of deep neural networks by extrapolation of learning curves"). Why one threshold
on the latest value is not enough: Prechelt 1998 ("Early stopping - but when?"). Which fits are nearly as good: within 4
of the lowest AIC; farther ones have considerably less support, Burnham and Anderson 2002 ("Model selection and
multimodel inference", section 2.6). A tail in which the learning rate falls, begun when one likes, in place of a
schedule that knows its end: Hu 2024 (MiniCPM, arXiv 2404.06395), Hägele 2024 (arXiv 2405.18392), with tails of a tenth
to a fifth of all steps. Ours is a 25th: where it may begin, the rate has already fallen to a fifth or less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from splatbatch.config import Recipe

CHECKS_PER_RUN = 250
"""Every 120 of 30,000 steps. A check takes 1.1 steps (six photographs of caliterra-small on the CPU): 0.9 % of the time
while there are checks."""
TAIL_SHARE = 1 / 25
EARLIEST_SHARE = 1 / 3
"""Of the steps: no tail begins before. Until then the rate of the means is above a fifth of its first one, and what its
fall will bring cannot be told from what was learned."""
FEWEST_CHECKS = 9
"""As many as three parameters need and noise makes useless, three times."""
FALL_DB = 0.5
"""From one check to the next: an opacity reset or a pruning, and no overfitting, which is slow. What was before says
nothing of what is to come."""
AIC_DIFFERENCE = 4.0
CURVES = 16
ROUNDING_DB2 = 1e-12
"""Of sums of squares: where curves fit exactly, rounding must not choose among them."""

Series = Sequence[tuple[int, float]]
"""After which step, and the PSNR in dB."""


@dataclass(frozen=True)
class Rule:
    """When a run of `max_steps` may end early."""

    max_steps: int
    in_a_row: int
    """Checks by which too little is left to gain; 0: the run never ends early."""
    least_gain_db: float

    @classmethod
    def of(cls, recipe: Recipe) -> Rule:
        """Return the rule of a recipe."""
        return cls(recipe.training.max_steps, recipe.stops_after(), recipe.evaluation.least_gain_db)

    @property
    def every(self) -> int:
        """Return the steps between two checks."""
        return max(1, self.max_steps // CHECKS_PER_RUN)

    @property
    def tail(self) -> int:
        """Return the steps of the tail."""
        return max(1, round(self.max_steps * TAIL_SHARE))

    def is_check(self, step: int) -> bool:
        """Return whether the splat is looked at after so many steps, once it is refined no more."""
        return self.in_a_row > 0 and step % self.every == 0 and step + self.tail < self.max_steps


def is_plateau(series: Series, rule: Rule) -> bool:
    """Return whether the tail may begin after the last check of a series.

    Args:
        series: PSNR over the steps of a run, from where it is refined no more; figures that are not finite do not
            count, and after one nothing ends.
        rule: of the run.
    """
    if not rule.in_a_row or not series or series[-1][0] < EARLIEST_SHARE * rule.max_steps:
        return False
    if series[-1][0] + rule.tail >= rule.max_steps or len(series) < rule.in_a_row:
        return False
    latest = (series[: len(series) - back] for back in range(rule.in_a_row))
    gains = [gain_left_db(one, rule) for one in latest]
    return all(gain is not None and gain < rule.least_gain_db for gain in gains)


def gain_left_db(series: Series, rule: Rule) -> float | None:
    """Return how much PSNR all steps would gain over a tail that begins after the last check, in dB, at least 0.

    None: nobody can tell, by fewer than `FEWEST_CHECKS` checks or after one that is not finite.
    """
    if not series or not math.isfinite(series[-1][1]):
        return None
    steps, psnr = _since_last_fall([one for one in series if math.isfinite(one[1])])
    if len(steps) < FEWEST_CHECKS:
        return None
    tail_end, end = steps[-1] + rule.tail, float(rule.max_steps)
    squares, gains = [], []
    for bend in np.geomspace(2 * rule.every, rule.max_steps, CURVES):  # in steps

        def curve(at: npt.NDArray[np.float64] | float, bend: float = float(bend)) -> npt.NDArray[np.float64]:
            risen: npt.NDArray[np.float64] = -np.exp(-(np.asarray(at) - steps[0]) / bend)
            return risen

        shape, values = curve(steps) - curve(steps).mean(), psnr - psnr.mean()
        height = max(0.0, float(shape @ values / (shape @ shape)))  # what falls is not expected to rise again
        squares.append(float(((values - height * shape) ** 2).sum()))
        gains.append(height * float(curve(end) - curve(tail_end)))
    # n ln(squares) is the AIC of a fit with normal errors, up to what all of these curves have in common
    most = min(squares) * math.exp(AIC_DIFFERENCE / len(steps)) + ROUNDING_DB2
    return max(gain for gain, square in zip(gains, squares, strict=True) if square <= most)


def _since_last_fall(series: Series) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    steps, psnr = np.array([one[0] for one in series], dtype=float), np.array([one[1] for one in series])
    falls = np.flatnonzero(np.diff(psnr) < -FALL_DB)
    first = int(falls[-1]) + 1 if len(falls) else 0
    return steps[first:], psnr[first:]
