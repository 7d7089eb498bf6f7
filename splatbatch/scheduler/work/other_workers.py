"""Checks for other workers of a batch, and reports for which worker this one waits.

`train` may have no worker beside it, `work` none under another YAML or version.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from splatbatch.errors import ExecutorError, OutputError
from splatbatch.output import workers
from splatbatch.output.claims import describe_silence
from splatbatch.output.records.run import WorkerRecord
from splatbatch.output.workers import LOCAL, Watcher, title

LOOK_S = 0.5
"""Seconds between two looks at the records of other workers."""
PREPARATION = "the preparation of the batch"
"""Words for the wait for another worker that makes the shared decisions."""
SAY_EVERY_S = 30.0
"""Seconds between two messages about the same wait."""


@dataclass
class OtherWorkers:
    """Watches the other workers of a batch, and reports waits for them through `say`."""

    watcher: Watcher
    say: Callable[[str], None]
    _next: dict[str, float] = field(default_factory=dict)
    """Time of the next message about each wait, by task."""

    def report(self, owner: WorkerRecord, task: str, *, though_well: bool = False) -> None:
        """Report that a task waits for another worker, if that is silent or unknown; at once, then every 30 s.

        A worker is silent if its heartbeat, written every few seconds, has not changed for 30 s.

        Args:
            owner: the other worker, as `Claims.take` returns it; without a name, its claim cannot be read.
            task: name of the task, or of the preparation, for the message.
            though_well: report also a worker that is not silent, since nothing else goes on meanwhile.

        Raises:
            LaterFormatError: a later version of splatbatch wrote a heartbeat file.
        """
        silent_s, now = self.watcher.silent_s(owner), time.monotonic()
        is_quiet = silent_s >= workers.QUIET_S or not owner.worker
        if now < self._next.get(task, 0.0) or not (is_quiet or though_well):
            return
        self._next[task] = now + SAY_EVERY_S
        unread = f"its claim {self.watcher.output.claims / owner.token} cannot be read"
        who = f"claimed by {title(owner)}" if owner.worker else unread
        self.say(f"waiting for {task}: {who}{f'; {describe_silence(silent_s)}' if is_quiet else ''}")

    def check_none(self, beat: Callable[[], None]) -> None:
        """Check that no worker trains into the folder.

        A worker on another host, or a silent one on this host, is watched until its file changes, or has not changed
        for 180 s.

        Args:
            beat: writes the heartbeat of this worker; called while waiting.

        Raises:
            OutputError: a worker trains into the folder.
            LaterFormatError: a later version of splatbatch wrote a heartbeat file.
        """
        if living := self._await(LOCAL, "", beat):
            raise OutputError(
                f"{self.watcher.output.path}: {_spell(living, 'train')} into this folder",
                "Wait for its end, end it with `splatbatch cancel`, or join it with `splatbatch work`."
                " See `splatbatch status`.",
            )

    def check_same_plan(self, mine: WorkerRecord, beat: Callable[[], None]) -> None:
        """Check that no run trains into the folder under another YAML or version; it may wait as `check_none` does.

        Args:
            mine: record of this worker.
            beat: writes the heartbeat of this worker; called while waiting.

        Raises:
            ExecutorError: another run trains into the folder under another YAML or version.
            LaterFormatError: a later version of splatbatch wrote a heartbeat file.
        """
        if living := self._await(mine.worker, mine.terms, beat):
            raise ExecutorError(
                f"{self.watcher.output.path}: {_spell(living, 'train')} into this folder with another YAML or version",
                "Give all workers the same YAML and install the same version of splatbatch, or wait until the others"
                " end.",
            )

    def _await(self, mine: str, terms: str, beat: Callable[[], None]) -> list[WorkerRecord]:
        """Return the other workers known to live, as soon as there is one; none once all are silent for 180 s.

        Args:
            mine: name of this worker, which is left out.
            terms: workers with this hash are left out; empty: none are.
            beat: writes our heartbeat; called while waiting.
        """
        say_at = 0.0
        while unknown := [one for one in self.watcher.living(but=mine) if not terms or one.terms != terms]:
            if living := [one for one in unknown if self.watcher.lives(one)]:
                return living
            if time.monotonic() >= say_at:
                left_s = max(workers.SILENCE_S - self.watcher.silent_s(one) for one in unknown)
                self.say(f"waiting for up to {left_s:.0f} s to see whether {_spell(unknown, 'still work')}")
                say_at = time.monotonic() + SAY_EVERY_S
            beat()
            time.sleep(LOOK_S)
        return []


def _spell(workers: list[WorkerRecord], verb: str) -> str:
    """Return in words which workers do something: the first by name, and the number of the rest."""
    first, more = workers[0], len(workers) - 1
    named = f"worker {first.worker} on {first.host} since {first.since}"
    return f"{named} and {more} more {verb}" if more else f"{named} {verb}s"
