"""Run one attempt: fenced, in a session of its own, watched, ended when it must be, its end written down.

Writes start.json, heartbeat.json, gpu.jsonl, train.log and, last of all, exit.json. Needs no torch and no engine.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from splatbatch import gpu
from splatbatch.attempt import AttemptFolder, Cancelled, Exit, Exited, Killed, NotStarted, TimedOut, exit_to_record
from splatbatch.files import append_line, read_json, write_json
from splatbatch.supervisor import processes
from splatbatch.supervisor.log import BoundedLog
from splatbatch.supervisor.memory import OomWatch

FENCED = 75  # sysexits.h, EX_TEMPFAIL: somebody else runs this attempt
HEARTBEAT_S = 1.0
GPU_SAMPLE_S = 2.0
TICK_S = 0.05


def supervise(folder: AttemptFolder) -> int:
    """Run the job in `folder` to its end; return 0 if the process exited with 0, 75 if another supervisor has it."""
    job = read_json(folder.job)
    if job is None or not _claim(folder):
        return FENCED
    stop = _StopRequest()
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(sig, stop.by_signal)
    processes.adopt_orphans()
    started = time.monotonic()
    memory = OomWatch()
    output, inlet = os.pipe()
    os.set_blocking(output, False)
    process = _start(folder, job, inlet)
    os.close(inlet)
    if isinstance(process, NotStarted):
        end: Exit = process
    else:
        end = _Watch(folder, job, process, output, stop).until_the_end()
    write_json(
        folder.exit,
        {
            **exit_to_record(end),
            "seconds": round(time.monotonic() - started, 3),
            "ended_at": time.time(),
            "out_of_memory": memory.struck(),
            **_identity(),
        },
    )
    return 0 if end == Exited(0) else 1


def _claim(folder: AttemptFolder) -> bool:
    """Take the attempt; one start per folder, ever (O_EXCL is atomic on NFSv3 and later, Lustre, GPFS)."""
    try:
        descriptor = os.open(folder.start, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    os.close(descriptor)
    # the empty file is the fence; its contents are for people and for `find`
    write_json(folder.start, {**_identity(), "started_at": time.time(), "ticks": processes.start_ticks(os.getpid())})
    return True


def _identity() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "boot_id": processes.boot_id()}


def _start(folder: AttemptFolder, job: dict[str, Any], output: int) -> subprocess.Popen[bytes] | NotStarted:
    def in_child() -> None:
        processes.die_with_parent(signal.SIGKILL)

    try:
        return subprocess.Popen(
            job["argv"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=job.get("cwd") or folder.path,
            env={**os.environ, **job.get("env", {})},
            start_new_session=True,
            preexec_fn=in_child,  # noqa: PLW1509 - this process has one thread
        )
    except (OSError, ValueError) as error:
        return NotStarted(f"{job['argv'][0]}: {error}")


class _StopRequest:
    """Whether we were asked to stop from outside, and by what."""

    def __init__(self) -> None:
        self.by = ""

    def by_signal(self, number: int, _frame: object) -> None:
        self.by = self.by or signal.Signals(number).name


@dataclass
class _Every:
    """Something to do now and then."""

    interval_s: float
    do: Callable[[], None]
    due: float = 0.0

    def tick(self, now: float) -> None:
        if now >= self.due:
            self.due = now + self.interval_s
            # a full disk or an unreachable share must not end a good training
            with suppress(OSError):
                self.do()


@dataclass
class _Watch:
    """A running process and all that is kept an eye on until it ends."""

    folder: AttemptFolder
    job: dict[str, Any]
    process: subprocess.Popen[bytes]
    output: int  # its stdout and stderr: our end of the pipe
    stop: _StopRequest
    started: float = field(default_factory=time.monotonic)
    beats: int = 0
    ending: Exit | None = None  # why we are ending it, once we are
    kill_at: float = 0.0

    def until_the_end(self) -> Exit:
        """Watch until the process has ended and nothing below it is left."""
        chores = [_Every(HEARTBEAT_S, self._beat)]
        if self.job.get("gpu"):
            chores.append(_Every(GPU_SAMPLE_S, self._sample_gpu))
        log = BoundedLog(self.folder.log)
        with selectors.DefaultSelector() as selector:
            selector.register(self.output, selectors.EVENT_READ)
            while self.process.poll() is None:
                if selector.select(TICK_S) and not _drain(self.output, log):
                    selector.unregister(self.output)
                for chore in chores:
                    chore.tick(time.monotonic())
                self._end_if_due()
        _drain(self.output, log)
        log.close()
        processes.end_orphans(self.process.pid)
        return self._verdict(self.process.wait())

    def _end_if_due(self) -> None:
        now = time.monotonic()
        if self.ending is None:
            self.ending = self._reason_to_end(now - self.started)
            if self.ending is not None:
                self.kill_at = now + float(self.job["limits"]["grace_s"])
                processes.send_group(signal.SIGTERM, self.process.pid)
        elif now >= self.kill_at:
            processes.send_group(signal.SIGKILL, self.process.pid)
            processes.end_orphans(self.process.pid)

    def _reason_to_end(self, age_s: float) -> Exit | None:
        if self.stop.by:
            return Cancelled(self.stop.by)
        if self.folder.cancel.exists():
            return Cancelled("cancel file")
        wall_s = float(self.job["limits"]["wall_s"])
        return TimedOut("wall", wall_s) if age_s > wall_s else None

    def _verdict(self, code: int) -> Exit:
        """Say how it ended: our reason if we ended it and it did not finish well all the same."""
        if self.ending is not None and code != 0:
            return self.ending
        return Killed(-code) if code < 0 else Exited(code)

    def _beat(self) -> None:
        self.beats += 1
        write_json(self.folder.heartbeat, {"sequence": self.beats, "child": self.process.pid})

    def _sample_gpu(self) -> None:
        record = {"t": round(time.time(), 2), **gpu.sample(self.job["gpu"]).to_record()}
        append_line(self.folder.gpu_samples, record, durable=False)


def _drain(pipe: int, log: BoundedLog) -> bool:
    """Copy what lies in the pipe to the log; return False at its end."""
    while True:
        try:
            data = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return True
        if not data:
            return False
        with suppress(OSError):
            log.write(data)
