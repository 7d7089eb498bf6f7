"""The time of commands inside the process of a test, and commands beside one another that take turns.

Their time goes on by itself where they would wait. Once a test has started a process or a thread, which knows the real
time alone, they wait by that.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from quick import WATCH

from splatbatch import isolated

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LONGEST_S = 20_000.0
"""Who waits for so long by the time of a test waits for what never happens."""
LEAST_S = 0.001
REAL_NOW, REAL_SLEEP = time.monotonic, time.sleep


class Program:
    """A command that goes on when it has the turn, and gives it back wherever it waits."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.wakes_at, self.result = CLOCK.now(), None
        self._call = call
        self._greenlet = _greenlets().greenlet(self._run)
        self.streams, self._environment = (sys.stdout, sys.stderr), dict(os.environ)
        self.handlers: list[Any] = []

    def _run(self) -> None:
        self.result = self._call()

    @property
    def has_ended(self) -> bool:
        return self._greenlet.dead

    @property
    def has_the_turn(self) -> bool:
        return _greenlets().getcurrent() is self._greenlet

    def rest(self, seconds: float) -> None:
        self.wakes_at = CLOCK.now() + max(seconds, LEAST_S)
        self._greenlet.parent.switch()

    def go_on(self, *error: type[BaseException]) -> None:
        """Let it go on until it waits; with its own streams, environment and signal handlers."""
        streams, environment = (sys.stdout, sys.stderr), dict(os.environ)
        sys.stdout, sys.stderr = self.streams
        _set_environment(self._environment)
        for number, handler in zip(SIGNALS, self.handlers, strict=False):
            signal.signal(number, handler)
        try:
            self._greenlet.throw(*error) if error else self._greenlet.switch()
        finally:  # its handlers stay: a signal is for it
            self.streams, self._environment = (sys.stdout, sys.stderr), dict(os.environ)
            self.handlers = [signal.getsignal(number) for number in SIGNALS]
            sys.stdout, sys.stderr = streams
            _set_environment(environment)

    def end(self) -> None:
        """End it wherever it waits."""
        while not self.has_ended:
            self.go_on(_greenlets().GreenletExit)


def _greenlets() -> Any:
    """Return their module, which a machine with a GPU may lack: its tests have none."""
    import greenlet

    return greenlet


def _set_environment(variables: dict[str, str]) -> None:
    if os.environ != variables:
        os.environ.clear()
        os.environ.update(variables)


class Clock:
    """What commands take for the time of the machine."""

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self._ahead_s, self._until, self._num_threads = 0.0, 0.0, 0
        self._stands: tuple[float, type[BaseException]] | None = None

    def now(self) -> float:
        return REAL_NOW() + self._ahead_s

    def sleep(self, seconds: float) -> None:
        """Let time pass, and those go on who take turns."""
        if threading.current_thread() is not threading.main_thread():
            return REAL_SLEEP(seconds)
        if self._stands:
            return self._stand(seconds)
        for program in self.programs:
            if program.has_the_turn:
                return program.rest(seconds)
        return self.pass_until(self.now() + seconds)

    def pass_until(self, end: float) -> None:
        while self.programs and (first := min(self.programs, key=lambda one: one.wakes_at)).wakes_at <= end:
            self._pass(first.wakes_at)
            self.let_go_on(first)
        self._pass(end)

    def let_go_on(self, program: Program) -> None:
        try:
            program.go_on()
        finally:
            if program.has_ended:
                self.programs.remove(program)

    def _pass(self, end: float) -> None:
        left_s = end - self.now()
        if WATCH.has_started or threading.active_count() > self._num_threads:
            REAL_SLEEP(max(left_s, 0))
        elif left_s > 0:
            self._ahead_s += left_s
            if self._ahead_s > self._until:
                raise TimeoutError("nothing happens any more")

    @contextlib.contextmanager
    def standing(self, longest_s: float = math.inf, error: type[BaseException] = TimeoutError) -> Iterator[None]:
        """Let nothing wait: what takes time has taken it; a longer wait is an error."""
        self._stands = (longest_s, error)
        try:
            yield
        finally:
            self._stands = None

    def _stand(self, seconds: float) -> None:
        longest_s, error = self._stands
        if seconds >= longest_s:
            raise error

    @contextlib.contextmanager
    def of_commands(self) -> Iterator[None]:
        """Let commands have this time."""
        from splatbatch.scheduler import running_attempt

        if is_outermost := time.monotonic is REAL_NOW:
            self._until, self._num_threads = self._ahead_s + LONGEST_S, threading.active_count()
        with contextlib.ExitStack() as ours:
            if is_outermost:
                ours.enter_context(mock.patch.object(time, "monotonic", self.now))
                ours.enter_context(mock.patch.object(running_attempt, "wait_for_any", self.rest))
                if time.sleep is REAL_SLEEP:  # a test may have its own
                    ours.enter_context(mock.patch.object(time, "sleep", self.sleep))
            yield

    def rest(self, seconds: float, readings: Sequence[object]) -> None:
        if any(getattr(reading, "descriptor", None) is not None for reading in readings):
            isolated.wait_for_any(seconds, readings)
            seconds = 0
        self.sleep(seconds)


CLOCK = Clock()
