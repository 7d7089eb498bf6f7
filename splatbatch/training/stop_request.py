"""End of a training process: its exit code, and SIGTERM, by which it ends after the present step and a checkpoint."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn

from splatbatch.errors import SplatbatchError, in_full


def exit_code_of(run: Callable[[], None]) -> int:
    """Call `run` and return an exit code: 0, or that of a SplatbatchError, which is printed on stderr.

    Message and hint are one line, the last of the log, which a diagnosis quotes. Other exceptions are not caught.
    """
    try:
        run()
    except SplatbatchError as error:
        print(f"splatbatch: {in_full(error)}", file=sys.stderr)  # noqa: T201 - it goes into the log
        return error.exit_code
    return 0


def leave(code: int) -> NoReturn:
    """End the process with an exit code at once, without the interpreter's cleanup, which takes seconds with torch.

    stdout and stderr are flushed before.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class StopRequest:
    """Context manager in which SIGTERM sets `is_there` and does not end the process; afterwards SIGTERM acts as before.

    Only the main thread may enter the context; in another, ValueError is raised.
    """

    def __init__(self) -> None:
        self.is_there = False
        self._before: Any = signal.SIG_DFL

    def __enter__(self) -> StopRequest:
        self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def obey(self, step: int) -> None:
        """Write a line to stderr, then end the process by SIGTERM as if there were no context manager.

        The caller must have written the checkpoint of `step`, the number of steps done.
        """
        print(f"splatbatch: stopped on request after step {step}", file=sys.stderr, flush=True)  # noqa: T201 - for the log
        signal.signal(signal.SIGTERM, self._before)
        signal.raise_signal(signal.SIGTERM)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_there = True
