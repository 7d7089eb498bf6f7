"""What every engine can do: say whether it could start workers, start them, say how they are, stop them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from splatbatch.output.submissions import Submission

Handle = str
"""What an engine calls one worker; no other worker of a batch is called so."""
TERMS = "SPLATBATCH_TERMS"
"""Variable that tells a worker by what terms (YAML and version) it was asked for; see `work`."""
JOB = "SPLATBATCH_JOB"
"""Variable that tells a worker its handle."""


@dataclass(frozen=True)
class WorkerRequest:
    """Workers that an engine is to start."""

    num_workers: int
    """At once."""
    gpus: int
    """Of each."""
    command: tuple[str, ...]
    """What a worker runs: the same for all."""
    environment: Mapping[str, str]
    """Variables that each must have, beside those that we have."""
    folder: Path
    """Where it is started: the folder of the YAML."""
    grace_s: float
    """What a worker needs between being told to stop and its end."""
    setup: tuple[str, ...] = ()
    """Lines for the shell on the node, before that."""
    num_turns: int = 1
    """How often each may have to be followed by another, if its time is shorter than the work."""

    def with_turns(self, num_turns: int) -> WorkerRequest:
        """Return the same with so many turns."""
        return replace(self, num_turns=num_turns)


@dataclass(frozen=True)
class Pending:
    """The engine has it, and has not started it."""

    reason: str = ""
    """In the engine's own words."""


@dataclass(frozen=True)
class Running:
    """It runs."""

    where: str = ""


@dataclass(frozen=True)
class Ended:
    """It runs no more, or the engine knows nothing of it any more."""

    how: str = ""
    """In the engine's own words."""
    where: str = ""
    code: int | None = None
    """Its exit code, where the engine tells."""


@dataclass(frozen=True)
class Unknown:
    """The engine cannot be asked, or says what we do not understand: it may still run."""

    why: str = ""


JobState = Pending | Running | Ended | Unknown


class Engine(Protocol):
    """Starts workers, which find their tasks in the output folder.

    Each method makes as few calls of the engine as it can: sites forbid to ask often. Only `check` and `start` raise.
    """

    def check(self, wanted: WorkerRequest) -> None:
        """See that the engine would take such workers, as far as can be known before it is asked for them.

        Raises:
            ExecutorError: it would not, in its own words.
        """
        ...

    def num_turns(self, wanted: WorkerRequest, seconds: float | None) -> int:
        """Return how many workers one after another it takes to work for so long; 1 where time has no limit."""
        ...

    def start(self, wanted: WorkerRequest, submission: Submission) -> tuple[Handle, ...]:
        """Ask for workers; each writes what it says into `submission.log(<its index>)`.

        Raises:
            ExecutorError: the engine refuses, in its own words.
        """
        ...

    def find(self, submission: Submission) -> tuple[Handle, ...] | None:
        """Return the workers of a start whose caller died before it wrote them down, if there are any.

        None if the engine cannot be asked.
        """
        ...

    def look(self, known: Sequence[Submission]) -> Mapping[Handle, JobState]:
        """Say how all workers of some submissions are; `Unknown` of each if the engine cannot be asked."""
        ...

    def stop(self, known: Sequence[Submission]) -> str:
        """End all their workers, also those that wait; return what went wrong, empty if nothing did."""
        ...

    def drop(self, submission: Submission) -> None:
        """End those that wait; nothing is left for them to do."""
        ...
