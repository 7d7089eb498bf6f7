"""How an attempt ended: its exit record decides; without one it still runs, or is lost."""

from __future__ import annotations

from splatbatch.files import Record
from splatbatch.machine.protocol import Seen
from splatbatch.outcome import Exit, Lost, exit_from_record


def verdict(exit_record: Record | None, seen: Seen) -> Exit | None:
    """Return how the attempt ended, or None while it may still be running.

    Args:
        exit_record: exit.json, if there is one.
        seen: whether its supervisor runs.
    """
    if exit_record is not None:
        return exit_from_record(exit_record)
    return None if seen.is_running else Lost(seen.reason)
