"""Records of a run: its workers, the workers an engine was asked for, requests to cancel, results of follow-ups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from splatbatch.output.records.process import ProcessIdentity
from splatbatch.output.records.record import TypedRecord


@dataclass(frozen=True)
class WorkerRecord(ProcessIdentity):
    """workers/<name>.json, the heartbeat file of a worker; each of the worker's claims is a link to it, or a copy."""

    worker: str = ""
    """Name of the worker, by which its heartbeat file and its ledger are named; empty: unknown."""
    token: str = ""
    """Random text that tells the worker from every other one, also from an earlier one of the same name."""
    sequence: int = 0
    """Number of heartbeats; it grows while the worker lives."""
    beaten_at: float | None = None
    """Time of the last heartbeat by time.monotonic(), comparable on the same boot of the same machine only; None:
    unknown."""
    since: str = ""
    """Local date and time at which the worker started, as 2026-01-31 22:15:00."""
    terms: str = ""
    """Hash of the settings and version that the worker trains by; the same for all workers of a batch."""
    job: str = ""
    """Job of the engine (this machine or Slurm) that runs the worker, or Slurm job around it; empty: there is none."""
    has_ended: bool = False
    """Whether the worker has ended and released all its claims."""


@dataclass(frozen=True)
class SubmissionRecord(TypedRecord):
    """workers/jobs/<name>/submission.json: workers that an engine (this machine or Slurm) was asked to start."""

    engine: str = ""
    """Name of the engine, as "local" or "slurm"; empty: the record cannot be read."""
    num_workers: int = 0
    """Number of workers at a time; there may be more handles, for workers one after another."""
    terms: str = ""
    """Hash of the settings and version that the workers must train by; see `WorkerRecord`."""
    handles: tuple[str, ...] = ()
    """Names that the engine gave to the workers; empty until the engine has confirmed the submission."""


@dataclass(frozen=True)
class CancelRequest(TypedRecord):
    """cancel-*.json: request of a user that a run ends, or that it drops some patches."""

    run: ProcessIdentity = field(default_factory=ProcessIdentity)
    """Process that the request addresses; any other process ignores it."""
    patches: tuple[str, ...] = ()
    """Names of the patches to drop; empty: the whole run ends."""
    by: str = ""
    """User and host that made the request; empty: unknown."""


KINDS = ("inspect", "merge", "evaluate", "publish")
"""Kinds of follow-ups (what is made after the training), in their order; each has a file with its latest result."""
DONE = "done"
PARTLY = "partly"
LEFT_OUT = "left out"


@dataclass(frozen=True)
class FollowUpResult(TypedRecord):
    """Result of a follow-up, one of: inspection, merge, evaluation, publication; `what` is its kind."""

    what: str = ""
    state: str = ""
    """One of: done; partly (something is missing); left out (nothing was made)."""
    words: str = ""
    """Sentence on the result, or on why there is none; empty: nothing is to be said."""
    command: str = ""
    """Command that completes the follow-up; empty where nothing is missing."""
    at: float | None = None
    """Time of the result in seconds since 1970; None: unknown."""

    @property
    def is_done(self) -> bool:
        """Whether the follow-up is complete."""
        return self.state == DONE


@dataclass(frozen=True)
class TodoItem(TypedRecord):
    """Entry of the report's list of things to do (kind "do"), or worth a look ("look")."""

    kind: Literal["do", "look"] = "look"
    patches: tuple[str, ...] = ()
    what: str = ""
    command: str = ""
    """Command to copy for the thing to do; empty: there is none."""
