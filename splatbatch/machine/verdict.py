"""How an attempt ended, from its files and from what the engine says: the same rule for every engine."""

from __future__ import annotations

from splatbatch.files import Record
from splatbatch.machine.protocol import Seen
from splatbatch.outcome import Cancelled, Exit, Lost, TimedOut, exit_from_record


def verdict(exit_record: Record | None, *, heartbeat_moves: bool, seen: Seen) -> Exit | None:
    """Return how the attempt ended, or None while it may still be running.

    Args:
        exit_record: exit.json, if there is one: it decides.
        heartbeat_moves: whether the sequence number changed lately by our own clock. A node that is cut off from its
            engine still trains, and may still finish.
        seen: what the engine says.
    """
    if exit_record is not None:
        return exit_from_record(exit_record)
    if seen.phase in ("queued", "running", "unknown") or heartbeat_moves:
        return None
    reason = seen.reason.upper()
    if "CANCEL" in reason:
        return Cancelled(seen.reason)
    if "TIMEOUT" in reason:
        return TimedOut("wall", 0.0)
    return Lost(seen.reason or seen.phase)
