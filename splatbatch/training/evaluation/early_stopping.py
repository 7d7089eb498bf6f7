"""Early stopping: held-out photographs are checked while a run trains, and at their plateau its tail begins.

A check renders windows of a few held-out photographs and reads one tensor: it waits for the GPU once, takes forward
passes of one and a half photographs at most, and no more memory than a step.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from splatbatch.config import Recipe
from splatbatch.output.records.metrics import MOST_PSNR_DB
from splatbatch.text import plural
from splatbatch.training.optim import LAST_MEANS_RATE
from splatbatch.training.photos.dataset import TrainingImages, evenly_spaced
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.progress import ProgressRecorder
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions

MOST_PHOTOS = 6
"""Of each half; of each a quarter is rendered."""
WINDOW_PX, SMALLEST_WINDOW_PX = 512, 64
"""Sides of a window, at most and at least."""

Record = dict[str, Any]

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
class StoppingRule:
    """When a run of `max_steps` may end early."""

    max_steps: int
    in_a_row: int
    """Checks by which too little is left to gain; 0: the run never ends early."""
    least_gain_db: float

    @classmethod
    def of(cls, recipe: Recipe) -> StoppingRule:
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


def is_plateau(series: Series, rule: StoppingRule) -> bool:
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


def gain_left_db(series: Series, rule: StoppingRule) -> float | None:
    """Return how much PSNR all steps would gain over a tail that begins after the last check, in dB, at least 0.

    None: unknown, by fewer than `FEWEST_CHECKS` checks or after one that is not finite.
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


@dataclass(frozen=True)
class HoldoutHalf:
    """Every other held-out photograph by name: one half chooses the end, the other tells what that flatters."""

    names: tuple[str, ...]
    windows: tuple[PosedImage, ...]
    """Of some of them; the mask is true where a pixel counts."""


@dataclass(frozen=True)
class PlateauCheck:
    """What was seen after a step: the mean PSNR of the windows of each half, in dB."""

    step: int
    chooses: float
    watches: float | None = None
    """At the first check, at the plateau and at the end of the run."""


