"""What a check has found: fine, or not, and then what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from splatbatch.errors import ExecutorError, TrainerError

OF_TRAINER, OF_MACHINE = TrainerError.exit_code, ExecutorError.exit_code


@dataclass(frozen=True)
class Finding:
    """One line of `doctor`."""

    check: str
    state: Literal["ok", "warning", "problem"]
    message: str
    remedy: str = ""
    exit_code: int = 0
    """Of a problem: 4 if the trainer cannot run here, 5 if it is the machine."""


def ok(check: str, message: str) -> Finding:
    """Return a finding that asks for nothing."""
    return Finding(check, "ok", message)


def warning(check: str, message: str, remedy: str) -> Finding:
    """Return a finding that does not keep anything from being trained."""
    return Finding(check, "warning", message, remedy)


def problem(check: str, message: str, remedy: str, exit_code: int) -> Finding:
    """Return a finding with which nothing can be trained."""
    return Finding(check, "problem", message, remedy, exit_code)


def worst_exit_code(findings: Iterable[Finding]) -> int:
    """Return 5 if the machine has a problem, else 4 if the trainer has one, else 0."""
    return max((finding.exit_code for finding in findings), default=0)
