"""An attempt that was submitted, how it ended, and the clock that the loop goes by."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from splatbatch.isolated import CallQueue, rest
from splatbatch.machine.protocol import AttemptExecutor, Handle, Key, ProcessState, Slot, verdict
from splatbatch.outcome import Cancelled, Exit, Lost
from splatbatch.output.attempt_folder import Attempt, CachedAttemptDir
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.tasks.task import Task


class Clock(Protocol):
    """Time as the runner sees it."""

    def now(self) -> float:
        """Return seconds that never go back."""
        ...

    def sleep(self, seconds: float, readings: Sequence[CallQueue[Any]] = ()) -> None:
        """Wait, no longer than until one of these has an answer."""
        ...


class SystemClock:
    """The real time."""

    def now(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float, readings: Sequence[CallQueue[Any]] = ()) -> None:
        """Wait, no longer than until one of these has an answer."""
        rest(seconds, readings)


LOOK_S = 0.05
"""Between two looks at attempts that were asked to end."""


@dataclass(eq=False)
class RunningAttempt:
    """An attempt that was submitted."""

    task: Task
    attempt: Attempt
    key: Key
    handle: Handle
    slot: Slot
    """Where it runs, or is meant to run while it stands by."""
    num_company: int = 0
    """Most attempts that were on its GPU beside it."""
    preparing: CallQueue[Any] | None = None
    """Writes what it is told; None: its process was started."""


def how_it_ended(running: RunningAttempt, seen: ProcessState) -> Exit | None:
    """Return how an attempt ended, or None while it may still run.

    Of one that has ended, the records change no more: from here on each is read once.
    """
    if seen.is_running and not running.attempt.folder.has_exited():
        return None
    folder = CachedAttemptDir(running.attempt.folder.path)
    end = verdict(folder.read_exit(), seen)
    if end is not None:
        running.attempt = replace(running.attempt, folder=folder)
    # a supervisor that is asked to stop in its first moments dies before it can write its record
    return Cancelled("stopped before the training began") if isinstance(end, Lost) and folder.is_cancelled() else end


def take_prepared(running: RunningAttempt, depends_on: Fingerprint) -> None:
    """Take in what an attempt depends on, now that all it reads is written."""
    running.attempt, running.preparing = replace(running.attempt, depends_on=depends_on), None


def leave(running: RunningAttempt) -> None:
    """Take an attempt for one that does not begin."""
    running.preparing = None


def ask_to_end(executor: AttemptExecutor, attempts: Mapping[Key, RunningAttempt], reason: str = "") -> None:
    """Ask attempts to end; the reason is what their records will say, instead of our signal's name."""
    for running in attempts.values():
        with contextlib.suppress(OSError):  # a full disk: the signal below says the same
            running.attempt.folder.cancel.write_text(reason, encoding="utf-8")
    executor.cancel(handles_of(attempts))


def handles_of(attempts: Mapping[Key, RunningAttempt]) -> dict[Key, Handle]:
    """Return the handles of those whose process was started."""
    return {key: running.handle for key, running in attempts.items() if running.preparing is None}


def end_all(executor: AttemptExecutor, attempts: Mapping[Key, RunningAttempt], clock: Clock, patience_s: float) -> None:
    """Ask attempts to end, and wait until they have; nothing is written down."""
    ask_to_end(executor, attempts)
    for running in attempts.values():
        if running.preparing is not None:
            running.preparing.end()
    handles, give_up_at = handles_of(attempts), clock.now() + patience_s
    while handles and clock.now() < give_up_at:
        clock.sleep(LOOK_S)
        seen = executor.poll(handles)
        handles = {key: handle for key, handle in handles.items() if seen[key].is_running}
