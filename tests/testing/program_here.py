"""A supervisor inside the process of a test: its program is a thread, and both live by a clock of their own.

The supervisor is the product's. What it would start as a process of Python runs in turns: until it sleeps or ends, then
the supervisor looks once. A program of another kind is a process all the same, and is watched by the real clock.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

from splatbatch import processes
from splatbatch.files import Record, append_line
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.supervisor import external, host_monitor, watch

HERE = 1 << 30
"""A number that no process has."""
OURS = ("splatbatch.training", "splatbatch.training.evaluation")
"""Modules that run here: to load torch for each anew takes seconds."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
TURN_S = 60.0


@dataclass
class Clock:
    """Stands still but for the ticks of a supervisor; beside a real process it goes on by itself."""

    alarms: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    """What the test does, each at its time."""
    ahead_s: float = 0.0
    began: float = field(default_factory=time.monotonic)
    is_real: bool = False

    def monotonic(self) -> float:
        return (time.monotonic() if self.is_real else self.began) + self.ahead_s

    def time(self) -> float:
        return time.time() + self.ahead_s

    def sleep(self, seconds: float) -> None:
        self.ahead_s += seconds

    def tick(self) -> None:
        self.ahead_s += watch.TICK_S
        due = [do for at, do in self.alarms if at <= self.ahead_s]
        self.alarms = [one for one in self.alarms if one[0] > self.ahead_s]
        for do in due:
            do()


class Over(BaseException):
    """A program ends: with a code, or negative by a signal."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Outlet(io.FileIO):
    """Where a program writes; what it has not flushed when it is killed is lost."""

    is_dead = False

    def write(self, data: Any) -> int:
        return len(data) if self.is_dead else super().write(data) or 0


@dataclass(frozen=True)
class Command:
    """What runs here, and where."""

    run: Callable[[], object]
    env: Mapping[str, str]
    cwd: Path


class ProgramHere:
    """A program of Python in turns; polled as a `subprocess.Popen` is."""

    pid = HERE
    cpu_s = 0.0

    def __init__(self, command: Command, output: int, clock: Clock, written: Path) -> None:
        """Make it ready; `written` is the folder in which its files get their times by the clock."""
        self._run, self.clock, self._output = command.run, clock, os.dup(output)
        self._written, self._env = written, dict(command.env)
        self._place = os.open(command.cwd, os.O_RDONLY | os.O_DIRECTORY)
        os.set_blocking(self._output, False)  # a full pipe is an error: its reader has no turn
        self._outlet = Outlet(self._output, "w", closefd=False)
        buffered = io.BufferedWriter(self._outlet)
        self._out = io.TextIOWrapper(buffered, encoding="utf-8")
        self._err = io.TextIOWrapper(buffered, encoding="utf-8", line_buffering=True)
        self.code: int | None = None
        self._wakes_at, self._has_begun = float("-inf"), False
        self._pending: list[int] = []
        self._handlers: dict[int, Any] = {}
        self._files: dict[Path, int] = {}
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def poll(self) -> int | None:
        if self.code is None:
            if self._has_begun:
                self.clock.tick()
            self._has_begun = True
            if self._pending or self.clock.monotonic() >= self._wakes_at:
                self._turn()
        return self.code

    def hear(self, number: int) -> None:
        self._pending.append(number)

    def _turn(self) -> None:
        with self._in_its_place():
            self._go.release()
            assert self._back.acquire(timeout=TURN_S), "a program that runs here neither sleeps nor ends"
        if self.code is None:
            self._stamp()
        else:
            self._thread.join()
            if torch := sys.modules.get("torch"):  # it may have been loaded with the threads of an attempt
                torch.set_num_threads(1)
            for descriptor in (self._output, self._place):
                os.close(descriptor)

    def _live(self) -> None:
        self._go.acquire()
        code = 1
        try:
            self._run()
            code = 0
        except Over as over:
            code, self._outlet.is_dead = over.code, True
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=self._err)
        except BaseException:  # noqa: BLE001 - as a process of its own would end
            traceback.print_exc(file=self._err)
        finally:
            with contextlib.suppress(ValueError, OSError):
                self._out.flush()
                self._err.flush()
            self.code = code
            self._back.release()

    def _sleep(self, seconds: float) -> None:
        self._wakes_at = self.clock.monotonic() + seconds
        while self.clock.monotonic() < self._wakes_at:
            self._back.release()
            self._go.acquire()
            while self._pending:
                self._obey(self._pending.pop(0))

    def _obey(self, number: int) -> None:
        handler = self._handlers.get(number, signal.SIG_DFL)
        if number == signal.SIGKILL or handler == signal.SIG_DFL:
            raise Over(-number)
        if handler != signal.SIG_IGN:
            handler(number, None)

    @contextlib.contextmanager
    def _in_its_place(self) -> Iterator[None]:
        """Let this process be as the program knows it: for one turn, in which nothing else runs."""
        home, environment = os.open(".", os.O_RDONLY), dict(os.environ)
        kill, write, leave = os.kill, os.write, os._exit
        streams, argv, path = (sys.stdin, sys.stdout, sys.stderr), sys.argv, sys.path[:]
        sleep, register = time.sleep, signal.signal
        os.environ.clear()
        os.environ.update(self._env)
        os.fchdir(self._place)
        with Path(os.devnull).open() as nothing:
            sys.stdin, sys.stdout, sys.stderr = nothing, self._out, self._err
            os.kill = lambda pid, number: self._obey(number) if pid == os.getpid() else kill(pid, number)
            os.write = lambda where, data: write(self._output if self._is_here() and where in (1, 2) else where, data)
            os._exit = self._leave
            time.sleep, signal.signal = self._sleep, self._handlers.__setitem__
            try:
                yield
            finally:
                time.sleep, signal.signal = sleep, register
                os.kill, os.write, os._exit = kill, write, leave
                sys.stdin, sys.stdout, sys.stderr = streams
        os.close(self._place)
        self._place = os.open(".", os.O_RDONLY)
        sys.argv, sys.path[:] = argv, path
        os.fchdir(home)
        os.close(home)
        os.environ.clear()
        os.environ.update(environment)

    def _is_here(self) -> bool:
        return threading.current_thread() is self._thread

    def _leave(self, code: int) -> None:
        raise Over(code)

    def _stamp(self) -> None:
        """Give what was written in this turn its time by this clock."""
        files = {}
        for path in self._written.rglob("*"):
            with contextlib.suppress(OSError):
                files[path] = path.lstat().st_mtime_ns
        for path, at in files.items():
            if self.clock.ahead_s and self._files.get(path) != at:
                files[path] = at + int(self.clock.ahead_s * 1e9)
                os.utime(path, ns=(files[path], files[path]), follow_symlinks=False)
        self._files = files


def program_of(argv: Sequence[str], env: Mapping[str, str]) -> Callable[[], object] | None:
    """Return what runs a command of Python here; None if it is of another kind."""
    words = list(argv)
    found = shutil.which(words[0], path=env.get("PATH")) if words and "\0" not in words[0] else None
    if found is None:
        return None
    if Path(found).name == "python" or found == sys.executable:
        words = words[1:]
    elif first_line(found) == f"#!{sys.executable}".encode():
        words[0] = found
    else:
        return None
    if words[0] == "-c":
        return lambda: run(compile(words[1], "<string>", "exec"), ["-c", *words[2:]], "")
    if words[0] == "-m" and words[1] in OURS:
        return lambda: run_module(words[1], words[1:])
    if words[0].startswith("-"):
        return None
    return lambda: run(compiled(str(Path(words[0]).absolute())), words, str(Path(words[0]).absolute().parent))


def run(code: CodeType, argv: list[str], folder: str) -> None:
    sys.argv = argv
    sys.path.insert(0, folder)
    exec(code, {"__name__": "__main__", "__file__": argv[0]})


def run_module(name: str, argv: list[str]) -> None:
    sys.argv = argv
    runpy.run_module(name, run_name="__main__")


def first_line(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.readline(4096).strip()


@lru_cache(maxsize=32)
def compiled(path: str) -> CodeType:
    return compile(Path(path).read_bytes(), path, "exec")


class Here:
    """What the supervisor's module has in place of processes, selectors and time."""

    def __init__(self, folder: AttemptFolder, clock: Clock) -> None:
        self.folder, self.clock = folder, clock
        self.program: ProgramHere | None = None

    def start(self, argv: Sequence[str], **how: Any) -> Any:
        if (begin := program_of(argv, how["env"])) is None:
            self.program = None
            if not self.clock.is_real:
                self.clock.is_real, self.clock.ahead_s = True, self.clock.monotonic() - time.monotonic()
            return subprocess.Popen(argv, **how)
        command = Command(begin, how["env"], Path(how["cwd"]))
        self.program = ProgramHere(command, how["stdout"], self.clock, self.folder.output)
        return self.program

    def send_group(self, number: int, leader: int) -> None:
        if self.program and leader == HERE:
            self.program.hear(number)
        else:
            processes.send_group(number, leader)

    def append_line(self, path: Path, record: Record, *, durable: bool) -> None:
        append_line(path, record, durable=durable)
        os.utime(path, (self.clock.time(),) * 2)

    def cpu_s(self, pid: int) -> float:
        return self.program.cpu_s if self.program else processes.cpu_s(pid)

    def selector(self) -> selectors.BaseSelector:
        here = self

        class Selector(selectors.DefaultSelector):
            def select(self, timeout: float | None = None) -> Any:
                return super().select(0 if here.program else timeout)

        return Selector()