class EarlyStopping:
    """Ends a run at the plateau of its held-out photographs; everything it decides by is in its state."""

    def __init__(self, views: TrainingImages, recipe: Recipe, progress: ProgressRecorder) -> None:
        self.rule = StoppingRule.of(recipe)
        self._recipe, self._progress, self._border = recipe, progress, views.border
        self._halves, self._is_covered, self.note = halves_of(views.holdout if self.rule.in_a_row else ())
        if self.rule.in_a_row and self.note:
            progress.warn(f"evaluation.stop_after: {self.note}")
        self.checks: list[PlateauCheck] = []
        self.tail_from: int | None = None
        """The step after which the tail begins; None: not yet."""
        self._seen_from, self._closed_at = (0, 0.0), 0.0  # the tail, in this process, by time.monotonic()

    @property
    def is_on(self) -> bool:
        """Return whether the run may end early at all."""
        return self.rule.in_a_row > 0 and len(self._halves) == 2

    @property
    def last_step(self) -> int:
        """Return after how many steps the run ends, as far as is known now."""
        return self.rule.max_steps if self.tail_from is None else self.tail_from + self.rule.tail

    def means_decay(self) -> float:
        """Return the factor on the rate of the means per step from now on.

        It falls to a hundredth of the first rate by the last step; in the tail from where it has come by then.
        """
        if self.tail_from is None:
            return float(LAST_MEANS_RATE ** (1 / self.rule.max_steps))
        steps_left = 1 - self.tail_from / self.rule.max_steps
        return float(LAST_MEANS_RATE ** (steps_left / self.rule.tail))

    def is_due(self, done: int) -> bool:
        """Return whether held-out photographs are checked after so many steps, if nothing is added any more."""
        return self.is_on and self.tail_from is None and self.rule.is_check(done)

    def check(self, done: int, gaussians: Mapping[str, Tensor], capacity: int | None) -> bool:
        """Check held-out photographs after so many steps; return whether they are at their plateau.

        Args:
            done: steps.
            gaussians: what is learned.
            capacity: of tile lists, see `rasterize`.
        """
        chooses, *watches = self._psnrs(self._halves[: 1 if self.checks else 2], gaussians, capacity)
        self.checks.append(PlateauCheck(done, chooses, *watches))
        if not is_plateau(self._series(), self.rule):
            return False
        self.checks[-1] = replace(self.checks[-1], watches=self._psnrs(self._halves[1:], gaussians, capacity)[0])
        return True

    def begin_tail(self, tail_from: int, done: int) -> None:
        """End the run after a tail, which begins after a step; of a run that goes on more steps may be done."""
        self.tail_from, self._seen_from = tail_from, (done, time.monotonic())
        self._progress.end_at(self.last_step)

    def close(self, gaussians: Mapping[str, Tensor], capacity: int | None) -> None:
        """Check once more after the last step of a run that was checked."""
        if self.checks and self.checks[-1].step < self.last_step:
            self.checks.append(PlateauCheck(self.last_step, *self._psnrs(self._halves, gaussians, capacity)))
        self._closed_at = time.monotonic()

    def state(self) -> Record:
        """Return what a checkpoint keeps, as JSON."""
        return {"checks": [astuple(one) for one in self.checks], "tail_from": self.tail_from}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.checks, self.tail_from = [PlateauCheck(*one) for one in state["checks"]], state["tail_from"]

    def to_record(self, images: Mapping[str, Mapping[str, float]]) -> Record | None:
        """Return what metrics.json says of it; None where the run was never to end early.

        Args:
            images: figures of the written splat for each held-out photograph, at full size.
        """
        if not self.rule.in_a_row:
            return None
        ended = self.tail_from is not None
        saved, left = self.rule.max_steps - self.last_step, gain_left_db(self._series(), self.rule)
        first, began = self._seen_from
        pace_s = max(0.0, self._closed_at - began) / max(1, self.last_step - first)  # of a step of the tail
        return {
            "max_steps": self.rule.max_steps,
            "tail_from": self.tail_from,
            "ended_at": self.last_step if ended else None,
            "saved_steps": saved,
            "saved_s": round(pace_s * saved, 1),
            "expected_loss_db": left if ended else None,
            "pixels": "covered" if self._is_covered else "all",
            "chosen_by": self._of_half(0, images),
            "checked_by": self._of_half(1, images),
            "checks": [[one.step, _finite(one.chooses), _finite(one.watches)] for one in self.checks],
            "note": self.note,
        }

    def _series(self) -> list[tuple[int, float]]:
        """Return the checks that decide: that of the end says nothing of when the tail should begin."""
        last = self.rule.max_steps - 1 if self.tail_from is None else self.tail_from
        return [(one.step, one.chooses) for one in self.checks if one.step <= last]

    def _of_half(self, index: int, images: Mapping[str, Mapping[str, float]]) -> Record | None:
        if len(self._halves) < 2:
            return None
        half = self._halves[index]
        ends = [self.checks[0], self.checks[-1]] if self.checks else []
        finite = [psnr for one in ends if (psnr := _finite((one.chooses, one.watches)[index])) is not None]
        key = "psnr_covered" if self._is_covered else "psnr"
        finals = [images[name][key] for name in half.names if key in images.get(name, {})]
        return {
            "photographs": list(half.names),
            "psnr": statistics.fmean(finals) if finals else None,
            "gain_db": round(finite[1] - finite[0], 4) if len(finite) == 2 else None,
        }

    @torch.inference_mode()
    def _psnrs(
        self, halves: Sequence[HoldoutHalf], gaussians: Mapping[str, Tensor], capacity: int | None
    ) -> list[float]:
        """Return the mean PSNR of the windows of each half, in dB: the one wait for the GPU."""
        drawn, options = self._border.with_backdrop(gaussians), RasterOptions.of(self._recipe)
        means = [
            torch.stack([psnr_in(drawn, one, options, capacity) for one in half.windows]).mean() for half in halves
        ]
        found: list[float] = torch.stack(means).tolist()
        return found


def _finite(figure: float | None) -> float | None:
    return figure if figure is not None and math.isfinite(figure) else None


