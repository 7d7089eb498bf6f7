"""The main loop of a supervisor: run one attempt in its own session, watch it, end it at a limit, record its exit.

The supervisor writes start.json, heartbeat.json, gpu.jsonl, train.log and, last of all, exit.json into the folder of
the attempt. No torch and no engine is needed.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from splatbatch import processes
from splatbatch.files import write_json
from splatbatch.hashing import file_fact
from splatbatch.machine import control_group
from splatbatch.outcome import Cancelled, Exit, Exited, Killed, NotStarted, TimedOut
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.attempt import ExitFacts, Go, Heartbeat, Start
from splatbatch.supervisor import external
from splatbatch.supervisor.host_monitor import HostMonitor
from splatbatch.supervisor.job import Job, read_job
from splatbatch.supervisor.log import BoundedLog, Secrets
from splatbatch.supervisor.preload import PreloadedProcess

FENCED = 75  # sysexits.h, EX_TEMPFAIL: another supervisor runs this attempt
HEARTBEAT_S = 1.0
GPU_SAMPLE_S = 2.0
HOST_LOOK_S = 2.0
STALL_LOOKS = 10  # in the time that counts as a stall
LONGEST_STALL_LOOK_S = 10.0
TICK_S = 0.05
PIPE_BYTES = 1 << 20  # pipe(7): what any user may ask for
UNKILLABLE_S = 60.0  # what outlives its SIGKILL for so long hangs in a driver: its end is told without it
TELL_S = 3600.0  # how long a full disk may keep the end from being written down: as long as a batch waits for room
IDLE_SHARE = 0.01
"""CPU seconds per second up to which a process counts as idle, as a viewer that only wakes up now and then."""


def supervise(folder: AttemptFolder, spare: PreloadedProcess | None = None) -> int:
    """Run the job in `folder` to its end, and write exit.json; return the exit code of the supervisor.

    0: the job exited with 0; 75: another supervisor runs or ran this attempt, or there is no readable job.json; 1:
    otherwise.

    Args:
        folder: folder of the attempt.
        spare: preloaded process, which runs the job if it has loaded its program, and else is dismissed. None: the
            program is started by name.

    Raises:
        OSError: the folder is gone or cannot be written; on a full disk only after an hour, or when asked to stop.
    """
    job = read_job(folder)
    stop = StopCause()
    if job is None or not _claim(folder):
        if spare:
            spare.dismiss()
        return FENCED
    job.group = control_group.make(processes.start_ticks(os.getpid()))
    start = replace(Start.of_self(), started_at=time.time(), group=str(job.group) if job.group else None)
    with suppress(OSError):  # the empty file is the fence; this is for `status`, and to look for leftovers
        write_json(folder.start, start.to_record())
    processes.adopt_orphans()
    processes.raise_file_limit()
    host = HostMonitor(folder, job.spec.gpu)
    end = _run_all(folder, job, stop, host, spare)
    control_group.end(job.group)
    host.look()
    _tell(folder, host.facts(end, stood_by=job.spec.standby), stop)
    return 0 if end == Exited(0) else 1


def _claim(folder: AttemptFolder) -> bool:
    """Create start.json; False if it exists, so that an attempt is started once only.

    O_EXCL is atomic on NFSv3 and later, Lustre and GPFS.
    """
    try:
        os.close(os.open(folder.start, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        return True
    except FileExistsError:
        return False


def _tell(folder: AttemptFolder, facts: ExitFacts, stop: StopCause) -> None:
    """Write exit.json; on a full disk or a silent share try again for up to `TELL_S`, or until asked to stop."""
    folder.ballast.unlink(missing_ok=True)
    give_up_at = time.monotonic() + TELL_S
    while True:
        try:
            return write_json(folder.exit, facts.to_record())
        except FileNotFoundError:
            raise
        except OSError:
            if stop.by or time.monotonic() > give_up_at:
                raise
            time.sleep(1.0)


def _run_all(
    folder: AttemptFolder, job: Job, stop: StopCause, host: HostMonitor, spare: PreloadedProcess | None
) -> Exit:
    """Run the command; while its files are complete, then run the export of the splat and its measurement, if any."""
    end = _run(folder, job, stop, host, spare)
    while following := external.next_job(folder, job, end):
        job, after = following, _run(folder, following, stop, host)
        if not job.measures and after != Exited(0):  # how measuring ends says nothing of the splat
            end = after
    return end


def _run(
    folder: AttemptFolder, job: Job, stop: StopCause, host: HostMonitor, spare: PreloadedProcess | None = None
) -> Exit:
    try:
        log = BoundedLog(folder.log)
    except OSError as error:
        return NotStarted(str(error))
    output, inlet = os.pipe()
    os.set_blocking(output, False)
    with suppress(OSError, AttributeError):  # the larger it is, the less a talkative process waits for us
        fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    process = _start(folder, job, inlet, spare)
    os.close(inlet)
    if isinstance(process, NotStarted):
        return process
    return _Watch(folder, job, process, output, log, stop, host).until_the_end()


def _start(
    folder: AttemptFolder, job: Job, output: int, spare: PreloadedProcess | None
) -> subprocess.Popen[bytes] | PreloadedProcess | NotStarted:
    me = os.getpid()
    argv = job.spec.argv
    env = {**os.environ, **job.spec.env, processes.MARKER: job.spec.key or str(folder.path)}
    cwd = folder.path / ((job.watch and job.watch.cwd) or "")
    if spare and spare.begin(argv, env, Path(cwd), output, job.group):
        return spare
    if spare:
        spare.dismiss()
    if not argv:
        return NotStarted(f"{folder.job}: names no command to start")

    def before_exec() -> None:
        control_group.enter(job.group)
        processes.die_with_parent(signal.SIGKILL, me)

    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env=env,
            start_new_session=True,
            preexec_fn=before_exec,  # noqa: PLW1509 - one thread here
        )
    except (OSError, ValueError) as error:
        return NotStarted(Secrets(job.watch).mask_text(f"{argv[0]}: {error}"))


@dataclass
class _Watch:
    """A running process of an attempt, with its limits, timers and log, until its end."""

    folder: AttemptFolder
    job: Job
    process: subprocess.Popen[bytes] | PreloadedProcess
    output: int  # its stdout and stderr: our end of the pipe
    log: BoundedLog
    stop: StopCause
    host: HostMonitor
    started: float = field(default_factory=time.monotonic)
    beats: int = 0
    ending: Exit | None = None  # why we are ending it, once we are
    kill_at: float = float("inf")

    def __post_init__(self) -> None:
        self.limits = self.job.spec.limits
        self.stall = Watchdog(self.folder.progress, self.process.pid, self.started)
        self.progress, self.finish = external.watches_of(self.folder, self.job.watch, self.started)
        self.secrets = Secrets(self.job.watch)
        self.timers = self._timers()

    def until_the_end(self) -> Exit:
        """Watch the process until it has ended; then kill all its descendants and return its exit."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.output, selectors.EVENT_READ)
            while self.process.poll() is None and time.monotonic() < self.kill_at + UNKILLABLE_S:
                if selector.select(TICK_S) and self._drain() is None:
                    selector.unregister(self.output)
                for timer in self.timers:
                    timer.tick(time.monotonic())
                if self.job.spec.standby and (go := self.folder.read_go()):
                    self._begin(go)
                self._end_if_due()
        processes.end_orphans(self.process.pid)
        self._drain()  # once: no process is left that could write more
        self._keep(self.secrets.rest())
        if self.progress:
            with suppress(OSError):
                self.progress.close(time.monotonic())
        self.log.close()
        code = self.process.poll()
        # our reason counts if we ended it and it did not finish well all the same
        if self.ending and (code != 0 or (isinstance(self.ending, TimedOut) and self.ending.limit == "finished")):
            return self.ending
        return Killed(-code) if code and code < 0 else Exited(code or 0)

    def _timers(self) -> list[PeriodicCall]:
        timers = [PeriodicCall(HEARTBEAT_S, self._beat), PeriodicCall(HOST_LOOK_S, self.host.look)]
        if self.job.spec.standby:
            return timers
        if self.progress:
            timers.append(PeriodicCall(external.INTERVAL_S, self.progress.look))
        if finish := self.finish:
            timers.append(PeriodicCall(finish.interval_s, lambda now: finish.look(now, self.log.said)))
        if self.job.spec.gpu:
            timers.append(PeriodicCall(GPU_SAMPLE_S, self.host.gpu.look))
        if stall_s := self.limits.stall_s:
            look = lambda now: self.stall.look(now, self.log.said, self.host.gpu.busiest_percent())  # noqa: E731
            timers.append(PeriodicCall(min(stall_s / STALL_LOOKS, LONGEST_STALL_LOOK_S), look))
        return timers

    def _begin(self, go: Go) -> None:
        """Note that the standby's turn has come: from now on the limits count and its GPU is watched."""
        self.started = time.monotonic()
        self.job.begin(go)
        self.host.begin(go.gpu)
        self.stall = Watchdog(self.folder.progress, self.process.pid, self.started)
        self.timers = self._timers()

    def _end_if_due(self) -> None:
        now = time.monotonic()
        if not self.ending:
            self.ending = self._reason_to_end(now)
            if self.ending:
                self.kill_at = now + self.limits.grace_s
                processes.send_group(signal.SIGTERM, self.process.pid)
        elif now >= self.kill_at:
            processes.send_group(signal.SIGKILL, self.process.pid)
            processes.end_orphans(self.process.pid)

    def _reason_to_end(self, now: float) -> Exit | None:
        if self.stop.by or self.folder.cancel.exists():
            why = self.stop.by or "cancel file in the folder of the attempt"
            with suppress(OSError):
                why = self.folder.cancel.read_text(encoding="utf-8", errors="replace") or why
            return Cancelled(why)
        if self.job.spec.standby:
            return None
        wall_s, stall_s = self.limits.wall_s, self.limits.stall_s
        if now - self.started > wall_s:
            return TimedOut("wall", wall_s)
        if self.finish and self._has_finished(self.finish, now):
            return TimedOut("finished", self.finish.after_s)
        return TimedOut("stall", stall_s) if 0 < stall_s < now - self.stall.moved_at else None

    def _has_finished(self, finish: external.FinishWatch, now: float) -> bool:
        """Return whether a trainer has written all its files and does not exit.

        A splat without a step in its name may be an early one: it does not count while the log shows missing steps.
        """
        if not finish.is_over(now):
            return False
        finish.look(now, self.log.said)  # what was said or written since counts
        if self.progress:
            with suppress(OSError):
                self.progress.look(now)
        is_early = self.progress and not finish.is_named and self.progress.steps.falls_short_of(self.progress.max_steps)
        return finish.is_over(now) and not is_early

    def _drain(self) -> int | None:
        """Move the output in the pipe to the log; return the number of bytes, None at the end of the pipe."""
        try:
            data = os.read(self.output, PIPE_BYTES)
        except BlockingIOError:
            return 0
        self._keep(self.secrets.mask(data))
        return len(data) or None

    def _keep(self, data: bytes) -> None:
        self.log.write(data)
        if self.progress:
            self.progress.hear(data)

    def _beat(self, _: float) -> None:
        self.beats += 1
        heartbeat = Heartbeat(self.beats, self.process.pid, tuple(processes.names_below(os.getpid())))
        write_json(self.folder.heartbeat, heartbeat.to_record())


