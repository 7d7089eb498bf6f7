"""An output folder held by one command: against other runs and workers and, where need be, those that begin later."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from splatbatch.scheduler.work.others import PREPARATION, Waits, see_no_workers
from splatbatch.store.claims import PREPARING, Claim, Claims
from splatbatch.store.layout import OutputFolder
from splatbatch.store.lock import OutputLock
from splatbatch.store.workers import LOCAL, Presence, Watcher

LOOK_S = 0.2


@dataclass(frozen=True)
class Held:
    """An output folder that is ours."""

    claims: Claims
    beat: Callable[[], None]
    """Shows that we live; to be called every few seconds."""
    see_no_workers: Callable[[], None]
    """Raises an OutputError if there is one."""


@contextmanager
def held(output: OutputFolder, terms: str, say: Callable[[str], None]) -> Iterator[Held]:
    """Hold an output folder as the worker that `train` is; others may join.

    Raises:
        OutputError: another run holds it, or workers train into it.
    """
    watcher = Watcher(output)
    with OutputLock(output.lock) as lock:
        see_no_workers(watcher, lock.beat, say)
        with Presence(output, LOCAL, terms) as presence:

            def beat() -> None:
                lock.beat()
                presence.beat()

            claims = Claims(output, presence, watcher.is_gone)
            yield Held(claims, beat, lambda: see_no_workers(watcher, beat, say))


@contextmanager
def held_alone(output: OutputFolder, terms: str, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Hold an output folder so that nobody trains into it: workers that begin wait; give what shows that we live.

    Raises:
        OutputError: another run holds it, or workers train into it.
    """
    with held(output, terms, say) as ours:
        with contextlib.suppress(OSError):  # no claim can be made: what is read is held against its hash all the same
            waits = Waits(Watcher(output), say)
            while not isinstance(found := ours.claims.take(PREPARING), Claim):
                waits.on(found, PREPARATION)
                ours.see_no_workers()
                time.sleep(LOOK_S)
        try:
            ours.see_no_workers()  # one that had prepared before that
            yield ours.beat
        finally:
            ours.claims.close(PREPARING)
