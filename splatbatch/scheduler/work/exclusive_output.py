"""An output folder held by one command: against other runs and workers and, where need be, those that begin later."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from splatbatch.errors import BusyError
from splatbatch.output.claims import PREPARING, Claim, Claims
from splatbatch.output.layout import OutputFolder
from splatbatch.output.lock import OutputLock
from splatbatch.output.workers import LOCAL, Watcher, WorkerFile
from splatbatch.scheduler.work.wait_reporter import PREPARATION, WaitReporter, check_no_workers

LOOK_S, AGAIN_S = 0.2, 0.5
TURN_S = 1800.0
"""So long somebody else may take who is merging or publishing the same just now."""
T = TypeVar("T")


@dataclass(frozen=True)
class ExclusiveOutput:
    """An output folder that is ours."""

    claims: Claims
    heartbeat: Callable[[], None]
    """Shows that we live; to be called every few seconds."""
    check_no_workers: Callable[[], None]
    """Raises an OutputError if there is one."""


@contextmanager
def lock_output(output: OutputFolder, terms: str, say: Callable[[str], None]) -> Iterator[ExclusiveOutput]:
    """Hold an output folder as the worker that `train` is; others may join.

    Raises:
        OutputError: another run holds it, or workers train into it.
    """
    watcher = Watcher(output)
    with OutputLock(output.lock) as lock:
        check_no_workers(watcher, lock.heartbeat, say)
        with WorkerFile(output, LOCAL, terms) as presence:

            def beat() -> None:
                lock.heartbeat()
                presence.heartbeat()

            claims = Claims(output, presence, watcher.is_dead)
            yield ExclusiveOutput(claims, beat, lambda: check_no_workers(watcher, beat, say))


@contextmanager
def lock_output_alone(output: OutputFolder, terms: str, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Hold an output folder so that nobody trains into it: workers that begin wait; give what shows that we live.

    Raises:
        OutputError: another run holds it, or workers train into it.
    """
    with lock_output(output, terms, say) as ours, pause_workers(output, ours, say) as beat:
        yield beat


@contextmanager
def pause_workers(
    output: OutputFolder, ours: ExclusiveOutput, say: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Let no worker train into a folder that is ours; give what shows that we live.

    Raises:
        OutputError: one does.
    """
    with contextlib.suppress(OSError):  # no claim can be made: what is read is held against its hash all the same
        waits = WaitReporter(Watcher(output), say)
        while not isinstance(found := ours.claims.take(PREPARING), Claim):
            waits.on(found, PREPARATION)
            ours.check_no_workers()
            time.sleep(LOOK_S)
    try:
        ours.check_no_workers()  # one that had prepared before that
        yield ours.heartbeat
    finally:
        ours.claims.close(PREPARING)


def in_turn(call: Callable[[], T], stop: Callable[[], str] = str) -> T:
    """Do something once nobody else is at it: of several workers, and the `train` that follows them, each publishes."""
    give_up_at = time.monotonic() + TURN_S
    while True:
        try:
            return call()
        except BusyError:
            if stop() or time.monotonic() > give_up_at:
                raise
            time.sleep(AGAIN_S)
