"""What the runner keeps of a patch and of a running attempt, and the time it goes by."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from splatbatch.failures import retry
from splatbatch.files import read_json
from splatbatch.machine.protocol import Executor, Handle, Key, Seen, Slot
from splatbatch.machine.verdict import verdict
from splatbatch.outcome import Cancelled, Exit, Lost
from splatbatch.scene.footprint import Need
from splatbatch.scene.patches import Patch
from splatbatch.store.attempt_folder import Attempt


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
class Work:
    """A patch on its way: what to change, when it may start, why it failed so far."""

    patch: Patch
    changes: dict[str, Any] = field(default_factory=dict)
    """Of settings, by --set and by rungs."""
    num_steps: int = 0
    need: Need | None = None
    """What it is expected to take, as far as its model can be read."""
    asked: dict[str, Any] = field(default_factory=dict)
    """Of `changes`, those by --set."""
    is_retry: bool = False
    """Asked for by `retry`: what is accepted stays if it is better."""
    not_before: float = 0.0
    failures: list[retry.Failure] = field(default_factory=list)
    rungs: dict[str, int] = field(default_factory=dict)
    """How many rungs of each ladder were taken."""
    num_trained_before: int = 0
    """Patches that had been trained when this one failed last: those trained since speak for the GPU."""
    may_stand_by: bool = True
    """False once a standby of it has died: the next attempt starts in its turn, and tells why."""
    moved: bool = False
    """It was on a GPU that faulted, and goes elsewhere; a second fault is held against it."""
    alone: bool = False
    """It ran out of memory beside another attempt: the next one has its GPU to itself."""

    @property
    def length(self) -> float:
        """Return how long it is, on a scale of its own: images x pixels x steps."""
        return self.num_steps * self.need.photos_mib if self.need else 0.0


@dataclass(eq=False)
class Running:
    """An attempt that was submitted."""

    work: Work
    attempt: Attempt
    key: Key
    handle: Handle
    slot: Slot
    """Where it runs, or is meant to run while it stands by."""
    num_company: int = 0
    """Most attempts that were on its GPU beside it."""


def how_it_ended(running: Running, seen: Seen) -> Exit | None:
    """Return how an attempt ended, or None while it may still run."""
    folder = running.attempt.folder
    end = verdict(read_json(folder.exit), seen)
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
