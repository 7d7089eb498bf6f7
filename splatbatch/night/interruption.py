"""Whether somebody wants a command to stop: Ctrl-C, SIGTERM, or a terminal that is gone."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Iterator
from types import FrameType

LEAST_S = 2.0
"""So long whoever is to be told of the end gets, also where attempts have used up the grace."""


class Interrupted(BaseException):
    """Somebody wants what goes on to end now; no `Exception`, so that nobody takes it for a mistake."""


class Interruption:
    """Whether somebody wants us to stop, and the exit code that says so."""

    def __init__(self) -> None:
        self.signal = 0
        self._at = 0.0
        self._raises = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup ignores SIGHUP on purpose: leave it so
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def reason(self) -> str:
        """Return why to stop; empty to go on."""
        return signal.Signals(self.signal).name if self.signal else ""

    @property
    def exit_code(self) -> int:
        """Return 130 after Ctrl-C, 143 after SIGTERM (128 + the signal)."""
        return 128 + self.signal

    @contextlib.contextmanager
    def ends_at_once(self) -> Iterator[None]:
        """Let a signal raise `Interrupted` in here, as Ctrl-C does elsewhere: nobody asks `reason` meanwhile."""
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def left_s(self, grace_s: float) -> float:
        """Return what is left of the time to end in; infinite while nobody wants us to."""
        return self._at + grace_s - time.monotonic() if self.signal else math.inf

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._at = self._at or time.monotonic()
        self.signal = self.signal or number
        if self._raises:
            self._raises = False  # what tidies up is left alone
            raise Interrupted


class Budget:
    """The time for those who are told that a batch has ended: a fixed one, or what is left of a signal's grace."""

    def __init__(self, seconds: float, interruption: Interruption, grace_s: float) -> None:
        self._began = time.monotonic()
        self._seconds, self._interruption, self._grace_s = seconds, interruption, grace_s

    def left_s(self) -> float:
        """Return how much of it is left."""
        passed_s = time.monotonic() - self._began
        return min(self._seconds - passed_s, max(self._interruption.left_s(self._grace_s), LEAST_S - passed_s))
