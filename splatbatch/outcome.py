"""The exit of an attempt (how its process ended) and its outcome (what it achieved), as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from splatbatch.fields import number, text, whole_number
from splatbatch.files import Record


@dataclass(frozen=True)
class Exited:
    """The process ended by itself, with this exit code."""

    code: int


@dataclass(frozen=True)
class Killed:
    """A signal that the supervisor did not send ended the process (SIGSEGV, SIGKILL of the kernel's OOM killer)."""

    signal: int


@dataclass(frozen=True)
class TimedOut:
    """The supervisor ended the process at a limit, after `limit_s` seconds.

    The process ran too long (`wall`), made no progress (`stall`), or had finished and did not exit (`finished`).
    """

    limit: Literal["wall", "stall", "finished"]
    limit_s: float


@dataclass(frozen=True)
class Cancelled:
    """The supervisor ended the process because a user or the batch requested it; `by` says which."""

    by: str


@dataclass(frozen=True)
class NotStarted:
    """The command could not be started at all; `reason` is the error."""

    reason: str


@dataclass(frozen=True)
class Lost:
    """The exit is unknown, since the machine, the supervisor or the engine died before the exit was recorded."""

    reason: str


Exit = Exited | Killed | TimedOut | Cancelled | NotStarted | Lost
QUOTE_CHARS = 300
EXITS: dict[str, type[Exit]] = {
    "exited": Exited,
    "killed": Killed,
    "timed_out": TimedOut,
    "cancelled": Cancelled,
    "not_started": NotStarted,
    "lost": Lost,
}


def exit_to_record(end: Exit) -> Record:
    """Return the JSON form of an exit: its kind, as in `EXITS`, and its fields."""
    kind = next(name for name, cls in EXITS.items() if isinstance(end, cls))
    return {"kind": kind, **vars(end)}


def exit_from_record(record: Record) -> Exit:
    """Return the exit of a JSON object that `exit_to_record` made; `Lost` for any other object. Raises nothing."""
    code, number_of_signal = whole_number(record.get("code")), whole_number(record.get("signal"))
    limit_s = number(record.get("limit_s"))
    match record.get("kind"), record.get("limit"):
        case "exited", _ if code is not None:
            return Exited(code)
        case "killed", _ if number_of_signal is not None:
            return Killed(number_of_signal)
        case "timed_out", ("wall" | "stall" | "finished") as limit if limit_s is not None:
            return TimedOut(limit, limit_s)
        case "cancelled", _:
            return Cancelled(text(record.get("by")))
        case "not_started", _:
            return NotStarted(text(record.get("reason")))
        case "lost", _:
            return Lost(text(record.get("reason")))
        case _:
            return Lost(f"the record of the exit cannot be read: {record!r:.{QUOTE_CHARS}}")


Action = Literal["ok", "retry", "degrade", "fail"]


UNWRITABLE = "output_unwritable"
INTERNAL_FAULT = "internal_fault"
HANGS = "read_hangs"
NOT_MADE = "not_made"
"""Cause of a task whose input, the product of another task, does not exist yet; the task runs once the input is
made."""
COLLECT = "collect"
"""Phase of a fault while the files of an ended attempt were collected. The files are collected again later, without a
new training."""


@dataclass(frozen=True)
class Diagnosis:
    """Why an attempt failed: its cause, the action to take, advice for the user, and the lines that show the cause.

    `phase` is the phase of the training, or of the work on its files, that failed; "": unknown.
    """

    cause: str
    action: Action = field(metadata={"reads": text})
    """The action to take: retry, degrade (retry with changed settings), fail, or ok where a log shows no failure.

    Records of other versions may have others.
    """
    advice: str
    evidence: tuple[str, ...] = ()
    phase: str = ""


@dataclass(frozen=True)
class Splat:
    """A splat file that was found whole, finite and from the last step: its path, figures and warnings.

    `metrics` are the figures of the training as a JSON object, empty if nothing was measured.
    """

    path: Path
    num_gaussians: int
    sh_degree: int
    step: int
    metrics: Record = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    """Oddities of a splat that is valid all the same; empty if there are none."""


@dataclass(frozen=True)
class Rejected:
    """The attempt left no valid splat; the reason is a phrase, as "missing" or "cut: 120 of 400 bytes"."""

    reason: str
    """The reason; empty: the way in which the process ended says it."""


@dataclass(frozen=True)
class Made:
    """The attempt of a task other than training made its file whole, such as the record of an inspection, at `path`."""

    path: Path


@dataclass(frozen=True)
class Trained:
    """The attempt left a whole splat; `warnings` say what was odd on the way, and are empty if nothing was."""

    splat: Splat
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failed:
    """The attempt left no valid splat or other file; the diagnosis says why."""

    diagnosis: Diagnosis


@dataclass(frozen=True)
class Stopped:
    """The attempt was ended before it could fail or succeed; it does not count as a failure of its patch."""

    reason: str


Outcome = Trained | Made | Failed | Stopped
