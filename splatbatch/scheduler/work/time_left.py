"""The remaining time of a worker, by --for or its engine, and whether another task fits into it."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field

from splatbatch.tasks.batch import Batch
from splatbatch.tasks.estimates import forecast
from splatbatch.tasks.task import Task

ENDS_AT = "SLURM_JOB_END_TIME"
"""Seconds since 1970, by the clock of the host that we are on."""
MARGIN_S = 20.0
"""Beside grace_s: to write everything down before the engine ends us."""
ASKED_EVERY_S = 60.0


@dataclass
class TimeLeft:
    """The end of a worker's time, and what still fits before it."""

    batch: Batch
    end: float = math.inf
    """By time.monotonic(); infinite: there is none."""
    _known: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Seconds that a task of so many steps is expected to take, and when that was asked."""

    @classmethod
    def of(cls, batch: Batch, for_s: float | None) -> TimeLeft:
        """Return it as it was told, or as the engine says."""
        told = os.environ.get(ENDS_AT, "")
        of_engine = float(told) - time.time() if told.isdecimal() else None
        known = (one for one in (for_s, of_engine) if one is not None)
        return cls(batch, time.monotonic() + min(known, default=math.inf))

    def is_up(self) -> bool:
        """Return whether what runs has to be ended now to be written down in time."""
        return self._left_s() <= 0

    def holds(self, task: Task) -> bool:
        """Return whether a task that starts now is expected to end in time; one of unknown length is begun."""
        if self.end == math.inf:
            return True
        steps, now = task.requested_settings.recipe.training.max_steps, time.monotonic()
        if steps not in self._known or now - self._known[steps][1] > ASKED_EVERY_S:
            footprints = {task.name: task.memory_estimate} if task.memory_estimate else {}
            self._known[steps] = (forecast(self.batch, [task.name], footprints).seconds or 0.0, now)
        return self._left_s() > self._known[steps][0]

    def _left_s(self) -> float:
        return self.end - time.monotonic() - self.batch.config.limits.grace_s - MARGIN_S
