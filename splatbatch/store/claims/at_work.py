"""Who works on a batch at the moment, where, and on what: as far as one look at the files tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from splatbatch.plain_text import counted
from splatbatch.store.claims.claims import open_claims
from splatbatch.store.claims.workers import LOCAL, Watcher, lives_here
from splatbatch.store.records.run import WorkerRecord

MOST_LINES = 8


@dataclass(frozen=True)
class AtWork:
    """A worker that has not ended, with the tasks that it has claimed."""

    worker: WorkerRecord
    tasks: tuple[str, ...]

    def in_words(self) -> str:
        """Return who works on what; whether one on another host still lives is not to be told by one look."""
        one = self.worker
        name = "train" if one.worker == LOCAL else f"worker {one.worker}"
        job = f", job {one.job}" if one.job else ""
        known = "" if lives_here(one) else f", if it lives: it has counted to {one.sequence}"
        return f"{name} on {one.host}{job}: {', '.join(self.tasks) or 'nothing at the moment'}{known}"


def at_work(watcher: Watcher, but: str = "") -> tuple[AtWork, ...]:
    """Return the workers that are not known to be gone, except one."""
    living = watcher.living(but)
    held = open_claims(watcher.output) if living else {}
    return tuple(AtWork(one, tuple(task for task, name in held.items() if name == one.worker)) for one in living)


def lines_of(workers: Sequence[AtWork]) -> list[str]:
    """Return a line for each, no more than a screen has room for; none for one alone."""
    if len(workers) < 2:
        return []
    more = [f"… and {len(workers) - MOST_LINES} more workers"] if len(workers) > MOST_LINES else []
    return [*(one.in_words() for one in workers[:MOST_LINES]), *more]


def in_short(workers: Sequence[AtWork]) -> str:
    """Return how many there are, and on how many nodes: "3 workers on 2 nodes"; empty for one alone."""
    nodes = {one.worker.host for one in workers}
    where = f" on {counted(len(nodes), 'node')}" if len(nodes) > 1 else ""
    return f"{counted(len(workers), 'worker')}{where}" if len(workers) > 1 else ""
