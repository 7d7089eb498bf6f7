"""Attempts of an earlier parent that still run. They are stopped: their settings may no longer be ours."""

from __future__ import annotations

import time
from collections.abc import Callable

from splatbatch.batch.ledger import Ledger
from splatbatch.errors import SplatbatchError
from splatbatch.executors import Executor

PATIENCE_S = 10.0
ROUND_S = 0.1


def let_go(executor: Executor, batch: str, ledger: Ledger, grace_s: float, beat: Callable[[], None]) -> None:
    """Stop what still runs of a batch, and wait until it has ended; `beat` is called meanwhile.

    Raises:
        SplatbatchError: something does not end.
    """
    twins = executor.find(batch)
    if not twins:
        return
    ledger.write("twins_stopped", keys=sorted(twins))
    give_up_at = time.monotonic() + grace_s + PATIENCE_S
    while twins:
        if time.monotonic() > give_up_at:
            raise SplatbatchError(
                f"attempts of an earlier run do not stop: {', '.join(sorted(twins))}",
                "End their processes by hand, then start again.",
            )
        executor.cancel(twins)
        beat()
        time.sleep(ROUND_S)
        twins = executor.find(batch)
