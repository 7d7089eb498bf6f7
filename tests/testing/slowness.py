"""How slow this machine is at the moment: bars of CPU time hold on one that other tests keep busy, too."""

from __future__ import annotations

import time

QUIET_S = 0.006
"""CPU time of `work` on a quiet core; two programs that share a core and its cache take two or three times that."""


def slowness() -> float:
    """Return how many times as much CPU time anything takes here and now as on a quiet core: 1 at least."""
    took = []
    for _ in range(5):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return max(1.0, sorted(took)[2] / QUIET_S)


def work() -> int:
    """Make and read objects, as programs do."""
    return sum(len(str(number)) + len({"a": number, "b": [number]}) for number in range(20_000))
