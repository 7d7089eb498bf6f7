"""What interrupts the watching of an attempt: things to do now and then, and a wish from outside that it stop."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass


class StopRequest:
    """Whether we were asked to stop from outside, and by what."""

    def __init__(self) -> None:
        self.by = ""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        self.by = self.by or signal.Signals(number).name


@dataclass
class Every:
    """Something to do now and then."""

    interval_s: float
    do: Callable[[], None]
    due: float = 0.0

    def tick(self, now: float) -> None:
        """Do it if it is due."""
        if now >= self.due:
            self.due = now + self.interval_s
            # a full disk or an unreachable share must not end a good training
            with suppress(OSError):
                self.do()
