"""A run of `train`: who holds the output folder, what is asked of it from outside, what has followed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from splatbatch.output.records.process import ProcessIdentity
from splatbatch.output.records.record import TypedRecord


@dataclass(frozen=True)
class WorkerRecord(ProcessIdentity):
    """workers/<name>.json, and each claim that it has made: a worker, and that it lives."""

    worker: str = ""
    """Its name: that of its ledger, too."""
    token: str = ""
    """Tells it from every other, also of the same name."""
    sequence: int = 0
    """Moves while it lives."""
    beaten_at: float | None = None
    """When it moved last, by time.monotonic(): of this boot of this machine one look tells how long ago that is."""
    since: str = ""
    terms: str = ""
    """Hash of what it trains by."""
    job: str = ""
    """Of the engine that runs it."""
    has_ended: bool = False
    """It has let go of all that it had claimed."""


@dataclass(frozen=True)
class SubmissionRecord(TypedRecord):
    """workers/jobs/<name>/submission.json: workers that an engine was asked to start."""

    engine: str = ""
    num_workers: int = 0
    """At once; there may be more handles, one after another."""
    terms: str = ""
    """What they are to train by: see WorkerRecord."""
    handles: tuple[str, ...] = ()
    """What the engine calls its workers; none as long as it was not heard to have taken them."""


@dataclass(frozen=True)
class CancelRequest(TypedRecord):
    """cancel-*.json: a run is to end, or to leave some patches."""

    run: ProcessIdentity = field(default_factory=ProcessIdentity)
    """No other process obeys."""
    patches: tuple[str, ...] = ()
    """None: all."""
    by: str = ""


KINDS = ("inspect", "merge", "evaluate", "publish")
"""The follow-ups in their order; the file of each holds its latest result."""
DONE = "done"
PARTLY = "partly"
LEFT_OUT = "left out"


@dataclass(frozen=True)
class FollowUpResult(TypedRecord):
    """Result of a follow-up: inspection, merge, evaluation or publication."""

    what: str = ""
    state: str = ""
    """done, partly, left out."""
    words: str = ""
    """Its result, or why there is none, in a line."""
    command: str = ""
    """What makes it good; empty where nothing has to be."""
    at: float | None = None

    @property
    def is_done(self) -> bool:
        """Return whether nothing is missing."""
        return self.state == DONE


@dataclass(frozen=True)
class TodoItem(TypedRecord):
    """Of the report: something to be done as long as a patch is not as it should be, or worth a look."""

    kind: Literal["do", "look"] = "look"
    patches: tuple[str, ...] = ()
    what: str = ""
    command: str = ""
    """That does it."""
