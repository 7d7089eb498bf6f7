"""An attempt that was submitted, how it ended, and the time that the loop goes by."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from splatbatch.machine.protocol import Executor, Handle, Key, Seen, Slot, verdict
from splatbatch.outcome import Cancelled, Exit, Lost
from splatbatch.store.attempt_folder import Attempt, EndedAttempt
from splatbatch.tasks.task import Task


class Clock(Protocol):
    """Time as the runner sees it."""

    def now(self) -> float:
        """Return seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class WallClock:
    """The real time."""

    def now(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


LOOK_S = 0.05
"""Between two looks at attempts that were asked to end."""


@dataclass(eq=False)
class Running:
    """An attempt that was submitted."""

    task: Task
    attempt: Attempt
    key: Key
    handle: Handle
    slot: Slot
    """Where it runs, or is meant to run while it stands by."""
    num_company: int = 0
    """Most attempts that were on its GPU beside it."""


def how_it_ended(running: Running, seen: Seen) -> Exit | None:
    """Return how an attempt ended, or None while it may still run.

    Of one that has ended, the records change no more: from here on each is read once.
    """
    if seen.is_running and not running.attempt.folder.has_ended():
        return None
    folder = EndedAttempt(running.attempt.folder.path)
    end = verdict(folder.read_exit(), seen)
    if end is not None:
        running.attempt = replace(running.attempt, folder=folder)
    # a supervisor that is asked to stop in its first moments dies before it can write its record
    return Cancelled("stopped at its start") if isinstance(end, Lost) and folder.is_cancelled() else end


def ask_to_end(executor: Executor, attempts: Mapping[Key, Running]) -> None:
    """Ask attempts to end."""
    for running in attempts.values():
        with contextlib.suppress(OSError):  # a full disk: the signal below says the same
            running.attempt.folder.cancel.touch()
    executor.cancel({key: running.handle for key, running in attempts.items()})


def end_all(executor: Executor, attempts: Mapping[Key, Running], clock: Clock, patience_s: float) -> None:
    """Ask attempts to end, and wait until they have; nothing is written down."""
    ask_to_end(executor, attempts)
    handles, give_up_at = {key: running.handle for key, running in attempts.items()}, clock.now() + patience_s
    while handles and clock.now() < give_up_at:
        clock.sleep(LOOK_S)
        seen = executor.poll(handles)
        handles = {key: handle for key, handle in handles.items() if seen[key].is_running}
