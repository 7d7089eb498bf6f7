"""An open attempt of the loop, from the making of its folder until its outcome is recorded; and the loop's clock.

A slot is a GPU or a share of the CPU. A standby is an attempt that is prepared while all slots are busy. It begins once
go.json lies in its folder.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from splatbatch.isolated import CallQueue, wait_for_any
from splatbatch.machine.local import LocalExecutor
from splatbatch.machine.protocol import Handle, Key, Slot, verdict
from splatbatch.outcome import Cancelled, Exit, Lost
from splatbatch.output.attempt_folder import Attempt, CachedAttemptDir
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.tasks.task import Task

FINALIZING = ("eval", "export", "done")
"""Phases of a training after its last step."""


class Clock:
    """The clock of the loop; tests replace it."""

    def now(self) -> float:
        """Return the time in seconds since an arbitrary begin; it never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float, readings: Sequence[CallQueue[Any]] = ()) -> None:
        """Wait for this time in seconds, or until a reader process has an answer."""
        wait_for_any(seconds, readings)


@dataclass
class Collection:
    """Stage of an attempt whose process has ended: a reader process judges it and accepts its product."""

    end: Exit
    since: float
    """Time of the process's end by the clock of the loop, in seconds."""
    has_slot: bool = True
    """Whether the attempt still keeps its slot."""


Reading = CallQueue[Any]
"""Calls to the reader process that prepares or collects an attempt."""
Stage = Literal["standby", "ending", "withdrawn", "running"] | Collection
"""Stage of an open attempt.

standby: the attempt has no slot, is prepared, then waits for go.json. ending: a standby was asked to end, and its task
waits for that. withdrawn: as ending, but its task is in the queue again, or gone. running: the attempt has a slot, is
prepared and runs. Collection: its process has ended.
"""


@dataclass(eq=False)
class RunningAttempt:
    """An open attempt of the loop, with its slot and stage; the methods only note a change, `launch` and `loop` act."""

    task: Task
    attempt: Attempt
    slot: Slot
    """Slot on which the attempt runs or, for a standby, is meant to run."""
    stage: Stage
    handle: Handle = ""
    """Handle of the attempt's process, as `LocalExecutor.submit` returns it; empty: the process was not started."""
    reading: Reading | None = None
    """Calls to the reader process that prepares or collects the attempt.

    None while the attempt runs or stands by, and while the disk is too full to collect it.
    """
    context: Slot | None = None
    """Slot on which a standby was ordered to open its CUDA context, and on which alone it can begin.

    None: it was not, or the attempt has begun.
    """
    num_company: int = 0
    """Largest number of other attempts that were on the same GPU at the same time; 0: the attempt was alone."""
    said_s: float = 0.0
    """Seconds that the reader process had waited for a file when the wait was last reported; 0: no wait."""

    @property
    def key(self) -> Key:
        """Key of the attempt, which no other attempt ever has."""
        return self.attempt.job.key

    def note_inputs(self, depends_on: Fingerprint) -> None:
        """Set the fingerprint of the attempt's inputs (their hashes), once a reader process has computed it."""
        self.attempt = replace(self.attempt, job=replace(self.attempt.job, depends_on=depends_on))

    def read_by(self, reading: Reading | None) -> None:
        """Set the calls to the reader process that prepares or collects the attempt; None: the process has finished."""
        self.reading = reading

    def open_context(self, slot: Slot) -> None:
        """Note the slot on which a standby opens its CUDA context.

        From then on the standby can begin on this slot only.
        """
        self.context = slot

    def go(self, slot: Slot) -> None:
        """Note that a standby was ordered to begin on this slot."""
        self.slot, self.context, self.stage = slot, None, "running"

    def dismiss(self, *, task_waits: bool) -> None:
        """Note that a standby was asked to end.

        Args:
            task_waits: whether its task goes back to the queue only once the standby has ended.
        """
        self.stage = "ending" if task_waits else "withdrawn"

    def end(self, end: Exit, now: float) -> Collection:
        """Note the end of the process; return the stage in which a reader process collects the attempt.

        Args:
            end: how the process ended.
            now: time by the clock of the loop, in seconds.
        """
        self.stage = Collection(end, now)
        return self.stage

    @property
    def has_begun(self) -> bool:
        """Whether the attempt's turn has come: it runs, or has ended and is collected; False for every standby."""
        return self.stage == "running" or isinstance(self.stage, Collection)

    def is_finalizing(self) -> bool:
        """Return whether the training has made its last step, and only evaluates and exports."""
        return self.attempt.folder.last_progress().phase in FINALIZING

    def how_it_ended(self, gone: str) -> Exit | None:
        """Return how the process ended, or None while it may still run.

        Once the process has ended, each record of its folder is read only once more.

        Args:
            gone: reason why the supervisor of the attempt does not run; empty: the supervisor runs.
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
    """Request attempts to end, by their cancel files and by a signal; this does not wait for their ends.

    Args:
        executor: executor that started their processes.
        attempts: attempts to end.
        reason: reason that their exit.json will name; empty: none.
    """
    for one in attempts:
        with contextlib.suppress(OSError):  # on a full disk the signal below is enough
            one.attempt.folder.cancel.write_text(reason, encoding="utf-8")
    executor.cancel(handles_of(attempts))


def handles_of(attempts: Iterable[RunningAttempt]) -> dict[Key, Handle]:
    """Return the handles of the attempts whose process was started and has not ended, by key."""
    return {one.key: one.handle for one in attempts if one.handle and not isinstance(one.stage, Collection)}
