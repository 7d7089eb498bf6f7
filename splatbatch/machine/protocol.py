"""What the scheduler asks of a machine: start a supervisor, say what is seen of it, end it. Nothing else passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from splatbatch.outcome import Exit, Lost
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.attempt import ExitFacts

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
class ProcessState:
    """What is seen of an attempt's supervisor."""

    is_running: bool
    reason: str = "its supervisor is gone"
    """Why it does not run, where it does not."""


class AttemptExecutor(Protocol):
    """Starts and ends supervisors; made up where a test or a benchmark simulates a machine."""

    shared_mib: float
    """GPU memory that CUDA MPS may take for all attempts on a GPU together."""

    def slots(self) -> Sequence[Slot]:
        """Return the room there is, one attempt each."""

    def submit(self, key: Key, folder: AttemptFolder) -> Handle:
        """Start the supervisor of an attempt, to which job.json in its folder says the rest; idempotent by key."""

    def poll(self, handles: Mapping[Key, Handle]) -> Mapping[Key, ProcessState]:
        """Say what is seen of each."""

    def cancel(self, handles: Mapping[Key, Handle]) -> None:
        """Ask them to stop; the verdict comes from the files."""

    def kill(self, handles: Mapping[Key, Handle]) -> None:
        """End by SIGKILL what did not listen."""

    def close(self) -> None:
        """End what was started for all attempts together; none runs any more."""

    def find(self, batch: str, unended: Sequence[AttemptFolder] = ()) -> Mapping[Key, Handle]:
        """Return what still lives of a batch, also when this parent did not start it.

        Args:
            batch: that the attempts belong to.
            unended: attempts that have not told their end: whatever their files name counts, too.
        """


def verdict(told: ExitFacts | None, seen: ProcessState) -> Exit | None:
    """Return how the attempt ended, or None while it may still be running."""
    if told is not None:
        return told.end
    return None if seen.is_running else Lost(seen.reason)
