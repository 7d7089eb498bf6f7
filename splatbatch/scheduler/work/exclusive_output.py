"""Locks an output folder for `train` and for commands: no other run trains into it and, if necessary, none begins."""

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
"""Seconds between two tries to take the claim on the preparation; `AGAIN_S`: the same for a lock of `in_turn`."""
PATIENCE_S = 5.0
"""Seconds for which the preparation by another worker is waited for without a message, unless that worker is silent."""
TURN_S = 1800.0
"""Longest time, in seconds, to wait for another process that merges or publishes into the same place."""
T = TypeVar("T")
"""Type of the result of a function called in turn."""


@contextmanager
def lock_output(batch: Batch, say: Callable[[str], None]) -> Iterator[Claims]:
    """Hold the output folder of a batch as `train` while the block runs; yield the claims of this worker.

    `work` processes that start later may join; with `lock_output_alone` they wait.

    Args:
        batch: the batch; its output folder is made if it is absent.
        say: prints a message for the user.

    Raises:
        OutputError: another run holds the folder, workers train into it, or the heartbeat file cannot be written.
        OSError: the claim of the folder cannot be made.
        LaterFormatError: a later version of splatbatch wrote a heartbeat file.
    """
    others = OtherWorkers(Watcher(batch.output), say)
    with hold(batch.output, batch.plan_hash, say) as mine:
        others.check_none(mine.heartbeat)
        yield Claims(batch.output, mine, others.watcher.is_dead)


@contextmanager
def lock_output_alone(batch: Batch, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Hold an output folder so that no worker trains into it either: workers that start wait until the block ends.

    If the claim for that cannot be written, they do not wait. Yield the function that writes heartbeats, by which other
    workers see that this process lives; call it every few seconds.

    Raises:
        OutputError: another run holds the folder, workers train into it, or the heartbeat file cannot be written.
        OSError: the claim of the folder cannot be made.
        LaterFormatError: a later version of splatbatch wrote a heartbeat file.
    """
    with lock_output(batch, say) as claims, pause_workers(batch.output, claims, say) as beat:
        yield beat


@contextmanager
def pause_workers(output: OutputFolder, claims: Claims, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Let no worker train into a folder that this process already holds: workers that start wait until the block ends.

    Yield the function that writes heartbeats. If the claim cannot be written, workers are not made to wait.

    Raises:
        OutputError: a worker trains into the folder.
        LaterFormatError: a later version of splatbatch wrote a heartbeat file.
    """
    others = OtherWorkers(Watcher(output), say)
    check = partial(others.check_none, claims.heartbeat)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # without a claim, the files read are still checked against their hashes
            stack.enter_context(preparation(claims, others, check))
        check()  # for a worker that had prepared before
        yield claims.heartbeat


@contextmanager
def preparation(claims: Claims, others: OtherWorkers, meanwhile: Callable[[], None]) -> Iterator[None]:
    """Hold the claim `PREPARING` while the block runs, so that only one worker at a time makes the shared decisions.

    The claim is waited for without a limit of time.

    Args:
        claims: claims of this worker.
        others: reports for which worker this one waits.
        meanwhile: called while waiting; an error that it raises ends the wait.

    Raises:
        OSError: no claim can be made.
        LaterFormatError: a later version of splatbatch wrote a heartbeat file.
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
    """Call a function that takes a lock, and return its result; while another process has the lock, call it again.

    Needed after training, since several workers, and the `train` that follows them, each publish.

    Args:
        call: function to call; raises BusyError if the lock is taken.
        stop: returns the reason to stop, or "".

    Raises:
        BusyError: the lock is still taken after half an hour, or when a stop is requested.
    """
    give_up_at = time.monotonic() + TURN_S
    while True:
        try:
            return call()
        except BusyError:
            if stop() or time.monotonic() > give_up_at:
                raise
            time.sleep(AGAIN_S)
