"""The executor of this machine: one supervisor process per attempt; one slot per GPU, or a few on the CPU.

A supervisor that shows no sign of life is woken by SIGCONT, and killed if that does not help.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from splatbatch import processes
from splatbatch.config import Executor as ExecutorConfig
from splatbatch.errors import SplatbatchError
from splatbatch.machine import orphans
from splatbatch.machine.mps import SERVER_MIB, Mps
from splatbatch.machine.protocol import GONE, Handle, Key, Slot
from splatbatch.machine.slots import chosen_cards
from splatbatch.machine.supervisors import SUPERVISOR, Child, Supervisors
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.events import OrphansStopped
from splatbatch.output.folders import PatchFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.attempt import JobSpec
from splatbatch.output.results import batch_name

SILENCE_S = 60.0
"""Seconds without a sign of life after which a supervisor counts as frozen.

A supervisor runs its loop twenty times a second and writes a heartbeat every second.
"""
DEVICE_SILENCE_S = 600.0
"""Seconds without a sign of life after which a supervisor that waits for a disk or a share counts as frozen.

The limit is longer than `SILENCE_S`, so that a file server may restart.
"""
WAKING_S = 5.0
"""Seconds that a woken supervisor has to show a sign of life before it is killed."""
MOST_WAKINGS = 3
"""Most times that a supervisor is woken; then it is killed, since its own limits do not run while it is stopped."""
PATIENCE_S = 10.0
"""Seconds beyond the grace until an orphan that was asked to end is killed, and seconds that it then has to die.

An orphan is an attempt that runs on although the run that started it is gone.
"""
ROUND_S = 0.1
"""Seconds between two looks at orphans that were asked to end."""
LOOK_S = 1.0
"""Seconds between two looks at a supervisor."""
LONGEST_STEP_S = 3 * LOOK_S
"""Most seconds of silence counted between two looks.