class StopCause:
    """Remembers the first signal that asked this supervisor to stop; `by` is its name, empty while none came.

    An object installs handlers for SIGTERM, SIGINT, SIGHUP and SIGUSR1.
    """

    def __init__(self) -> None:
        self.by = ""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        self.by = self.by or signal.Signals(number).name


@dataclass
class PeriodicCall:
    """A function called at an interval; its OSErrors are ignored, so that a full disk ends no good training.

    `do` is the function, which gets the time; `due` is the time of its next call.
    """

    interval_s: float
    do: Callable[[float], None]
    due: float = 0.0

    def tick(self, now: float) -> None:
        """Call the function if its interval has passed; `now` is in seconds by a clock that never goes back."""
        if now >= self.due:
            self.due = now + self.interval_s
            # a full disk or an unreachable share must not end a good training
            with suppress(OSError):
                self.do(now)


@dataclass
class Watchdog:
    """Measures since when an attempt has made no progress, for the stall limit.

    Progress is new output, a change of progress.jsonl (`progress` is its path), or use of the GPU (without one: of the
    CPU). `moved_at` is the time of the last progress, in seconds by a clock that never goes back.
    """

    progress: Path
    pid: int
    moved_at: float
    _looked_at: float = 0.0
    _traces: tuple[int, ...] = ()
    _cpu_s: float = 0.0

    def look(self, now: float, log_bytes: int, gpu_percent: int | None) -> None:
        """Note whether there was progress since the last call.

        Args:
            now: time by a clock that never goes back, in seconds.
            log_bytes: number of bytes that the process has printed so far.
            gpu_percent: highest utilisation of its GPU since the last call, in percent; None: unknown or no GPU, so
                that the CPU time of the process and its descendants counts.
        """
        traces = (log_bytes, *file_fact(self.progress)[:2])
        if traces != self._traces or self._works(gpu_percent, now - self._looked_at):
            self.moved_at = now
        self._traces, self._looked_at = traces, now

    def _works(self, gpu_percent: int | None, since_s: float) -> bool:
        if gpu_percent is not None:
            return gpu_percent > 0
        before, self._cpu_s = self._cpu_s, processes.cpu_s(self.pid)
        # less than before: a process has gone whose time no parent inherited
        return not before <= self._cpu_s <= before + IDLE_SHARE * since_s
