"""Attempts asked to end, and waited for."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from splatbatch.batch.work import Clock, Running
from splatbatch.executors import Executor, Key

LOOK_S = 0.05


def ask_to_end(executor: Executor, attempts: Mapping[Key, Running]) -> None:
    """Ask attempts to end."""
    for running in attempts.values():
        with contextlib.suppress(OSError):  # a full disk: the signal below says the same
            running.attempt.folder.cancel.touch()
    executor.cancel({key: running.handle for key, running in attempts.items()})


def end_all(executor: Executor, attempts: Mapping[Key, Running], clock: Clock, patience_s: float) -> None:
    """Ask attempts to end, and wait until they have; nothing is written down."""
    ask_to_end(executor, attempts)
    handles, give_up_at = {key: running.handle for key, running in attempts.items()}, clock.now() + patience_s
    while handles and clock.now() < give_up_at:
        clock.sleep(LOOK_S)
        seen = executor.poll(handles)
        handles = {key: handle for key, handle in handles.items() if seen[key].phase not in ("ended", "gone")}
