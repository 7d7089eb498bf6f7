"""How an attempt ended: its exit record decides; without one it still runs, or is lost."""

from __future__ import annotations

from splatbatch.machine.protocol import Seen
from splatbatch.outcome import Exit, Lost
from splatbatch.store.records.attempt import ExitFacts


def verdict(told: ExitFacts | None, seen: Seen) -> Exit | None:
    """Return how the attempt ended, or None while it may still be running.

    Args:
        told: exit.json, if there is one.
        seen: whether its supervisor runs.
    """
    if told is not None:
        return told.end
    return None if seen.is_running else Lost(seen.reason)
