"""The splat behind the patches of a batch, as it lies there at the moment: whoever trains it, a new one is seen."""

from __future__ import annotations

from splatbatch.identity import Stamp, stamp_of
from splatbatch.store.folders import ACCEPTED, RESULT
from splatbatch.tasks.fingerprints.fingerprint import behind, is_drawn_behind
from splatbatch.tasks.task import Task

Seen = tuple[Stamp, ...]
"""Of what says which splat is accepted; empty where none is drawn."""


class Behind:
    """Reads the hash of the splat behind, again where another one was accepted since."""

    def __init__(self) -> None:
        self._kept: tuple[Seen, str] = ((), "")

    def seen(self, task: Task) -> Seen:
        """Return what tells the splat behind a task from a later one; one look at its files."""
        place = task.patch.behind
        return tuple(stamp_of(f"{place}/{name}") for name in (RESULT, ACCEPTED)) if place else ()

    def sha256(self, task: Task) -> str:
        """Return the hash of the splat behind a task, which is that behind all; empty where none is drawn."""
        if not is_drawn_behind(task.patch, task.recipe):
            return ""
        if (seen := self.seen(task)) != self._kept[0]:
            self._kept = (seen, behind(task.patch, task.recipe))
        return self._kept[1]
