"""The remaining time of a worker, by --for or by its Slurm job, and whether another task fits into that time."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field

from splatbatch.tasks.batch import Batch
from splatbatch.tasks.estimates import forecast, training_times
from splatbatch.tasks.task import Task

ENDS_AT = "SLURM_JOB_END_TIME"
"""Environment variable with the end of the job in seconds since 1970, by the clock of this host."""
MARGIN_S = 20.0
"""Seconds in addition to `limits.grace_s` that are kept for writing records before the engine ends the worker."""
ASKED_EVERY_S = 60.0
"""Seconds after which the times of trained patches, by which durations are estimated, are read again."""


def end_of(for_s: float | None) -> float:
    """Return when a worker's time is up, in seconds of `time.monotonic()`; infinite without a limit.

    That is `for_s` seconds from now, or the end of its Slurm job if that is earlier; None: without --for.
    """
    told = os.environ.get(ENDS_AT, "")
    of_engine = float(told) - time.time() if told.isdecimal() else None
    return time.monotonic() + min((one for one in (for_s, of_engine) if one is not None), default=math.inf)


@dataclass
class TimeLeft:
    """The end of a worker's time; `TaskClaimer` asks before each claim whether a task fits, the run whether to stop."""

    batch: Batch
    end: float = math.inf
    """End by `time.monotonic()`, in seconds; infinite: no limit."""
    _done: list[tuple[float, int]] = field(default_factory=list)
    """Seconds and steps of the trained patches, as read at `_asked_at`."""
    _asked_at: float = -math.inf

    @classmethod
    def of(cls, batch: Batch, for_s: float | None) -> TimeLeft:
        """Return the remaining time by --for or by the Slurm job, whichever ends earlier; without either no limit.

        Args:
            batch: the batch, by which durations are estimated.
            for_s: seconds of --for, from now; None: not given.
        """
        return cls(batch, end_of(for_s))

    def is_up(self) -> bool:
        """Return whether running attempts must be ended now, so that their ends are recorded in time.

        That is `limits.grace_s` and `MARGIN_S` seconds before the end.
        """
        return self._left_s() <= 0

    def holds(self, task: Task) -> bool:
        """Return whether a task that starts now is expected to end in time; True without a limit.

        A task of unknown duration fits as long as any time is left.

        Raises:
            ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
            LaterFormatError: a later version of splatbatch wrote a manifest (result.json).
        """
        if self.end == math.inf:
            return True
        if (now := time.monotonic()) > self._asked_at + ASKED_EVERY_S:
            self._done, self._asked_at = training_times(self.batch), now
        footprints = {task.name: task.memory_estimate} if task.memory_estimate else {}
        return self._left_s() > (forecast(self.batch, [task.name], footprints, self._done).seconds or 0.0)

    def _left_s(self) -> float:
        return self.end - time.monotonic() - self.batch.config.limits.grace_s - MARGIN_S
