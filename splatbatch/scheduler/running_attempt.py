"""An attempt from the making of its folder until its outcome is recorded, and the clock that the loop goes by."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from splatbatch.isolated import CallQueue, wait_for_any
from splatbatch.machine.local import LocalExecutor
from splatbatch.machine.protocol import Handle, Key, Slot, verdict
from splatbatch.outcome import Cancelled, Exit, Lost
from splatbatch.output.attempt_folder import Attempt, CachedAttemptDir
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.tasks.task import Task

FINALIZING = ("eval", "export", "done")
"""Phases after the last step."""


class Clock:
    """The real time; a test may have another."""

    def now(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float, readings: Sequence[CallQueue[Any]] = ()) -> None:
        """Wait, no longer than until one of these has an answer."""
        wait_for_any(seconds, readings)


class Standby:
    """Stage of an attempt: it is prepared, then waits for its turn."""


@dataclass(frozen=True)
class Dismissal:
    """Stage of an attempt: it stood by, and was asked to end."""

    task_waits: bool
    """Its task begins in its turn, once it has ended."""


class Execution:
    """Stage of an attempt: it has a slot, and is prepared or runs."""


@dataclass
class Collection:
    """Stage of an attempt: it has ended; a reader judges it, and accepts its product."""

    end: Exit
    since: float
    """By the clock of the loop."""
    has_slot: bool = True


@dataclass(eq=False)
class RunningAttempt:
    """An attempt that the loop looks after."""

    task: Task
    attempt: Attempt
    slot: Slot
    """Where it runs, or is meant to run while it stands by."""
    stage: Standby | Dismissal | Execution | Collection
    handle: Handle = ""
    """Empty: its process was not started."""
    reading: CallQueue[Any] | None = None
    """Prepares it, or collects it. None while it runs or stands by, and while the disk has no room to collect it."""
    context: Slot | None = None
    """Where it has opened its CUDA context while it stands by: it can begin nowhere else."""
    num_company: int = 0
    """Most attempts that were on its GPU beside it."""
    said_s: float = 0.0
    """For how long it was said last that a reader waits."""

    @property
    def key(self) -> Key:
        """Its key, which no other attempt ever has."""
        return self.attempt.job.key

    def note_inputs(self, depends_on: Fingerprint) -> None:
        """Keep what it depends on, once that is read."""
        self.attempt = replace(self.attempt, job=replace(self.attempt.job, depends_on=depends_on))

    def read_by(self, reading: CallQueue[Any] | None) -> None:
        """Have a reader prepare or collect it; None: that reader is done."""
        self.reading = reading

    def open_context(self, slot: Slot) -> None:
        """Bind it to the slot on which it opens its CUDA context while it stands by."""
        self.context = slot

    def go(self, slot: Slot) -> None:
        """Let it take a slot, after it stood by."""
        self.slot, self.context, self.stage = slot, None, Execution()

    def dismiss(self, *, task_waits: bool) -> None:
        """Stand by no longer: it was asked to end."""
        self.stage = Dismissal(task_waits)

    def end(self, end: Exit, now: float) -> Collection:
        """Leave it to a reader, now that it has ended."""
        self.stage = Collection(end, now)
        return self.stage

    def is_finalizing(self) -> bool:
        """Return whether it has made its last step, and only evaluates and exports."""
        return self.attempt.folder.last_progress().phase in FINALIZING

    def how_it_ended(self, gone: str) -> Exit | None:
        """Return how it ended, or None while it may still run; `gone` says why its supervisor does not.

        Of one that has ended, the records change no more: from here on each is read once.
        """
        if not gone and not self.attempt.folder.has_exited():
            return None
        folder = CachedAttemptDir(self.attempt.folder.path)
        end = verdict(folder.read_exit(), gone)
        if end is not None:
            self.attempt = replace(self.attempt, folder=folder)
        # a supervisor that is asked to stop in its first moments dies before it can write its record
        is_cancelled = isinstance(end, Lost) and folder.is_cancelled()
        return Cancelled("stopped before the training began") if is_cancelled else end


def ask_to_end(executor: LocalExecutor, attempts: Sequence[RunningAttempt], reason: str = "") -> None:
    """Ask attempts to end; the reason is what their records will say, instead of our signal's name."""
    for one in attempts:
        with contextlib.suppress(OSError):  # a full disk: the signal below says the same
            one.attempt.folder.cancel.write_text(reason, encoding="utf-8")
    executor.cancel(handles_of(attempts))


def handles_of(attempts: Iterable[RunningAttempt]) -> dict[Key, Handle]:
    """Return the handles of those whose process was started, and has not ended."""
    return {one.key: one.handle for one in attempts if one.handle and not isinstance(one.stage, Collection)}
