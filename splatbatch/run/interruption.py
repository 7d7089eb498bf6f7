"""Whether somebody wants a command to stop: Ctrl-C, SIGTERM, or a terminal that is gone."""

from __future__ import annotations

import math
import signal
import threading
import time
from types import FrameType
from typing import Any

from splatbatch.errors import Interrupted
from splatbatch.isolated import StopRequested

LEAST_S = 2.0
"""So long whoever is to be told of the end gets, also where attempts have used up the grace."""


class Interruption:
    """Whether somebody wants us to stop, and the exit code that says so; a context manager, which hears signals.

    In a thread that is not the main one, which hears none, nobody can say so.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._at = 0.0
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            heard = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
            # nohup ignores SIGHUP on purpose: leave it so
            self._handlers = {number: known for number, known in heard.items() if known is not signal.SIG_IGN}
        for number in self._handlers:
            signal.signal(number, self._note)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for number, known in self._handlers.items():
            signal.signal(number, known or signal.SIG_DFL)
        if self.signal and isinstance(error, StopRequested):
            raise Interrupted(self.exit_code) from error

    def reason(self) -> str:
        """Return why to stop; empty to go on."""
        return signal.Signals(self.signal).name if self.signal else ""

    @property
    def exit_code(self) -> int:
        """Return 130 after Ctrl-C, 143 after SIGTERM (128 + the signal)."""
        return 128 + self.signal

    def left_s(self, grace_s: float) -> float:
        """Return what is left of the time to end in; infinite while nobody wants us to."""
        return self._at + grace_s - time.monotonic() if self.signal else math.inf

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._at = self._at or time.monotonic()
        self.signal = self.signal or number


class ShutdownBudget:
    """The time for those who are told that a batch has ended: a fixed one, or what is left of a signal's grace."""

    def __init__(self, seconds: float, interruption: Interruption, grace_s: float) -> None:
        self._began = time.monotonic()
        self._seconds, self._interruption, self._grace_s = seconds, interruption, grace_s

    def left_s(self) -> float:
        """Return how much of it is left."""
        passed_s = time.monotonic() - self._began
        return min(self._seconds - passed_s, max(self._interruption.left_s(self._grace_s), LEAST_S - passed_s))
