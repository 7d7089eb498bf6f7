"""The exclusive claim of an output folder: only one `train` at a time holds it, as the worker `local`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from splatbatch.errors import BusyError
from splatbatch.files import aside
from splatbatch.output import workers
from splatbatch.output.claims import EXCLUSIVE, Claims, open_claim
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.attempt import Claim
from splatbatch.output.records.run import WorkerRecord
from splatbatch.output.workers import LOCAL, Watcher, WorkerFile
from splatbatch.processes import pid_space

LOOK_S = 0.2
SAY_EVERY_S = 30.0


@contextmanager
def hold(output: OutputFolder, terms: str, say: Callable[[str], None]) -> Iterator[WorkerFile]:
    """Hold an output folder while the block runs, as the worker `local`; yield the heartbeat file of this worker.

    `work` processes that start later may join. If a run on another host seems to hold the folder, its heartbeat file is
    watched: a change is an error; after 180 s without a change the folder is taken.

    Args:
        output: the folder.
        terms: hash of settings and version by which the run trains; workers that join must have the same.
        say: called with a message while it waits.

    Raises:
        BusyError: another run holds the folder.
        OutputError: the heartbeat file cannot be written.
        OSError: the claim of the folder cannot be made.
        LaterFormatError: a later version wrote a heartbeat file.
    """
    watcher = Watcher(output)
    with WorkerFile(output, LOCAL, terms) as mine:
        claims, say_at = Claims(output, mine, watcher.is_over), 0.0
        while other := _holder_beside(output, watcher, claims):
            if other.is_alive_here or watcher.lives(other):
                raise BusyError(
                    f"{output.path}: {_who(other)} is training into this folder",
                    "Wait for this run, end it with `splatbatch cancel`, or set another output.folder."
                    " See `splatbatch status`.",
                )
            if time.monotonic() >= say_at:
                left_s = max(0.0, workers.SILENCE_S - watcher.silent_s(other))
                say(f"waiting for up to {left_s:.0f} s to see whether {_who(other)} is still training")
                say_at = time.monotonic() + SAY_EVERY_S
            time.sleep(LOOK_S)
        try:
            mine.appear()
            with contextlib.suppress(OSError), aside(output.lock) as lock:
                os.link(mine.path, lock)  # version 0.2.0 reads this name, and whether the file is locked
            yield mine
        finally:
            claims.close(EXCLUSIVE)


def holder(output: OutputFolder) -> WorkerRecord | None:
    """Return the run that holds an output folder, as far as this host can tell.

    None: no run holds it, or none whose record can be read.

    A run on another host counts until its record says that it has ended, since one read cannot show whether it lives.

    Raises:
        LaterFormatError: a later version wrote a heartbeat file.
    """
    for one in (open_claim(output, EXCLUSIVE), *_holders_without_claim(output)):
        if one and one.host and not one.has_ended and (one.is_elsewhere or one.is_alive_here):
            return one
    return None


def _holder_beside(output: OutputFolder, watcher: Watcher, claims: Claims) -> WorkerRecord | None:
    """Claim the folder, and return None; if a run that is not over holds it, return that run instead."""
    if other := next((one for one in _holders_without_claim(output) if one.host and not watcher.is_over(one)), None):
        return other
    found = claims.take(EXCLUSIVE)
    return None if isinstance(found, Claim) else found


def _holders_without_claim(output: OutputFolder) -> Iterator[WorkerRecord]:
    """Yield the runs that may hold the folder without a claim: version 0.2.0 used a lock, and the name `local`."""
    if named := WorkerRecord.read(output.worker(LOCAL)):
        yield named
    if (locked := WorkerRecord.read(output.lock)) and not locked.token:
        yield replace(locked, worker=LOCAL, token=f"lock {locked.pid}", space=pid_space())


def _who(run: WorkerRecord) -> str:
    return f"process {run.pid} on {run.host} since {run.since}" if run.host else "another run"
