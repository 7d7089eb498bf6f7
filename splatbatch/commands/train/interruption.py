"""Whether somebody wants a command to stop: Ctrl-C, SIGTERM, or a terminal that is gone."""

from __future__ import annotations

import signal
from types import FrameType


class Interruption:
    """Whether somebody wants us to stop, and the exit code that says so."""

    def __init__(self) -> None:
        self.signal = 0
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

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal = self.signal or number
