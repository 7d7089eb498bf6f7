"""Jobs of requested workers, the same for every engine: their state, and the variables that tell a worker its job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TERMS = "SPLATBATCH_TERMS"
"""Environment variable with the hash of the plan (YAML and version) for which a worker was requested; see `work`."""
JOB = "SPLATBATCH_JOB"
"""Environment variable with the job of a worker."""
NEVER_BEGAN = "JobLaunchFailure"
"""Marks the end of a job that never started: its log could not be opened, or its node not be reached."""


@dataclass(frozen=True)
class WorkerJob:
    """State of a requested worker, as its engine reports it."""

    job: str
    state: Literal["pending", "running", "ended", "unknown"]
    reason: str = ""
    """Why a pending job waits, in the engine's own words."""
    where: str = ""
    """Node of the job; empty: unknown, or it has none."""
    how: str = ""
    """How the job ended, in the engine's own words."""
    code: int | None = None
    """Exit code of the worker; None: it has not ended, or the engine does not tell."""
    why: str = ""
    """Why the state is unknown: the engine cannot be asked, or its answer is not understood."""

    @property
    def words(self) -> str:
        """Return the detail shown with the state: why it waits, how it ended, why it is unknown, or its node."""
        return self.reason or self.how or self.why or self.where or "an unnamed node"
