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


GONE = "its supervisor is gone"
"""Why an attempt's supervisor does not run, where no more is known."""


def verdict(told: ExitFacts | None, gone: str) -> Exit | None:
    """Return how the attempt ended, or None while it may still be running.

    Args:
        told: what its supervisor has written down; None: nothing.
        gone: why its supervisor does not run; empty: it does.
    """
    if told is not None:
        return told.end
    return Lost(gone) if gone else None
