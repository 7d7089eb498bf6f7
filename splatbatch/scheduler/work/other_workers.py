"""The other workers of a batch: `train` wants none, `work` none that trains otherwise; who is waited for is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from splatbatch.errors import ExecutorError, OutputError
from splatbatch.output import workers as limits
from splatbatch.output.claims import ClaimedByOther, describe_silence
from splatbatch.output.records.run import WorkerRecord
from splatbatch.output.workers import LOCAL, Watcher, title

LOOK_S = 0.5
PREPARATION = "the preparation of the batch"
SAY_EVERY_S = 30.0
"""Between two words on one wait."""


@dataclass
class OtherWorkers:
    """Looks after them, and tells on whom we wait."""

    watcher: Watcher
    say: Callable[[str], None]
    _next: dict[str, float] = field(default_factory=dict)
    """When each wait is told again."""

    def report(self, held: ClaimedByOther, task: str, *, though_well: bool = False) -> None:
        """Note that a task, or what is named so, waits: told of a worker that is silent at once and again.

        Args:
            held: who has claimed it.
            task: its name for people.
            though_well: told also of a worker that moves: nothing else goes on meanwhile.
        """
        silent_s, now = self.watcher.silent_s(held.owner), time.monotonic()
        is_quiet = silent_s >= limits.QUIET_S or not held.is_legible
        if now < self._next.get(task, 0.0) or not (is_quiet or though_well):
            return
        self._next[task] = now + SAY_EVERY_S
        who = f"claimed by {title(held.owner)}" if held.is_legible else f"its claim {held.path} cannot be read"
        self.say(f"waiting for {task}: {who}{f'; {describe_silence(silent_s)}' if is_quiet else ''}")

    def check_none(self, beat: Callable[[], None]) -> None:
        """See that no worker trains into the folder; of one on another host that takes until it moves, or is silent.

        Raises:
            OutputError: one does.
        """
        if living := self._await(LOCAL, "", beat):
            raise OutputError(
                f"{self.watcher.output.path}: {_spell(living, 'train')} into this folder",
                "Wait for it, end it with `splatbatch cancel`, or join it with `splatbatch work`."
                " See `splatbatch status`.",
            )

    def check_same_plan(self, mine: WorkerRecord, beat: Callable[[], None]) -> None:
        """See that no run trains into the folder under another YAML or version.

        Raises:
            ExecutorError: another run does.
        """
        if living := self._await(mine.worker, mine.terms, beat):
            raise ExecutorError(
                f"{self.watcher.output.path}: {_spell(living, 'train')} into this folder with another YAML or version",
                "Give all workers the same YAML and install the same version of splatbatch, or wait until the others"
                " end.",
            )

    def _await(self, mine: str, terms: str, beat: Callable[[], None]) -> list[WorkerRecord]:
        """Return the others who are known to live, as soon as one is; none once all have been silent for long enough.

        Args:
            mine: who is none of the others.
            terms: of those that do not matter; empty: all do.
            beat: shows that we live.
        """
        say_at = 0.0
        while unknown := [one for one in self.watcher.living(but=mine) if not terms or one.terms != terms]:
            if living := [one for one in unknown if self.watcher.lives(one)]:
                return living
            if time.monotonic() >= say_at:
                left_s = max(limits.SILENCE_S - self.watcher.silent_s(one) for one in unknown)
                self.say(f"waiting for up to {left_s:.0f} s to see whether {_spell(unknown, 'still work')}")
                say_at = time.monotonic() + SAY_EVERY_S
            beat()
            time.sleep(LOOK_S)
        return []


def _spell(workers: list[WorkerRecord], verb: str) -> str:
    """Return who does something: one of them by name, and how many others."""
    first, more = workers[0], len(workers) - 1
    named = f"worker {first.worker} on {first.host} since {first.since}"
    return f"{named} and {more} more {verb}" if more else f"{named} {verb}s"
