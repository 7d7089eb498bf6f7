"""Those who are told of a night, inside the process of a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from splatbatch.monitor import mlflow_runs, notify, sinks

Answer = Callable[[Sequence[str]], str | None]
"""What `Hook.verdict` returns of a command; None: it hangs."""


class Listener:
    """Starts what stands for hooks, and keeps what they were told."""

    def __init__(self, answer: Answer) -> None:
        self.heard: list[bytes] = []
        self.running: list[Told] = []
        self._answer = answer

    def __call__(self, argv: Sequence[str], message: bytes, _timeout_s: float, *, is_heard: bool = False) -> Told:
        self.heard.append(message)
        self.running.append(hook := Told(self.running, self._answer(argv)))
        return hook


class Told:
    """Stands for a command that was told something."""

    def __init__(self, running: list[Told], answer: str | None) -> None:
        self._running, self._answer = running, answer

    def verdict(self) -> str | None:
        if self._answer is not None:
            self.end()
        return self._answer

    def end(self) -> None:
        self._running.remove(self)


class ToldHere:
    """Stands for a command that keeps what it is told in the file that its last word names."""

    def __init__(self, argv: Sequence[str], message: bytes, _timeout_s: float) -> None:
        with Path(argv[-1]).open("ab") as file:
            file.write(message + b"\n")

    def verdict(self) -> str:
        return ""


def listen(monkeypatch: pytest.MonkeyPatch, answer: Answer = lambda _: "") -> Listener:
    """Let a listener stand for every hook."""
    listener = Listener(answer)
    monkeypatch.setattr(notify, "Hook", listener)
    monkeypatch.setattr(mlflow_runs, "Hook", listener)
    monkeypatch.setattr(sinks, "LOOK_S", 0.0)
    return listener
