"""Those who are told of a night, inside the process of a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from splatbatch.monitor import notify
from splatbatch.monitor.sinks import mlflow_sink, sink


class Listener:
    """Stands for a command that is told something: it hears all, and answers as it is asked to."""

    def __init__(self, answer: Callable[[Sequence[str], bytes], str | None]) -> None:
        self.heard: list[bytes] = []
        self.num_ended = 0
        self._answer = answer

    def __call__(self, argv: Sequence[str], message: bytes, _timeout_s: float, *, is_heard: bool = False) -> Listener:
        self.heard.append(message)
        self._verdict = self._answer(argv, message)
        return self

    def verdict(self) -> str | None:
        return self._verdict

    def end(self) -> None:
        self.num_ended += 1


def listen(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[Sequence[str], bytes], str | None] = lambda *_: ""
) -> Listener:
    """Let a listener stand for every hook; the answer is as `Hook.verdict` has it."""
    listener = Listener(answer)
    monkeypatch.setattr(notify, "Hook", listener)
    monkeypatch.setattr(mlflow_sink, "Hook", listener)
    monkeypatch.setattr(sink, "LOOK_S", 0.0)
    return listener
