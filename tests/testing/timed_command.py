"""A command in a forked process with a time limit: one that waits for ever fails its test and holds nobody up."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

from command_line import Ended, invoke

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from fake_batch import FakeBatch

FORK = multiprocessing.get_context("fork")  # what is imported already is not imported again


def within(seconds: float, *arguments: str, batch: FakeBatch | None = None) -> Ended:
    """Run a command; raise TimeoutError if it has not ended in time."""
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_run, args=(theirs, arguments, batch))
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise TimeoutError(f"splatbatch {' '.join(arguments)} has not ended after {seconds} s")
        ended: Ended = ours.recv()
        return ended
    finally:
        process.kill()
        process.join()


def _run(answer: Connection, arguments: tuple[str, ...], batch: FakeBatch | None) -> None:
    try:
        answer.send(invoke(*arguments, batch=batch))
    except BaseException as error:  # noqa: BLE001 - an uncaught exception is what a person sees as a traceback
        answer.send(Ended(-1, "", f"Traceback: {error!r}"))
