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
"""Shortest time in seconds for notifications of the end, even if attempts have used up `limits.grace_s`."""


class Interruption:
    """A request to stop the command by SIGINT, SIGTERM or SIGHUP; as a context manager it handles these signals.

    A signal is only noted: the command asks `reason`. On exit of the context a StopRequested becomes an Interrupted
    with the exit code. A signal that is ignored already stays so, as SIGHUP under nohup. Outside the main thread Python
    delivers no signals, so there no request is noted.
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
        """Return the name of the signal that asks to stop, as "SIGTERM"; empty: go on."""
        return signal.Signals(self.signal).name if self.signal else ""

    @property
    def exit_code(self) -> int:
        """Exit code after a signal: 130 after Ctrl-C, 143 after SIGTERM (128 + the signal); 128 before any signal."""
        return 128 + self.signal

    def left_s(self, began: float, budget_s: float, grace_s: float) -> float:
        """Return the seconds left for notifications of the end; negative: the time is over.

        They have a budget together, and after a signal at most the rest of the grace.

        Args:
            began: when the first notification began, by time.monotonic().
            budget_s: seconds for all notifications together.
            grace_s: seconds from a signal to the end of the process; notifications get at least `LEAST_S`.
        """
        now = time.monotonic()
        of_grace_s = self._at + grace_s - now if self.signal else math.inf
        return min(began + budget_s - now, max(of_grace_s, began + LEAST_S - now))

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._at = self._at or time.monotonic()
        self.signal = self.signal or number
