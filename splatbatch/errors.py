"""Errors that stop a command, with their exit codes. A failed training is no exception but data, an `Outcome`.

SplatbatchError             message, hint, exit_code
├── ConfigError        2    the YAML, or an option of the command line
├── SceneError         3    patches, reconstructions, photographs
│   └── NotMadeError   3    what a task is made from has not been made
├── TrainerError       4    the trainer, or another program, is not usable here (gsplat, CUDA, an extra: view, notify)
├── ExecutorError      5    the executor cannot run here (no such GPU, no Slurm)
├── OutputError        6    another run holds the output folder, or it cannot be written or read
│   ├── BusyError      6    another process is doing this now
│   └── LaterFormatError 6  a later version wrote a record of it
└── StoreError         6    a store of bundles refuses a request, or its files are invalid
    └── CutOffError    6    it does not answer just now
"""

from __future__ import annotations

import signal
from typing import ClassVar


class SplatbatchError(Exception):
    """An error that stops a command and that the user can mend.

    Its message says what is wrong, its hint how to mend this ("" if there is no hint); the command ends with
    `exit_code`.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint.strip()


HINT = ". Hint: "
"""Words between message and hint where both stand on one line, as in a log."""


def in_full(error: Exception) -> str:
    """Return the message of an error; the hint of a SplatbatchError, if it has one, follows behind `HINT`."""
    return f"{error}{HINT}{error.hint}" if isinstance(error, SplatbatchError) and error.hint else str(error)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of the error's type if the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class Interrupted(BaseException):
    """A signal such as Ctrl-C interrupted the command; `exit_code` is 128 plus the number of the signal.

    An empty `message` becomes one with the name of the signal. This class is a BaseException, so that no
    `except Exception` catches it.
    """

    def __init__(self, exit_code: int, message: str = "") -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code
        self.message = message or f"interrupted ({signal.Signals(exit_code - 128).name})"


class ConfigError(SplatbatchError):
    """The YAML or an option of the command line is wrong; exit code 2."""

    exit_code = 2


class SceneError(SplatbatchError):
    """Patches, reconstructions or photographs are missing, broken or do not fit each other; exit code 3."""

    exit_code = 3


class NotMadeError(SceneError):
    """The input of a task, which another task makes, does not exist yet.

    The task can run once that other task is done.
    """


class TrainerError(SplatbatchError):
    """The chosen trainer, or an optional program or package, cannot be used on this machine; exit code 4."""

    exit_code = 4


class ExecutorError(SplatbatchError):
    """The chosen executor (GPUs of this machine, or Slurm) cannot run on this machine; exit code 5."""

    exit_code = 5


class OutputError(SplatbatchError):
    """Another run holds the output folder, or the folder cannot be read or written; exit code 6."""

    exit_code = 6


class BusyError(OutputError):
    """Another process is doing the same work; the command can run once that process has ended."""


class LaterFormatError(OutputError):
    """A later version of splatbatch wrote a record in the output folder, whose keys may have another meaning."""


class StoreError(SplatbatchError):
    """A store refuses a request (wrong credentials or region, no such bucket, no room left); exit code 6."""

    exit_code = 6


class CutOffError(StoreError):
    """A store does not answer at the moment; the same request may succeed later."""
