"""What is left of a batch for whoever comes: what has to be trained, and that nobody has been done with since."""

from __future__ import annotations

from dataclasses import dataclass

from splatbatch.output.claims import done_with
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.freshness import FreshnessChecker


@dataclass(frozen=True)
class RemainingTasks:
    """Asks that again and again, against how far the tasks were at first."""

    batch: Batch
    before: dict[str, int]
    """The highest generation of each task that somebody was done with."""

    @classmethod
    def of(cls, batch: Batch) -> RemainingTasks:
        """Begin: what fails from now on is not left over."""
        return cls(batch, {name: done_with(batch.output, name) for name in batch.names})

    def names(self, standing: FreshnessChecker) -> list[str]:
        """Return what is left; what was given up, or tried in vain since, is not."""
        return [name for name in self.batch.names if self._is_left(name, standing)]

    def _is_left(self, name: str, standing: FreshnessChecker) -> bool:
        return standing.is_due(name) and done_with(self.batch.output, name) <= self.before[name]
