"""Short programs of ours, asked for one JSON object each: side by side, and never for longer than they may take."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from splatbatch.files import Record, object_in
from splatbatch.machine.limited_program import CallBounds, LimitedProgram


def ask(modules: Sequence[Sequence[str]], timeout_s: float, environment: Mapping[str, str]) -> list[Record | str]:
    """Run `python -m` modules with their arguments at once; return the last JSON object that each has printed.

    Of one that has printed none, why. Whatever is not done in time is ended with everything below it.
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
