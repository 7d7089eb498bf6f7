"""The command line inside this process: as quick as a function call, with the exit code that a shell would see."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import pty
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fake_trainer
import machine_here
import one_fork_server
import pytest
import typer.main
from in_process_courier import InProcessCourier
from turns import CLOCK, SIGNALS, Program

from splatbatch import cli, isolated, trainers
from splatbatch.machine import supervisors
from splatbatch.transfer import courier

if TYPE_CHECKING:
    from fake_batch import FakeBatch

typer.main.get_command = functools.cache(typer.main.get_command)
"""Forty commands with all their options are built once, not for each that is run."""
READERS: type[isolated.CallQueue[Any]] = isolated.InProcessCalls
"""A command inside this process reads here, too; tests of what hangs set it to the real ones."""
LONGEST_S = 30
"""None takes 5 s on an idle machine; one that waits for a pipe never ends."""
AROUND = contextlib.ExitStack()
"""What those have around them that take turns."""


def parse(words: list[str]) -> None:
    """See that the command line takes these words; nothing is run."""
    command: Any = typer.main.get_command(cli.app)
    context = command.make_context("splatbatch", list(words), resilient_parsing=False)
    name, one, rest = command.resolve_command(context, [*context._protected_args, *context.args])
    one.make_context(name, rest, parent=context)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def in_time(*arguments: str, batch: FakeBatch | None = None) -> Ended:
    """Run a command that must not wait for a pipe; one that does fails its test, and is shown by where it waits."""

    def fail(*_: object) -> None:
        pytest.fail(f"splatbatch {' '.join(arguments)} waits")  # which no command takes for an error of the system

    usual, left_s = signal.signal(signal.SIGALRM, fail), signal.alarm(LONGEST_S)
    try:
        return invoke(*arguments, batch=batch)
    finally:
        signal.signal(signal.SIGALRM, usual)
        signal.alarm(left_s)


class Beside:
    """A command that takes turns with the test, by the clock of the test."""

    def __init__(self, batch: FakeBatch | None, *arguments: str) -> None:
        AROUND.enter_context(surroundings(batch))
        AROUND.enter_context(machine_here.machine_here())
        self._program = Program(lambda: invoke(*arguments, batch=batch))
        CLOCK.programs.append(self._program)

    @property
    def said(self) -> str:
        """What it has said on stderr, as long as it runs."""
        return getattr(self._program.streams[1], "getvalue", str)()

    def until(self, condition: Callable[[], object]) -> Beside:
        """Let it go on until something holds."""
        while not condition():
            assert not self._program.has_ended, f"it has ended: {self._program.result}"
            CLOCK.pass_until(self._program.wakes_at)
        return self

    def send(self, number: int) -> None:
        """Send it a signal."""
        self._program.handlers[SIGNALS.index(number)](number, None)

    def ended(self) -> subprocess.CompletedProcess[str]:
        """Let it go on to its end."""
        while not self._program.has_ended:
            CLOCK.pass_until(self._program.wakes_at)
        end = self._program.result
        return subprocess.CompletedProcess([], end.code, end.out, end.err)


def end_all() -> None:
    """End what takes turns still."""
    for program in list(CLOCK.programs):
        program.end()
    CLOCK.programs.clear()
    AROUND.close()


class Terminal(io.StringIO):
    """Takes text as a terminal does."""

    def isatty(self) -> bool:
        return True


def invoke(*arguments: str, batch: FakeBatch | None = None, terminal: bool = False) -> Ended:
    """Run a command; with a batch under its config, and with the fake trainer in place of ours."""
    out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
    quiet = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with quiet[0], quiet[1], surroundings(batch), machine_here.machine_here():
        try:
            cli.main(list(arguments))
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def surroundings(batch: FakeBatch | None) -> Iterator[None]:
    """Set what the command reads, and put back what it changes."""
    environment, handlers = dict(os.environ), [signal.getsignal(number) for number in SIGNALS]
    programs, readers, kind = dict(trainers.TRAINERS), isolated.DEFAULT_BACKEND, courier.Courier
    constants: list[tuple[Any, str, Any]] = []
    isolated.DEFAULT_BACKEND, courier.Courier = READERS, InProcessCourier
    supervisors._Server.start = one_fork_server.shared
    if batch:
        for name, value in (fake_trainer.CONSTANTS | batch.constants).items():
            module, constant = fake_trainer.constant_of(name)
            constants.append((module, constant, getattr(module, constant)))
            setattr(module, constant, value)
        os.environ.update(batch.environment())
        fake_trainer.install()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        trainers.TRAINERS.update(programs)
        isolated.DEFAULT_BACKEND, courier.Courier = readers, kind
        supervisors._Server.start = one_fork_server.START
        for module, constant, value in constants:
            setattr(module, constant, value)
        for number, handler in zip(SIGNALS, handlers, strict=True):
            signal.signal(number, handler)


def on_terminal(batch: FakeBatch, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run a command on a terminal; return its exit code and all that the terminal got."""
    master, slave = pty.openpty()
    plain = {key: value for key, value in batch.environment().items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
    environment = plain | {"TERM": "xterm-256color", "COLUMNS": "120"} | environment
    process = subprocess.Popen(batch.command(*arguments), env=environment, **streams)
    os.close(slave)
    said = b""
    with contextlib.suppress(OSError):  # EIO is the end of a terminal
        while data := os.read(master, 1 << 16):
            said += data
    os.close(master)
    return process.wait(30), said.decode()
