"""The other workers of a batch, before one more begins: `train` wants none, `work` none that trains otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from splatbatch.errors import ExecutorError, OutputError
from splatbatch.store.claims.workers import LOCAL, SILENCE_S, Watcher
from splatbatch.store.records.run import WorkerRecord

LOOK_S = 0.5


def see_no_workers(watcher: Watcher, beat: Callable[[], None], say: Callable[[str], None]) -> None:
    """See that no worker trains into the folder; of one on another host that takes until it moves, or is silent.

    Raises:
        OutputError: one does.
    """
    living = _await(lambda: watcher.living(but=LOCAL), watcher, beat, say)
    if living:
        raise OutputError(
            f"{watcher.output.path}: {_spell(living, 'train')} into this folder",
            "Wait for it, end it with `splatbatch cancel`, or join it with `splatbatch work`. See `splatbatch status`.",
        )


def see_same_terms(watcher: Watcher, mine: WorkerRecord, beat: Callable[[], None], say: Callable[[str], None]) -> None:
    """See that nobody trains into the folder by another YAML or with another version.

    Raises:
        ExecutorError: somebody does.
    """

    def others() -> Iterable[WorkerRecord]:
        return [one for one in watcher.living(but=mine.worker) if one.terms != mine.terms]

    living = _await(others, watcher, beat, say)
    if living:
        raise ExecutorError(
            f"{watcher.output.path}: {_spell(living, 'train')} into this folder by another YAML or version",
            "Start all workers of a batch with the same YAML and the same splatbatch, or wait for it to end.",
        )


def _await(
    find: Callable[[], Iterable[WorkerRecord]], watcher: Watcher, beat: Callable[[], None], say: Callable[[str], None]
) -> list[WorkerRecord]:
    """Return those who are known to live, as soon as one is; none once all have been silent for long enough."""
    has_said = False
    while unknown := list(find()):
        if living := [one for one in unknown if watcher.lives(one)]:
            return living
        if not has_said:
            say(f"waiting for up to {SILENCE_S:.0f} s to see whether {_spell(unknown, 'still work')}")
            has_said = True
        beat()
        time.sleep(LOOK_S)
    return []


def _spell(workers: list[WorkerRecord], verb: str) -> str:
    """Return who does something: one of them by name, and how many others."""
    first, more = workers[0], len(workers) - 1
    named = f"worker {first.worker} on {first.host} since {first.since}"
    return f"{named} and {more} more {verb}" if more else f"{named} {verb}s"
