"""Requests to stop a command: Ctrl-C, SIGTERM, or a terminal that is gone."""

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
"""Time for notifications of the end, also where attempts have used up the grace."""


class Interruption:
    """Whether a signal asks the command to stop, and the exit code for that; as a context manager it handles signals.

    Outside the main thread Python delivers no signals: there it never asks.
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

    def left_s(self, began: float, budget_s: float, grace_s: float) -> float:
        """Return the time that is left for those who are told of an end: a fixed one, or what is left of the grace.

        Args:
            began: when the first was told, by time.monotonic().
            budget_s: for all of them, unless a stop is requested.
            grace_s: after a signal, for all that it ends; `LEAST_S` of it are theirs.
        """
        now = time.monotonic()
        of_grace_s = self._at + grace_s - now if self.signal else math.inf
        return min(began + budget_s - now, max(of_grace_s, began + LEAST_S - now))

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._at = self._at or time.monotonic()
        self.signal = self.signal or number
