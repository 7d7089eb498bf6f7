"""Types shared by the scheduler and the machine: slots, keys of attempts, handles of supervisors, the exit."""

from __future__ import annotations

from dataclasses import dataclass

from splatbatch.outcome import Exit, Lost
from splatbatch.output.records.attempt import ExitFacts

Key = str
"""Name of an attempt, <batch>.<patch>.a<n>; it is never used for another attempt."""
Handle = str
"""Name of a supervisor process, by which a later run recognises the process, too; empty: not started."""


@dataclass(frozen=True)
class Slot:
    """Room for one attempt: a GPU, or a share of the CPU."""

    name: str
    gpu: str | None = None
    """UUID of the GPU; None: the slot is a share of the CPU."""
    environment: tuple[tuple[str, str], ...] = ()
    """Environment variables for attempts on this slot, by which they use CUDA MPS; empty: no MPS."""


GONE = "the process that watched the attempt (supervisor) is gone"
"""Reason why a supervisor does not run if nothing more is known."""


def verdict(told: ExitFacts | None, gone: str) -> Exit | None:
    """Return the exit of an attempt: as its supervisor recorded it, else `Lost` if the supervisor is gone.

    None while the attempt may still run.

    Args:
        told: content of exit.json; None: not written yet.
        gone: reason why the supervisor does not run; empty: it runs.
    """
    if told is not None:
        return told.end
    return Lost(gone) if gone else None