def call_here(argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> tuple[int, str]:
    """Run a command of Python to its end; return its exit code, and what it said."""
    output, inlet = os.pipe()
    begin = program_of(argv, env)
    assert begin, argv
    program = ProgramHere(Command(begin, env, cwd), inlet, Clock(), cwd)
    os.close(inlet)
    while (code := program.poll()) is None:
        pass
    with open(output, encoding="utf-8") as said:  # noqa: PTH123 - a descriptor
        return code, said.read()


def supervise_here(folder: AttemptFolder, clock: Clock | None = None) -> int:
    """Run the job of an attempt to its end; return what the supervisor's program would exit with."""
    here = Here(folder, clock or Clock())
    of_processes = {name: getattr(processes, name) for name in ("start_ticks", "boot_id", "pid_space", "MARKER")}
    nothing = SimpleNamespace(make=lambda _: None, enter=lambda _: None, end=lambda _: None)
    stand_ins = {
        "time": here.clock,
        "subprocess": SimpleNamespace(Popen=here.start, DEVNULL=subprocess.DEVNULL),
        "selectors": SimpleNamespace(DefaultSelector=here.selector, EVENT_READ=selectors.EVENT_READ),
        "control_group": nothing,
        "processes": SimpleNamespace(
            **of_processes, send_group=here.send_group, cpu_s=here.cpu_s, die_with_parent=processes.die_with_parent,
            adopt_orphans=lambda: None, end_orphans=lambda _: None, raise_file_limit=lambda: None,
            names_below=lambda _: [],
        ),
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        for number in SIGNALS:
            stack.callback(signal.signal, number, signal.getsignal(number))
        of_others = [(external, "time", here.clock), (external, "append_line", here.append_line)]
        of_others += [(host_monitor, "time", here.clock)]
        for module, name, stand_in in [*((watch, *one) for one in stand_ins.items()), *of_others]:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, stand_in)
        return watch.supervise(folder)
