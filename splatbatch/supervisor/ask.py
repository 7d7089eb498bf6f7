"""Runs short programs of splatbatch side by side, within a time limit, and reads one JSON object from each."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from splatbatch.files import Record, object_in
from splatbatch.machine.limited_program import CallBounds, LimitedProgram


def ask(modules: Sequence[Sequence[str]], timeout_s: float, environment: Mapping[str, str]) -> list[Record | str]:
    """Run `python -m` modules with their arguments at once; return the last JSON object that each has printed.

    For a module that printed none, or did not end in time, the reason in words stands in its place.

    Args:
        modules: name and arguments of each module; the result has the same order.
        timeout_s: seconds after which a module is killed with its descendants.
        environment: variables added to those of this process.

    Raises:
        OSError: a process cannot be started.
    """
    bounds = CallBounds(timeout_s, sys.maxsize)
    started = [LimitedProgram([sys.executable, "-m", *module], bounds, environment=environment) for module in modules]
    try:
        return [_said(program, timeout_s) for program in started]
    finally:
        for program in started:
            program.end()


def _said(program: LimitedProgram, timeout_s: float) -> Record | str:
    end = program.wait()
    if end.exceeded:
        return f"no answer within {timeout_s:g} s"
    return next(filter(None, map(object_in, reversed(end.said.splitlines()))), end.in_words)
