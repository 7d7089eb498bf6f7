"""Holding an output folder: no other run or worker trains into it and, where necessary, none begins."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from splatbatch.errors import BusyError
from splatbatch.output.claims import PREPARING, Claims
from splatbatch.output.exclusive import hold
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.attempt import Claim
from splatbatch.output.workers import Watcher
from splatbatch.scheduler.work.other_workers import PREPARATION, OtherWorkers
from splatbatch.tasks.batch import Batch

LOOK_S, AGAIN_S = 0.2, 0.5
PATIENCE_S = 5.0
"""So long the preparation by another worker is waited for without a word."""
TURN_S = 1800.0
"""How long another process may take that merges or publishes the same."""
T = TypeVar("T")


@contextmanager
def lock_output(batch: Batch, say: Callable[[str], None]) -> Iterator[Claims]:
    """Hold the output folder of a batch as the worker that `train` is; give its claims. Workers may join later.

    Raises:
        OutputError: another run holds it, or workers train into it.
    """
    others = OtherWorkers(Watcher(batch.output), say)
    with hold(batch.output, batch.plan_hash, say) as mine:
        others.check_none(mine.heartbeat)
        yield Claims(batch.output, mine, others.watcher.is_dead)


@contextmanager
def lock_output_alone(batch: Batch, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Lock an output folder so that no worker trains into it: workers that begin wait; give the heartbeat.

    Raises:
        OutputError: another run holds it, or workers train into it.
    """
    with lock_output(batch, say) as claims, pause_workers(batch.output, claims, say) as beat:
        yield beat


@contextmanager
def pause_workers(output: OutputFolder, claims: Claims, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Let no worker train into a folder that is ours; give what shows that we live.

    Raises:
        OutputError: one does.
    """
    others = OtherWorkers(Watcher(output), say)
    check = partial(others.check_none, claims.heartbeat)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # no claim can be made: what is read is held against its hash all the same
            stack.enter_context(preparation(claims, others, check))
        check()  # one that had prepared before that
        yield claims.heartbeat


@contextmanager
def preparation(claims: Claims, others: OtherWorkers, meanwhile: Callable[[], None]) -> Iterator[None]:
    """Prepare the batch while the block runs, which one worker does after the other.

    Raises:
        OSError: no claim can be made.
    """
    began = time.monotonic()
    try:
        while not isinstance(found := claims.take(PREPARING), Claim):
            others.report(found, PREPARATION, though_well=time.monotonic() - began > PATIENCE_S)
            meanwhile()
            time.sleep(LOOK_S)
        yield
    finally:
        claims.close(PREPARING)


def in_turn(call: Callable[[], T], stop: Callable[[], str] = str) -> T:
    """Do something under a lock: of several workers, and the `train` that follows them, each publishes."""
    give_up_at = time.monotonic() + TURN_S
    while True:
        try:
            return call()
        except BusyError:
            if stop() or time.monotonic() > give_up_at:
                raise
            time.sleep(AGAIN_S)
