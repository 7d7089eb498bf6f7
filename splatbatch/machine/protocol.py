"""What the scheduler asks of a machine: start a supervisor, say what is seen of it, end it. Nothing else passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from splatbatch.store.attempt_folder import AttemptFolder

Key = str
"""<batch>.<patch>.a<n>: names one attempt for ever, never used again."""
Handle = str
"""Names the process of a supervisor, also to a later run."""


@dataclass(frozen=True)
class Slot:
    """Room for one attempt: a GPU, or a share of the CPU."""

    name: str
    gpu: str | None = None
    """UUID of the GPU; None trains on the CPU."""
    environment: tuple[tuple[str, str], ...] = ()
    """What attempts on it need besides: where CUDA MPS listens."""


@dataclass(frozen=True)
class Job:
    """An attempt to be started: job.json in its folder says the rest."""

    key: Key
    folder: AttemptFolder


@dataclass(frozen=True)
class Seen:
    """What is seen of an attempt's supervisor."""

    is_running: bool
    reason: str = "its supervisor is gone"
    """Why it does not run, where it does not."""


class Executor(Protocol):
    """Starts and ends supervisors; made up where a test or a benchmark simulates a machine."""

    shared_mib: float
    """GPU memory that CUDA MPS may take for all attempts on a GPU together."""

    def slots(self) -> Sequence[Slot]:
        """Return the room there is, one attempt each."""
        ...

    def submit(self, jobs: Sequence[Job]) -> Mapping[Key, Handle]:
        """Start the supervisor for each job; idempotent by key."""
        ...

    def poll(self, handles: Mapping[Key, Handle]) -> Mapping[Key, Seen]:
        """Say what is seen of each."""
        ...

    def cancel(self, handles: Mapping[Key, Handle]) -> None:
        """Ask them to stop; the verdict comes from the files."""
        ...

    def kill(self, handles: Mapping[Key, Handle]) -> None:
        """End by SIGKILL what did not listen."""
        ...

    def close(self) -> None:
        """End what was started for all attempts together; none runs any more."""
        ...

    def find(self, batch: str, unended: Sequence[AttemptFolder] = ()) -> Mapping[Key, Handle]:
        """Return what still lives of a batch, also when this parent did not start it.

        Args:
            batch: that the attempts belong to.
            unended: attempts that have not told their end: whatever their files name counts, too.
        """
        ...
