"""How fast a training is, and when it will be done."""

from __future__ import annotations

from collections.abc import Sequence

from splatbatch.files import Record

RECORDS_LOOKED_AT = 10


def steps_per_s(records: Sequence[Record]) -> float | None:
    """Return the pace of the latest records with a loss; None while it cannot be told."""
    marks = [(record.get("t"), record.get("step")) for record in records if "loss" in record][-RECORDS_LOOKED_AT:]
    known = [(at, step) for at, step in marks if isinstance(at, int | float) and isinstance(step, int | float)]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    return max(0.0, (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0]))


def eta_s(step: int, max_steps: int, pace: float | None) -> float | None:
    """Return the seconds until the last step; None while the pace is unknown."""
    return (max_steps - step) / pace if pace and 0 < step <= max_steps else None
