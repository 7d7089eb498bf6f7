"""What passes between the scheduler and a machine: slots, attempts by their keys, and what is seen of them."""

from __future__ import annotations

from dataclasses import dataclass

from splatbatch.outcome import Exit, Lost
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


def verdict(told: ExitFacts | None, seen: ProcessState) -> Exit | None:
    """Return how the attempt ended, or None while it may still be running."""
    if told is not None:
        return told.end
    return None if seen.is_running else Lost(seen.reason)
