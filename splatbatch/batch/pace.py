"""How fast a training is, and when it, or the batch, will be done."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from splatbatch.files import Record

if TYPE_CHECKING:
    from splatbatch.batch.status import PatchStatus

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


def batch_eta_s(statuses: Sequence[PatchStatus]) -> float | None:
    """Return the seconds until every running and waiting patch is trained, if all goes well; None if unknown.

    As many patches are taken to run at once as run now, and a waiting one to take as long as the others.
    """
    running = [status for status in statuses if status.state == "running"]
    left = [status.eta_s for status in running if status.eta_s is not None]
    if not running or len(left) < len(running):
        return None
    trained = [status.seconds for status in statuses if status.state == "trained" and status.seconds]
    typical = statistics.median(trained or [(one.seconds or 0) + (one.eta_s or 0) for one in running])
    waiting = sum(status.state == "waiting" for status in statuses)
    return max(*left, (sum(left) + waiting * typical) / len(running))