If more passed, this process itself stood still (a laptop asleep).
"""


@dataclass
class SupervisorWatchdog:
    """Measures how long a supervisor of this process has shown no sign of life, by the clock of this process.

    A sign of life is a turn of the supervisor's loop, or a heartbeat in `folder`, that of its attempt.
    """

    process: Child
    folder: AttemptFolder
    ticks: int = 0
    """Start of the supervisor in clock ticks since boot; with its pid it names the process. 0: unknown."""
    limit_s: float = 0.0
    """Longest silence in seconds; 0: `SILENCE_S` or `DEVICE_SILENCE_S`.

    Shorter once the supervisor was asked to stop.
    """
    silent_s: float = 0.0
    """Seconds without a sign of life, as counted so far; 0 after each sign."""
    woken_s: float = -1.0
    """Value of `silent_s` when the supervisor was woken, in seconds.

    Negative: it was not woken since its last sign of life.
    """
    wakings: int = 0
    """Number of times that the supervisor was woken; 0: never."""
    _signs: object = None
    _looked_at: float = 0.0

    def look(self, now: float) -> Literal["", "wake", "end"]:
        """Return what to do with the supervisor; the caller sends the signals.

        "wake": it has been silent for too long. "end": waking it did not help, or it was woken `MOST_WAKINGS` times.
        "": nothing yet.

        Call this often; the supervisor is looked at every `LOOK_S` seconds.

        Args:
            now: time by a clock that never goes back, in seconds.
        """
        passed_s = now - self._looked_at
        if passed_s < LOOK_S:
            return ""
        self._looked_at = now
        signs = (_turns(self.process.pid), self.folder.read_heartbeat().sequence)
        if signs != self._signs:
            self._signs, self.silent_s, self.woken_s = signs, 0.0, -1.0
            return ""
        self.silent_s += min(passed_s, LONGEST_STEP_S)
        usual_s = DEVICE_SILENCE_S if processes.stat_of(self.process.pid)[:1] == ["D"] else SILENCE_S
        if self.woken_s < 0 and self.silent_s > (self.limit_s or usual_s):
            self.woken_s = self.silent_s
            self.wakings += 1
            return "wake" if self.wakings <= MOST_WAKINGS else "end"
        return "end" if 0 <= self.woken_s < self.silent_s - WAKING_S else ""

    def reap(self) -> None:
        """Wake, or else kill, a supervisor that has written exit.json but still exists, such as a stopped process.

        This takes up to `WAKING_S` seconds. Without exit.json nothing happens.
        """
        if self.folder.exit.exists() and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            try:
                self.process.wait(WAKING_S)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGKILL)


def _turns(pid: int) -> str:
    """Return the count of voluntary context switches of a process, which grows while its loop runs; see proc(5)."""
    lines = processes.kernel_file(f"/proc/{pid}/status").splitlines()
    return next((line for line in lines if line.startswith("voluntary_ctxt_switches")), "")


class LocalExecutor:
    """Starts and ends supervisors on this machine; a supervisor stops its attempt when this process dies.

    The scheduler starts and ends attempts only through this class, so that tests and benchmarks can simulate a machine.
    """

    def __init__(self, config: ExecutorConfig, device: str, *, shares_gpus: bool = False) -> None:
        """Make the slots: one per GPU that the config names for a device, else slots of the CPU.

        Args:
            config: section `executor` of the YAML.
            device: `training.device`: "auto", "cuda" or "cpu".
            shares_gpus: whether attempts share a GPU by CUDA MPS, if it is installed.

        Raises:
            ExecutorError: the config, or CUDA_VISIBLE_DEVICES as its first, names a missing GPU; or GPUs are wanted and
                cannot be used.
            OSError: no temporary folder can be made for CUDA MPS.
        """
        cards = chosen_cards(config, device)
        slots = tuple(Slot(f"gpu{card.index}", card.uuid) for card in cards)
        slots = slots or tuple(Slot(f"cpu{index}") for index in range(config.cpu_slots))
        self._mps = Mps.start(card.uuid for card in cards) if cards and shares_gpus else None
        self.slots = tuple(replace(slot, environment=self._mps.environment) for slot in slots) if self._mps else slots
        """Slots of this machine: one for each GPU, else those of the CPU."""
        self.shared_mib = SERVER_MIB if self._mps else 0.0
        """GPU memory in MiB that CUDA MPS may take for all attempts on a GPU together; 0 without MPS."""
        self._starts = Supervisors()
        self._supervisors: dict[Key, SupervisorWatchdog] = {}
        self._unended: dict[Key, AttemptFolder] = {}
        # what a killed supervisor leaves behind becomes our child, even if it hides
        processes.adopt_orphans()

    def submit(self, key: Key, folder: AttemptFolder) -> Handle:
        """Start the supervisor of an attempt, which reads job.json in its folder; a second call for a key starts none.

        Call it from the main thread: the supervisor dies with the thread that started it. Return the supervisor's
        handle.

        Raises:
            OSError: no process can be started.
        """
        if key not in self._supervisors:
            process = self._starts.start(folder)
            self._supervisors[key] = SupervisorWatchdog(process, folder, processes.start_ticks(process.pid))
        return _handle(self._supervisors[key].process.pid)

    def poll(self, handles: Mapping[Key, Handle]) -> Mapping[Key, str]:
        """Return for each supervisor why it does not run; empty while it runs. A frozen supervisor is woken, or killed.

        If a supervisor of this object died without writing exit.json, the processes of its attempt are killed.
        """
        return {key: self._why_gone(key, handle) for key, handle in handles.items()}

    def cancel(self, handles: Mapping[Key, Handle]) -> None:
        """Ask supervisors to stop their attempts by SIGTERM, without waiting; exit.json tells how they ended.

        If a handle names a process of an attempt whose supervisor is dead, the attempt's processes are killed.
        """
        for key, handle in handles.items():
            pid = _living(handle)
            if pid and _supervised_folder(pid):
                processes.send(signal.SIGTERM, [pid])
                processes.send(signal.SIGCONT, [pid])  # one that was stopped hears nothing else
            elif pid:
                self._end_leftovers(key)
            if supervisor := self._supervisors.get(key):
                supervisor.limit_s = WAKING_S

    def kill(self, handles: Mapping[Key, Handle]) -> None:
        """Kill supervisors and all processes of their attempts; processes that are gone already are ignored."""
        for key, handle in handles.items():
            if pid := _living(handle):
                processes.send(signal.SIGKILL, processes.with_descendants([pid]))
            self._end_leftovers(key)

    def close(self) -> None:
        """End the fork server, CUDA MPS, and supervisors that have written exit.json but still exist.

        Call it once, at the end. A supervisor takes up to `WAKING_S` seconds. The ends of the fork server and of CUDA
        MPS are waited for without a limit of time.
        """
        for supervisor in self._supervisors.values():
            supervisor.reap()
        self._starts.close()
        if self._mps:
            self._mps.stop()

    def find(self, batch: str, unended: Sequence[AttemptFolder] = ()) -> Mapping[Key, Handle]:
        """Return the attempts of a batch that still run on this machine: supervisors, and orphans of dead supervisors.

        Args:
            batch: the batch, or batch.task, with which the keys of the attempts begin.
            unended: attempts without exit.json; processes that their files name are looked for, too.
        """
        found = {key: _handle(pid) for pid, key in processes.with_marker(f"{batch}.").items()}
        for attempt in unended:
            if left := orphans.find(attempt):
                key = (attempt.read_job() or JobSpec()).key or str(attempt.path)
                self._unended[key], found[key] = attempt, _handle(left[0])
        pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
        shown = {pid: folder for pid in pids if (folder := _supervised_folder(pid))}
        for pid, folder in shown.items():
            job = folder.read_job()
            # a process that a supervisor has forked shows its command line too, until it becomes the program it runs
            is_supervisor = shown.get(processes.parent(pid)) != folder
            if is_supervisor and job and job.key.startswith(f"{batch}."):
                found[job.key] = _handle(pid)
        return found

    def _why_gone(self, key: Key, handle: Handle) -> str:
        if supervisor := self._supervisors.get(key):
            code = supervisor.process.poll()
            if code is None:  # its limits count for nothing as long as it stands still
                if what := supervisor.look(time.monotonic()):
                    supervisor.process.send_signal(signal.SIGCONT if what == "wake" else signal.SIGKILL)
                return ""
            if not supervisor.folder.exit.exists():
                self._end_leftovers(key)
            return f"the process that watched the attempt (supervisor) ended with exit code {code}"
        return "" if _living(handle) else GONE

    def _end_leftovers(self, key: Key) -> None:
        """Kill the remaining processes of an attempt whose supervisor has ended."""
        processes.end_marked(key)
        if supervisor := self._supervisors.get(key):
            orphans.end(supervisor.folder)
            started_by_us = [self._starts.server() or 0, *(one.process.pid for one in self._supervisors.values())]
            processes.end_adopted(key, started_by_us, supervisor.ticks)
        elif key in self._unended:
            orphans.end(self._unended[key])


def stop_orphans(  # noqa: PLR0913 - whose, by what, and what happens meanwhile
    executor: LocalExecutor,
    output: OutputFolder,
    ledger: Ledger,
    grace_s: float,
    beat: Callable[[], None],
    *,
    task: str = "",
) -> None:
    """Stop attempts that still run although the run that started them is gone, and wait until they have ended.

    Args:
        executor: finds the attempts, asks them to end, and kills those that do not.
        output: output folder of the attempts.
        ledger: records which attempts were stopped.
        grace_s: seconds that an attempt may take to end; `PATIENCE_S` later it is killed.
        beat: called in every round of waiting, ten times a second.
        task: task of the attempts; empty: all tasks of the batch, which then no other run may train.

    Raises:
        SplatbatchError: an attempt does not end, even by SIGKILL.
        OutputError: the ledger cannot be written.
    """
    batch = batch_name(output)
    prefix = f"{batch}.{task}" if task else batch
    places = [output.patch(task).path] if task else (output.path / "patches").glob("*")
    attempts = (one for place in places for one in PatchFolder(place).attempts())
    unended = [one for one in attempts if one.start.exists() and not one.has_exited()]

    def find() -> Mapping[Key, Handle]:
        """Return the running attempts; those of another task whose name only begins with `task` are left out."""
        found = executor.find(prefix, unended)
        return {
            key: handle
            for key, handle in found.items()
            if not task or not key.startswith(f"{prefix}.") or key.rpartition(".a")[0] == prefix
        }

    if not (running := find()):
        return
    ledger.write(OrphansStopped(tuple(sorted(running))))
    for end, patience_s in ((executor.cancel, grace_s + PATIENCE_S), (executor.kill, PATIENCE_S)):
        give_up_at = time.monotonic() + patience_s
        while running and time.monotonic() < give_up_at:
            end(running)
            beat()
            time.sleep(ROUND_S)
            running = find()
    if running:
        raise SplatbatchError(
            f"attempts of an earlier run do not end, not even by SIGKILL: {', '.join(sorted(running))}",
            "They wait for a disk, a share or a GPU driver. Run again when that device answers, or after a restart.",
        )


def _handle(pid: int) -> Handle:
    return f"{processes.name_of(pid)}:{processes.boot_id()}"


def _living(handle: Handle) -> int:
    """Return the pid behind a handle if that very process still runs, not another that got its number; else 0."""
    name, _, boot = handle.rpartition(":")
    return processes.living(name) if boot == processes.boot_id() else 0


def _supervised_folder(pid: int) -> AttemptFolder | None:
    argv = processes.kernel_file(f"/proc/{pid}/cmdline").split("\0")
    return AttemptFolder(Path(argv[argv.index(SUPERVISOR) + 1])) if SUPERVISOR in argv[:-1] else None
