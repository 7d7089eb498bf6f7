"""The job of a requested worker, by this machine or Slurm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TERMS = "SPLATBATCH_TERMS"
"""Variable that tells a worker by what terms (YAML and version) it was asked for; see `work`."""
JOB = "SPLATBATCH_JOB"
"""Variable that tells a worker its job."""
NEVER_BEGAN = "JobLaunchFailure"
"""How a job has ended whose log could not be opened, or whose node could not be reached."""


@dataclass(frozen=True)
class WorkerJob:
    """State of a requested worker, as its engine reports it."""

    job: str
    state: Literal["pending", "running", "ended", "unknown"]
    reason: str = ""
    """Why it waits, in the engine's own words, as the others."""
    where: str = ""
    how: str = ""
    """It ended."""
    code: int | None = None
    """Its exit code, where the engine tells."""
    why: str = ""
    """The engine cannot be asked, or is not understood."""

    @property
    def words(self) -> str:
        """Return what is told of it beside its state: a reason in the engine's own words, or its node."""
        return self.reason or self.how or self.why or self.where or "an unnamed node"
