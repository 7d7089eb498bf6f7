"""How much GPU memory attempts take: estimated before the first has ended, corrected by what they say afterwards."""

from __future__ import annotations

from splatbatch.batch import attempts
from splatbatch.batch.work import Running, Work
from splatbatch.scene.need import GPU_CONTEXT_MIB

SLACK = 1.15
"""What torch's allocator keeps beyond what was in use at the peak, and what a sample now and then misses of it."""
LEAST_SHARE = 0.25
"""No correction goes below this share of an estimate."""


class Memory:
    """Knows what the attempts of one batch take; estimates are from above, so the largest share of one counts."""

    def __init__(self) -> None:
        self._shares: list[float] = []

    def note(self, running: Running) -> None:
        """Learn from an attempt that has ended well."""
        need = running.work.need
        if need is None or not need.gpu_mib:
            return
        own = attempts.own_peak_mib(running.attempt.folder)
        measured = self.measured(running) if own is None else SLACK * own
        if measured is not None:
            self._shares.append(measured / need.gpu_mib)

    def of(self, work: Work) -> float | None:
        """Return what an attempt at this work will take at most, in MiB; None if nobody can know."""
        if work.need is None:
            return None
        return work.need.gpu_mib * max(LEAST_SHARE, *self._shares) if self._shares else float(work.need.gpu_mib)

    def measured(self, running: Running) -> float | None:
        """Return what an attempt has taken at most; else what it was expected to take, if anybody knows."""
        peak = attempts.peak_mib(running.attempt.folder)
        return self.of(running.work) if peak is None else SLACK * peak + GPU_CONTEXT_MIB