def psnr_in(
    gaussians: Mapping[str, Tensor], window: PosedImage, options: RasterOptions, capacity: int | None
) -> Tensor:
    """Return the PSNR of a rendering, brought to the tone of the photograph, where its mask is true; in dB, []."""
    colors = window.as_taken(rasterize(gaussians, window.view, options, capacity).colors).clamp(0, 1)
    square, counts = (colors - window.target() / 255).square().mean(dim=-1), window.valid()
    error = square.mean() if counts is None else torch.where(counts, square, 0).sum() / counts.sum()
    return (-10 * error.log10()).clamp_max(MOST_PSNR_DB)


def halves_of(holdout: Sequence[PosedImage]) -> tuple[tuple[HoldoutHalf, ...], bool, str]:
    """Return both halves, whether their covered pixels count or all of them, and what is to be said of that.

    No half at all with fewer than two photographs: the bias of the choice could not be told.
    """
    seen = [replace(photo, mask=photo.coverage_mask) for photo in holdout if photo.coverage_mask is not None]
    is_covered, note = len(seen) > 1, ""
    if not is_covered:
        seen = list(holdout)
        was_looked_at = any(photo.covered_share is not None for photo in holdout)
        note = "fewer than 2 held-out photographs are covered: all pixels tell when it ends" if was_looked_at else ""
    if len(seen) < 2:
        return (), False, f"{plural(len(seen), 'held-out photograph')}, and 2 are needed: it makes all its steps"
    by_name = sorted(seen, key=lambda photo: photo.name)
    return (_half(by_name[::2]), _half(by_name[1::2])), is_covered, note


def _half(photos: Sequence[PosedImage]) -> HoldoutHalf:
    return HoldoutHalf(tuple(photo.name for photo in photos), tuple(map(window_of, evenly_spaced(photos, MOST_PHOTOS))))


def window_of(photo: PosedImage) -> PosedImage:
    """Return a part of a photograph at full size, up to half as wide and high, where most of its pixels count.

    A photograph rendered at a smaller size would be cheap, too; but Gaussians smaller than its pixels become too large
    there (Mip-Splatting, Yu 2024), so that its PSNR falls as detail is learned.
    """
    height, width = photo.pixels.shape[:2]
    down, across = (max(min(side, SMALLEST_WINDOW_PX), min(WINDOW_PX, side // 2)) for side in (height, width))
    top, left = (height - down) // 2, (width - across) // 2
    if photo.mask is not None:
        top, left = _fullest(photo.mask, (down, across))
    K = photo.view.K.clone()
    K[0, 2] -= left
    K[1, 2] -= top
    view, inside = (
        replace(photo.view, K=K, width=across, height=down),
        (slice(top, top + down), slice(left, left + across)),
    )
    mask = None if photo.mask is None else _beside(photo, photo.mask[inside].clone())
    return replace(photo, view=view, pixels=_beside(photo, photo.pixels[inside]), mask=mask)


def _fullest(mask: Tensor, size: tuple[int, int]) -> tuple[int, int]:
    """Return the top and left of the window in which most pixels count, of some that overlap by half."""
    tops, lefts = (
        torch.tensor(sorted({*range(0, side - part, max(1, part // 2)), side - part}))
        for side, part in zip(mask.shape, size, strict=True)
    )
    above = torch.nn.functional.pad(mask.cpu().int().cumsum(0).cumsum(1), (1, 0, 1, 0))  # counts up to a pixel
    bottoms, rights = tops[:, None] + size[0], lefts[None] + size[1]
    inside = (
        above[bottoms, rights]
        - above[tops[:, None], rights]
        - above[bottoms, lefts[None]]
        + above[tops[:, None], lefts[None]]
    )
    best = int(inside.argmax())
    return int(tops[best // len(lefts)]), int(lefts[best % len(lefts)])


def _beside(photo: PosedImage, part: Tensor) -> Tensor:
    """Return a part where the photograph lies: on a GPU that is the same memory, in the host one to upload from."""
    return part.contiguous().pin_memory() if photo.pixels.is_pinned() else part
