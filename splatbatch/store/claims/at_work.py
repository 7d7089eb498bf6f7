"""Who works on a batch at the moment, where, and on what: as far as one look at the files tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from splatbatch.plain_text import counted
from splatbatch.store.claims import workers as limits
from splatbatch.store.claims.claims import open_claims
from splatbatch.store.claims.workers import Watcher, lives_here, spelled
from splatbatch.store.records.run import WorkerRecord

MOST_LINES = 8


@dataclass(frozen=True)
class AtWork:
    """A worker that has not ended, with the tasks that it has claimed."""

    worker: WorkerRecord
    tasks: tuple[str, ...]
    silent_s: float = 0.0
    """For how long it is known not to have moved."""

    @property
    def is_quiet(self) -> bool:
        """Return whether it has been silent for longer than a worker that is well."""
        return self.silent_s >= limits.QUIET_S

    @property
    def is_frozen(self) -> bool:
        """Return whether it counts as gone, although its process is not."""
        return self.silent_s >= limits.SILENCE_S

    def in_words(self) -> str:
        """Return who works on what; whether one on another host still lives is not to be told by one look."""
        one = self.worker
        job = f", job {one.job}" if one.job else ""
        known = "" if self.is_quiet or lives_here(one) else f", if it lives: it has counted to {one.sequence}"
        known += f"; {self._silence()}" if self.is_quiet else ""
        return f"{spelled(one)}{job}: {', '.join(self.tasks) or 'nothing at the moment'}{known}"

    def _silence(self) -> str:
        if not self.is_frozen:
            return told_silence(self.silent_s)
        here = f": `kill -CONT {self.worker.pid}` lets it go on, `kill -9 {self.worker.pid}` ends it"
        return f"silent for {self.silent_s:.0f} s, its tasks are free for others{here}"


def told_silence(silent_s: float) -> str:
    """Return for how long a worker has been silent, and when that ends."""
    return f"silent for {silent_s:.0f} s, its tasks are taken over after {limits.SILENCE_S:.0f} s"


def at_work(watcher: Watcher, but: str = "") -> tuple[AtWork, ...]:
    """Return the workers that are not known to have ended, also those of this host that are frozen; except one."""
    found = watcher.present(but)
    held = open_claims(watcher.output) if found else {}
    return tuple(
        AtWork(one, tuple(task for task, name in held.items() if name == one.worker), watcher.silent_s(one))
        for one in found
    )


def lines_of(workers: Sequence[AtWork]) -> list[str]:
    """Return a line for each, no more than a screen has room for; of one alone only if it is silent."""
    if len(workers) < 2 and not any(one.is_quiet for one in workers):
        return []
    more = [f"… and {len(workers) - MOST_LINES} more workers"] if len(workers) > MOST_LINES else []
    return [*(one.in_words() for one in workers[:MOST_LINES]), *more]


def in_short(workers: Sequence[AtWork]) -> str:
    """Return how many there are, and on how many nodes: "3 workers on 2 nodes"; empty for one alone."""
    nodes = {one.worker.host for one in workers}
    where = f" on {counted(len(nodes), 'node')}" if len(nodes) > 1 else ""
    quiet = sum(one.is_quiet for one in workers)
    silent = f", {quiet} of them silent" if quiet else ""
    return f"{counted(len(workers), 'worker')}{where}{silent}" if len(workers) > 1 else ""
