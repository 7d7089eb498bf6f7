"""Jobs of requested workers, the same for every engine: their state, and the variables that tell a worker its job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TERMS = "SPLATBATCH_TERMS"
"""Environment variable with a hash of the YAML and the version for which a worker was requested; `work` checks it."""
JOB = "SPLATBATCH_JOB"
"""Environment variable that tells a worker its job, shown with the worker: <array>_<index> of Slurm.

For a worker that is a process of this machine: <name of the submission>/<index>.
"""
NEVER_BEGAN = "JobLaunchFailure"
"""Word in `WorkerJob.how` of a job that never started: its log could not be opened, or its node not be reached."""


@dataclass(frozen=True)
class WorkerJob:
    """State of a requested worker, as its engine (this machine or Slurm) reports it."""

    job: str
    state: Literal["pending", "running", "ended", "unknown"]
    reason: str = ""
    """Why a pending job waits, in the engine's own words; empty: the job is not pending."""
    where: str = ""
    """Node of the job; empty: unknown, or it has none."""
    how: str = ""
    """How the job ended, in the engine's own words; empty: it has not ended."""
    code: int | None = None
    """Exit code of the worker; None: it has not ended, a signal ended it, or the engine does not tell."""
    why: str = ""
    """Why the state is unknown: the engine cannot be asked, or its answer is not understood. Empty: the state is
    known."""

    @property
    def words(self) -> str:
        """Detail shown with the state: why the job waits, how it ended, why its state is unknown, or its node.

        "an unnamed node" if the node of a running job is unknown.
        """
        return self.reason or self.how or self.why or self.where or "an unnamed node"
