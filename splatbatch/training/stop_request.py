"""End of a training process: its exit code, and SIGTERM, which is obeyed after the present step and its checkpoint."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn

from splatbatch.errors import SplatbatchError


def exit_code_of(run: Callable[[], None]) -> int:
    """Call `run` and return an exit code: 0, or that of a SplatbatchError, whose message is printed as one line.

    Other exceptions pass through, with a traceback.
    """
    try:
        run()
    except SplatbatchError as error:
        print(f"splatbatch: {error.message}", file=sys.stderr)  # noqa: T201 - it goes into the log
        return error.exit_code
    return 0


def leave(code: int) -> NoReturn:
    """End the process at once, without the interpreter's cleanup, which takes seconds with torch."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class StopRequest:
    """Context manager that notes SIGTERM in `is_there` instead of ending the process; for the main thread."""

    def __init__(self) -> None:
        self.is_there = False
        self._before: Any = signal.SIG_DFL

    def __enter__(self) -> StopRequest:
        self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def obey(self, step: int) -> None:
        """End the process by SIGTERM, after a line for the log; the caller has written the checkpoint of `step`."""
        print(f"splatbatch: told to stop after step {step}", file=sys.stderr, flush=True)  # noqa: T201 - for the log
        signal.signal(signal.SIGTERM, self._before)
        signal.raise_signal(signal.SIGTERM)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_there = True
