"""A machine whose attempts run inside the process of a test, and whose night costs no waiting.

`FakeBatch.run` uses it wherever the script lets every attempt train or fail at once. An attempt that takes time, hangs
or starts children is a process all the same, and its night waits by the real clock.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import external_program
import fake_attempt
import light_trainer
from program_here import supervise_here

from splatbatch import processes
from splatbatch.files import write_json
from splatbatch.machine.local import LocalExecutor
from splatbatch.machine.protocol import Handle, Key, Seen
from splatbatch.outcome import Cancelled, Exit, Exited, Killed
from splatbatch.reader import Reading
from splatbatch.scheduler.running import rest
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.records.attempt import Heartbeat, Start
from splatbatch.supervisor.host_monitor import HostMonitor
from splatbatch.supervisor.job import Job, read_job
from splatbatch.supervisor.log import BoundedLog

AT_ONCE = {"train", "exit", "die", "train-then-die", "spoil", "needs", "measure", "unhealthy"}
"""What takes no time, unless it is told to."""


class SignalOfItself(BaseException):
    """An attempt ends itself by a signal, of which the test is to know nothing."""


class MachineHere(LocalExecutor):
    """Attempts of the fake trainer run here, others in processes."""

    def __init__(self, *of_machine: Any) -> None:
        super().__init__(*of_machine)
        self._here: dict[Key, AttemptFolder] = {}
        self._standing_by: dict[Key, Job] = {}

    def submit(self, key: Key, folder: AttemptFolder) -> Handle:
        if key in self._here:
            return key
        job = read_job(folder)
        if job and job.watch and external_program.__file__ in job.spec.argv:
            self._here[key] = folder
            supervise_here(folder)
            return key
        if job is None or not is_quick(job, folder):
            CLOCK.is_real = True
            return super().submit(key, folder)
        if folder.start.exists():  # another supervisor has it
            return key
        self._here[key] = folder
        place = ("here", os.getpid(), processes.boot_id(), time.time(), processes.start_ticks(os.getpid()), None)
        write_json(folder.start, Start(*place, processes.pid_space()).to_record())
        if job.spec.standby:
            self._standing_by[key] = job
            light_trainer.say(light_trainer.Folder(folder.path), phase="standby", step=0)
        else:
            self._run(folder, job)
        return key

    def poll(self, handles: Mapping[Key, Handle]) -> Mapping[Key, Seen]:
        elsewhere = {key: handle for key, handle in handles.items() if key not in self._here}
        seen = dict(super().poll(elsewhere))
        for key in handles:
            if folder := self._here.get(key):
                if key in self._standing_by and (go := folder.read_go()):
                    job = self._standing_by.pop(key)
                    job.begin(go)
                    self._run(folder, job)
                seen[key] = Seen(is_running=key in self._standing_by)
        return seen

    def cancel(self, handles: Mapping[Key, Handle]) -> None:
        super().cancel({key: handle for key, handle in handles.items() if key not in self._here})
        for key in handles:
            if job := self._standing_by.pop(key, None):
                told = self._here[key].cancel
                why = told.read_text() if told.exists() else "SIGTERM"
                _tell(self._here[key], job, Cancelled(why), HostMonitor(self._here[key], job.spec.gpu))

    def kill(self, handles: Mapping[Key, Handle]) -> None:
        super().kill({key: handle for key, handle in handles.items() if key not in self._here})
        self.cancel({key: handle for key, handle in handles.items() if key in self._here})

    def _run(self, folder: AttemptFolder, job: Job) -> None:
        host = HostMonitor(folder, job.spec.gpu)
        host.look()
        write_json(folder.heartbeat, Heartbeat(1, os.getpid(), ()).to_record())
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), _environment(job):
            end = _end_of(folder)
        log = BoundedLog(folder.log)
        log.write(said.getvalue().encode())
        log.close()
        _tell(folder, job, end, host)


def _tell(folder: AttemptFolder, job: Job, end: Exit, host: HostMonitor) -> None:
    folder.ballast.unlink(missing_ok=True)
    host.look()
    write_json(folder.exit, host.facts(end, stood_by=job.spec.standby).to_record())


def _end_of(folder: AttemptFolder) -> Exit:
    def die(_: object, rest: str, __: int) -> int:
        raise SignalOfItself(getattr(signal, rest))

    usual, fake_attempt.die = fake_attempt.die, die
    try:
        behaviours = fake_attempt.BEHAVIOURS | {"die": die}
        return Exited(light_trainer.behave(light_trainer.Folder(folder.path), behaviours))
    except SignalOfItself as end:
        return Killed(int(end.args[0]))
    except Exception:  # noqa: BLE001 - as a process of its own would end
        traceback.print_exc()
        return Exited(1)
    finally:
        fake_attempt.die = usual


@contextlib.contextmanager
def _environment(job: Job) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(job.spec.env)
    os.environ.pop("SPLATBATCH_STANDBY", None)  # its turn has come
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def is_quick(job: Job, folder: AttemptFolder) -> bool:
    """Return whether an attempt is one of the fake trainer that takes no time."""
    if fake_attempt.__file__ not in job.spec.argv or job.watch:
        return False
    script = json.loads(Path(os.environ["FAKE_TRAINER_SCRIPT"]).read_text())
    lines = script.get(json.loads(folder.settings.read_text())["patch"], ["train"])
    verb, _, words = lines[min(folder.number, len(lines)) - 1].partition(" ")
    return verb in AT_ONCE and (verb != "train" or float(words.partition(" ")[0] or 0) == 0)


class Clock:
    """Goes on by itself where nothing but time is waited for."""

    def __init__(self) -> None:
        self.is_real, self._ahead_s = False, 0.0

    def now(self) -> float:
        return time.monotonic() + self._ahead_s

    def sleep(self, seconds: float, readings: Sequence[Reading[Any]] = ()) -> None:
        if self.is_real or readings:
            rest(seconds, readings)
        else:
            self._ahead_s += seconds


CLOCK = Clock()


@contextlib.contextmanager
def machine_here() -> Iterator[None]:
    """Let nights of this process have this machine and its clock."""
    from splatbatch.scheduler import loop, session, single
    from splatbatch.scheduler.work import adopt

    usual, CLOCK.is_real = loop.WallClock, False
    for module in (session, single, adopt):
        module.LocalExecutor = MachineHere
    loop.WallClock = lambda: CLOCK
    try:
        yield
    finally:
        loop.WallClock = usual
        for module in (session, single, adopt):
            module.LocalExecutor = LocalExecutor
