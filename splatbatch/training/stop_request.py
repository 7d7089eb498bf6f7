"""How a process of ours ends: with the exit code its parent reads, or by SIGTERM once the step that runs is kept."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn

from splatbatch.errors import SplatbatchError


def exit_code_of(run: Callable[[], None]) -> int:
    """Run; known causes of failure end in one line that the parent reads, others in a traceback."""
    try:
        run()
    except SplatbatchError as error:
        print(f"splatbatch: {error.message}", file=sys.stderr)  # noqa: T201 - it goes into the log
        return error.exit_code
    return 0


def leave(code: int) -> NoReturn:
    """End at once: tidying up torch takes an interpreter seconds, and the kernel does it in no time."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class StopRequest:
    """Notes SIGTERM instead of ending at it, inside a `with` block of the main thread."""

    def __init__(self) -> None:
        self.is_there = False
        self._before: Any = signal.SIG_DFL

    def __enter__(self) -> StopRequest:
        self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def obey(self, step: int) -> None:
        """End as SIGTERM would have ended us, now that what was done up to a step is written down."""
        print(f"splatbatch: told to stop after step {step}", file=sys.stderr, flush=True)  # noqa: T201 - for the log
        signal.signal(signal.SIGTERM, self._before)
        signal.raise_signal(signal.SIGTERM)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_there = True
