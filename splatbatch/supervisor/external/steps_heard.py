"""How far a program says it is, and whether that is the end: programs log every step, or every tenth, or a few."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from splatbatch.files import Record

if TYPE_CHECKING:
    from splatbatch.store.records.attempt import Progress

PROOF_SHARE = 1 / 100
"""After a bad end the last step heard may be at most this share of the run before the last one."""


@dataclass(frozen=True)
class StepsHeard:
    """The steps that a program has named in its log so far."""

    highest: int | None = None
    """None: it has named none."""
    gap: int = 0
    """The most between a step and the next higher one, from 0 on: how far apart its words are."""
    is_lost: bool = False
    """Not all that it said since was read: it may have come farther."""

    def then(self, step: int) -> StepsHeard:
        """Return what is known once one more step is named; lower ones are of something else, an evaluation."""
        if step < 0 or (self.highest is not None and step <= self.highest):
            return self
        return StepsHeard(step, self.gap if self.is_lost else max(self.gap, step - (self.highest or 0)))

    def without_knowing_more(self) -> StepsHeard:
        """Return what is known once a part of its talk went unread."""
        return replace(self, is_lost=True)

    def falls_short_of(self, max_steps: int) -> bool:
        """Return whether the program has not come to the end: by its habit it would have named a later step.

        One that names every tenth step, from 0 on, ends a run of 100 with 90; one that names every step, with 99.
        """
        if self.highest is None or self.is_lost:
            return False
        return self.highest + max(self.gap, 1) < max_steps

    def reaches(self, max_steps: int) -> bool:
        """Return whether it has named the last step, or as good as that: what counts as proof after a bad end."""
        if self.highest is None:
            return False
        missing = max_steps - self.highest
        return 0 <= missing <= max(1, min(self.gap, int(PROOF_SHARE * max_steps)))

    def to_record(self) -> Record:
        """Return what progress.jsonl holds of it: nothing as long as there is nothing to tell."""
        steps = {} if self.highest is None else {"highest_step": self.highest, "step_gap": self.gap}
        return steps | ({"steps_unheard": True} if self.is_lost else {})

    @staticmethod
    def of(line: Progress) -> StepsHeard:
        """Return what a line of progress.jsonl tells; what is no number of steps was not heard."""
        if line.highest_step is None or line.highest_step < 0:
            return StepsHeard(is_lost=line.steps_unheard)
        return StepsHeard(line.highest_step, max(line.step_gap or 0, 0), line.steps_unheard)
