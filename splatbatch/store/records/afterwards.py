"""What came of one thing that follows a batch's training, or why it was left out: the files of `afterwards/`."""

from __future__ import annotations

from dataclasses import dataclass

from splatbatch.store.records.record import TypedRecord

KINDS = ("inspect", "merge", "evaluate", "publish")
"""What may follow, in its order; each has a file of its own, which whoever did it last has written."""
DONE = "done"
PARTLY = "partly"
LEFT_OUT = "left out"


@dataclass(frozen=True)
class Afterwards(TypedRecord):
    """One thing that follows the training."""

    what: str = ""
    state: str = ""
    """done, partly, left out."""
    words: str = ""
    """What came of it, or why nothing did, in a line."""
    command: str = ""
    """What makes it good; empty where nothing has to be."""
    at: float | None = None

    @property
    def is_done(self) -> bool:
        """Return whether nothing is missing."""
        return self.state == DONE
