"""Short programs of ours, asked for one JSON object each: side by side, and never for longer than they may take."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from splatbatch.files import Record, object_in
from splatbatch.machine.limited_program import CallBounds, LimitedProgram


@dataclass(frozen=True)
class Answer:
    """What a program said, or why it said nothing."""

    record: Record | None
    error: str = ""


def ask(modules: Sequence[Sequence[str]], timeout_s: float, environment: Mapping[str, str]) -> list[Answer]:
    """Run `python -m` modules with their arguments at once; return the last JSON object that each has printed.

    Whatever is not done in time is ended with everything below it.
    """
    bounds = CallBounds(timeout_s, sys.maxsize)
    started = [LimitedProgram([sys.executable, "-m", *module], bounds, environment=environment) for module in modules]
    try:
        return [_answer(program, timeout_s) for program in started]
    finally:
        for program in started:
            program.end()


def _answer(program: LimitedProgram, timeout_s: float) -> Answer:
    end = program.wait()
    if end.exceeded:
        return Answer(None, f"no answer within {timeout_s:g} s")
    found = filter(None, map(object_in, reversed(end.said.splitlines())))
    record = next(found, None)
    return Answer(record, "" if record else end.in_words)
