"""A machine whose attempts run inside the process of a test, and whose night costs no waiting.

`FakeBatch.run` uses it. An attempt that starts children, or does what takes real time, is a process all the same, and
its night waits by the real clock.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import external_program
import fake_attempt
import light_trainer
from program_here import supervise_here
from turns import CLOCK

from splatbatch import cli, processes
from splatbatch.files import write_json
from splatbatch.machine.local import LocalExecutor
from splatbatch.machine.protocol import GONE, Handle, Key
from splatbatch.outcome import Cancelled, Exit, Exited, Killed, TimedOut
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.attempt import Heartbeat, Start
from splatbatch.supervisor.host_monitor import HostMonitor
from splatbatch.supervisor.job import Job, read_job
from splatbatch.supervisor.log import BoundedLog

AT_ONCE = {"train", "exit", "die", "train-then-die", "spoil", "needs", "measure", "unhealthy"}
"""What takes no time, unless it is told to."""
IN_TIME = {"await", "hang", "linger"}
"""What takes time, by the clock of the test."""
PROGRAM = "program"
"""What an attempt of no trainer is."""
KILL = os.kill
HANGS_S = 60.0
"""A program that sleeps for so long hangs."""


class HangsError(BaseException):
    """A program sleeps for ever."""


class SignalOfItself(BaseException):
    """An attempt ends itself by a signal, of which the test is to know nothing."""


@dataclass
class AttemptHere:
    """An attempt that runs here, and what its script says."""

    folder: AttemptFolder
    job: Job
    verb: str
    words: str
    host: HostMonitor
    began: float | None = None
    """None: it stands by."""

    def begin(self) -> None:
        """Its turn has come."""
        self.began = CLOCK.now()
        self.host.begin(self.job.spec.gpu)
        self.host.look()
        if self.verb != PROGRAM:
            begun = {"phase": "train", "step": 1, "max_steps": steps_of(self.folder), "loss": 0.5}
            light_trainer.say(light_trainer.Folder(self.folder.path), **begun)
        if self.verb == "linger":
            self._do("train")
        self.look()

    def look(self) -> None:
        """End it if it is due."""
        if self.began is None or self.folder.exit.exists():
            return
        limits, age_s = self.job.spec.limits, CLOCK.now() - self.began
        if age_s > limits.wall_s:
            self.tell(TimedOut("wall", limits.wall_s))
        elif self.verb == PROGRAM:
            self._run()
        elif self._is_over(age_s):
            self.tell(self._do(self.verb))
        elif 0 < limits.stall_s < age_s:
            self.tell(TimedOut("stall", limits.stall_s))

    def _is_over(self, age_s: float) -> bool:
        if self.verb == "train":
            return age_s >= float(self.words.partition(" ")[0] or 0)
        if self.verb == "await":
            return Path(os.environ["SPLATBATCH_CONFIG"]).with_name(self.words).exists()
        return self.verb not in IN_TIME

    def _do(self, verb: str) -> Exit:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), _environment(self.job):
            end = _end_of(
                partial(_program, self.job.spec.argv, self.folder)
                if verb == PROGRAM
                else partial(_behave, self.folder, verb, self.words)
            )
        log = BoundedLog(self.folder.log)
        log.write(said.getvalue().encode())
        log.close()
        return end

    def _run(self) -> None:
        """Run a program to its end; one that hangs has none."""
        try:
            self.tell(self._do(PROGRAM))
        except HangsError:
            self.verb = "hang"

    def cancel(self) -> None:
        """End it as a supervisor does that is told to."""
        if not self.folder.exit.exists():
            told = self.folder.cancel
            self.tell(Cancelled((told.read_text() if told.exists() else "") or "SIGTERM"))

    def tell(self, end: Exit) -> None:
        """Write down how it ended."""
        self.folder.ballast.unlink(missing_ok=True)
        self.host.look()
        write_json(self.folder.exit, self.host.facts(end, stood_by=self.job.spec.standby).to_record())


class MachineHere(LocalExecutor):
    """Attempts of the fake trainer run here, others in processes."""

    def __init__(self, *of_machine: Any, **options: Any) -> None:
        super().__init__(*of_machine, **options)
        self._here: dict[Key, AttemptHere] = {}

    def submit(self, key: Key, folder: AttemptFolder) -> Handle:
        if key in self._here:
            return key
        job = read_job(folder)
        if job and job.watch and external_program.__file__ in job.spec.argv:
            self._here[key] = AttemptHere(folder, job, PROGRAM, "", HostMonitor(folder, job.spec.gpu))
            supervise_here(folder)
            return key
        if job is None or (line := line_of(job, folder)) is None:
            return super().submit(key, folder)
        if folder.start.exists():  # another supervisor has it
            return key
        write_json(folder.start, replace(Start.of_self(), host="here", started_at=time.time()).to_record())
        write_json(folder.heartbeat, Heartbeat(1, os.getpid(), ()).to_record())
        verb, words = line
        is_unready = verb == "unready"
        if is_unready:
            verb, _, words = words.partition(" ")
        self._here[key] = one = AttemptHere(folder, job, verb, words, HostMonitor(folder, job.spec.gpu))
        if not job.spec.standby:
            one.begin()
            return key
        light_trainer.say(light_trainer.Folder(folder.path), phase="standby", step=0)
        if is_unready:
            one.tell(Exited(1))
        return key

    def poll(self, handles: Mapping[Key, Handle]) -> Mapping[Key, str]:
        seen = dict(super().poll({key: handle for key, handle in handles.items() if key not in self._here}))
        for key in handles:
            if one := self._here.get(key):
                if one.began is None and (go := one.folder.read_go()):
                    one.job.begin(go)
                    one.begin()
                one.look()
                seen[key] = GONE if one.folder.exit.exists() else ""
        return seen

    def cancel(self, handles: Mapping[Key, Handle]) -> None:
        super().cancel({key: handle for key, handle in handles.items() if key not in self._here})
        for key in handles:
            if one := self._here.get(key):
                one.cancel()

    def kill(self, handles: Mapping[Key, Handle]) -> None:
        super().kill({key: handle for key, handle in handles.items() if key not in self._here})
        self.cancel({key: handle for key, handle in handles.items() if key in self._here})


def steps_of(folder: AttemptFolder) -> int:
    return json.loads(folder.settings.read_text())["recipe"]["training"]["max_steps"]


def _behave(folder: AttemptFolder, verb: str, words: str) -> int:
    def die(_: object, rest: str, __: int) -> int:
        raise SignalOfItself(getattr(signal, rest))

    behaviour = (fake_attempt.BEHAVIOURS | {"die": die})[verb]
    with mock.patch.object(fake_attempt, "die", die), CLOCK.standing():
        return behaviour(light_trainer.Folder(folder.path), "" if verb == "linger" else words, steps_of(folder))


def _program(argv: Sequence[str], folder: AttemptFolder) -> int:
    """Do what a program in Python does."""
    usual, argv_here = signal.getsignal(signal.SIGTERM), [argv[1], *argv[3:]]
    try:
        with mock.patch.object(sys, "argv", argv_here), mock.patch.object(os, "kill", _kill):
            if argv[2] == "splatbatch":  # a command of ours
                with contextlib.chdir(folder.path):
                    cli.main([*argv[3:]])
                return 0
            with CLOCK.standing(HANGS_S, HangsError), contextlib.chdir(folder.path):
                _run_as_main(*argv[1:3])
                return 0
    finally:
        signal.signal(signal.SIGTERM, usual)


def _run_as_main(option: str, program: str) -> None:
    if option == "-c":
        exec(program, {"__name__": "__main__"})
        return
    with mock.patch.object(sys, "path", [*os.environ.get("PYTHONPATH", "").split(os.pathsep), *sys.path]):
        runpy.run_module(program, run_name="__main__")


def _kill(pid: int, number: int) -> None:
    if number and pid == os.getpid():
        raise SignalOfItself(number)
    KILL(pid, number)


def _end_of(call: Callable[[], int]) -> Exit:
    try:
        return Exited(call())
    except SignalOfItself as end:
        return Killed(int(end.args[0]))
    except SystemExit as end:
        return Exited(int(end.code or 0))
    except Exception:  # noqa: BLE001 - as a process of its own would end
        traceback.print_exc()
        return Exited(1)


@contextlib.contextmanager
def _environment(job: Job) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(job.spec.env | {processes.MARKER: job.spec.key})
    os.environ.pop("SPLATBATCH_STANDBY", None)  # its turn has come
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def is_program(job: Job) -> bool:
    """Return whether a job is a program in Python that does not belong to us, or a command of ours."""
    option, program = (*job.spec.argv[1:3], "", "")[:2]
    return option in ("-c", "-m") and not program.startswith("splatbatch.") and not job.watch


def line_of(job: Job, folder: AttemptFolder) -> tuple[str, str] | None:
    """Return what the script says for an attempt of the fake trainer; None where a process must do it."""
    if is_program(job):
        return PROGRAM, ""
    if fake_attempt.__file__ not in job.spec.argv or job.watch:
        return None
    script = json.loads(Path(os.environ["FAKE_TRAINER_SCRIPT"]).read_text())
    lines = script.get(json.loads(folder.settings.read_text())["patch"], ["train"])
    verb, _, words = lines[min(folder.number, len(lines)) - 1].partition(" ")
    does = words.partition(" ")[0] if verb == "unready" else verb
    return (verb, words) if does in AT_ONCE | IN_TIME and "child" not in words else None


@contextlib.contextmanager
def machine_here() -> Iterator[None]:
    """Let nights of this process have this machine and its clock."""
    from splatbatch.scheduler import session, single
    from splatbatch.scheduler.work import adopt

    modules = (session, single, adopt)
    usual = [module.LocalExecutor for module in modules]
    for module in modules:
        module.LocalExecutor = MachineHere
    try:
        with CLOCK.of_commands():
            yield
    finally:
        for module, executor in zip(modules, usual, strict=True):
            module.LocalExecutor = executor
