"""Liveness of the workers of a batch: each writes heartbeats into its own file, and reads the files of the others.

A worker lives as long as the content of its file changes, measured by the clock of the reader: clocks of two hosts are
never compared. A process that has ended on this host and boot counts as gone at once; a frozen one falls silent.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from splatbatch.errors import OutputError
from splatbatch.files import is_on_local_disk, open_descriptor, open_regular, path_beside, sweep, write_text
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.run import WorkerRecord

BEAT_S = 5.0
SILENCE_S = 180.0
"""Seconds without a heartbeat after which a worker counts as gone; three times as long as NFS may show old content."""
QUIET_S = 30.0
"""Seconds without a heartbeat after which a worker is reported as silent; a busy worker writes six in that time."""
RECORD_BYTES = 1024
LOCAL = "local"
"""Name of the worker that the command `train` is."""


class WorkerFile:
    """The heartbeat file of this worker, as a context manager; when it closes, all claims of the worker are free.

    Raises on entry:
        OutputError: the file cannot be written.
    """

    def __init__(self, output: OutputFolder, name: str = "", terms: str = "") -> None:
        """Choose name and place of the file; `__enter__` writes it.

        Args:
            output: the folder that the worker trains into.
            name: of the worker; empty: a unique name is made.
            terms: hash of settings and version by which it trains: it must be the same for all workers of a batch.
        """
        me, token = WorkerRecord.of_self(), uuid.uuid4().hex
        self.record = replace(
            me,
            worker=name or f"{me.host}-{me.pid}-{token[:6]}",
            token=token,
            beaten_at=time.monotonic(),
            since=time.strftime("%Y-%m-%d %H:%M:%S"),
            terms=terms,
            job=os.environ.get("SPLATBATCH_JOB") or os.environ.get("SLURM_JOB_ID", ""),
        )
        self._shown_at = output.worker(self.record.worker)
        aside = path_beside(self._shown_at.with_name(f"{name}.{self.record.token}"))
        self.path = aside if name == LOCAL else self._shown_at
        """Path of the file; that of `train` has a temporary name until `appear`."""
        self._inode = 0
        self._next_beat = 0.0
        self._held = -1
        """Descriptor of our file, locked as long as we live, or -1; `is_released` tests this lock on a local disk."""

    def __enter__(self) -> WorkerFile:
        try:
            self.path.parent.mkdir(exist_ok=True)
            sweep(self.path.parent, spares_living=True)
            write_text(self.path, self._text())  # a new file, never one in which another has beaten
            self._inode = self.path.stat().st_ino
        except OSError as error:
            raise OutputError(
                f"{self.path}: cannot be written ({error.strerror}); free space or fix its permissions"
            ) from error
        if self.record.worker == LOCAL or is_on_local_disk(self.path.parent):
            with contextlib.suppress(OSError):
                self._held = os.open(self.path, os.O_RDONLY)
                fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._next_beat = time.monotonic() + BEAT_S
        return self

    def appear(self) -> None:
        """Rename the file of `train` to local.json, which other workers read; once `train` has claimed the folder.

        Raises:
            OSError: the file cannot be renamed.
        """
        self.path = self.path.replace(self._shown_at)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.path != self._shown_at:
            self.path.unlink(missing_ok=True)
        self.record = replace(self.record, has_ended=True)
        with contextlib.suppress(OSError):
            self._write()
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def heartbeat(self) -> None:
        """Write a heartbeat if the last one is at least 5 s old; called in every round. A write error is ignored."""
        if time.monotonic() >= self._next_beat:
            with contextlib.suppress(OSError):
                self._write()

    def _write(self) -> None:
        self._next_beat = time.monotonic() + BEAT_S
        self.record = replace(self.record, sequence=self.record.sequence + 1, beaten_at=time.monotonic())
        with open_descriptor(self.path, os.O_WRONLY) as descriptor:
            if os.fstat(descriptor).st_ino == self._inode:  # else another has our name by now
                os.pwrite(descriptor, self._text().encode(), 0)  # in place and of one length: no reader sees it torn

    def _text(self) -> str:
        return json.dumps(self.record.to_record()).ljust(RECORD_BYTES)


@dataclass
class Watcher:
    """Decides whether other workers live, by how long their heartbeat files have not changed.

    A watcher remembers when it first read each content. Only a worker of this host is known to be silent at the first
    read.
    """

    output: OutputFolder
    clock: Callable[[], float] | None = None
    """Returns the time of the reader, in seconds; None: time.monotonic() is used."""
    _seen: dict[str, tuple[WorkerRecord, float]] = field(default_factory=dict)
    """Last content of each worker's file, by token, and the time since which it has not changed."""
    _moved: set[str] = field(default_factory=set)
    """Tokens of the workers whose files were seen to change."""

    def read(self, name: str) -> WorkerRecord | None:
        """Return the record in a worker's file, by the worker's name.

        None if there is no such file, or it cannot be read as a JSON object.

        Raises:
            LaterFormatError: a later version wrote a heartbeat file.
        """
        return WorkerRecord.read(self.output.worker(name))

    def is_dead(self, owner: WorkerRecord) -> bool:
        """Return whether the owner of a claim has exited or is silent for 180 s, so that its tasks may be taken over.

        `train` and `work` ask this of every claim of another worker. Unlike in `is_over`, a frozen process on this host
        counts as dead, too.

        Raises:
            LaterFormatError: a later version wrote a heartbeat file.
        """
        return self.has_exited(owner) or self.silent_s(owner) >= SILENCE_S

    def has_exited(self, owner: WorkerRecord) -> bool:
        """Return whether a worker has certainly ended; silence alone proves nothing here, unlike in `is_dead`.

        Its file says so, a later process has taken its name, or its process on this host and boot is gone.

        Raises:
            LaterFormatError: a later version wrote a heartbeat file.
        """
        now = self.read(owner.worker)
        if now is not None and (now.token != owner.token or now.has_ended):
            return True  # a later process has its name, as each `train` has
        return owner.is_alive_here is False

    def is_over(self, run: WorkerRecord) -> bool:
        """Return whether a `train` no longer holds its output folder, so that the next `train` may claim the folder.

        Stricter than `is_dead`: on this host a frozen process still holds the folder, since it may continue. On another
        host 180 s of silence end its hold; on this one a run of an earlier boot is over.

        Raises:
            LaterFormatError: a later version wrote a heartbeat file.
        """
        alive = run.is_alive_here
        if run.has_ended or alive is not None or not run.is_elsewhere:
            return run.has_ended or not alive
        return self.silent_s(run) >= SILENCE_S

    def silent_s(self, owner: WorkerRecord) -> float:
        """Return for how many seconds the content of a worker's file is known not to have changed.

        For a worker that runs on this host these are the seconds since its last heartbeat. For any other worker they
        count from the moment when this watcher first read the present content.

        Raises:
            LaterFormatError: a later version wrote a heartbeat file.
        """
        now, time_s = self.read(owner.worker), (self.clock or time.monotonic)()
        now = now if now and now.token == owner.token else owner  # a claim is its owner's file by another name
        before, since = self._seen.get(owner.token, (None, time_s))
        if before is not None and now != before:
            self._moved.add(owner.token)
        if now != before:
            since = time_s
        self._seen[owner.token] = (now, since)
        is_our_clock = now.beaten_at is not None and owner.is_alive_here
        return max(time_s - since, time_s - now.beaten_at if is_our_clock and now.beaten_at is not None else 0.0)

    def living(self, but: str = "") -> list[WorkerRecord]:
        """Return the workers, sorted by name and without the one named `but`, that run and are not silent for 180 s.

        For checks whether others train into the folder. Frozen processes are left out; `present` includes them.

        Raises:
            LaterFormatError: a later version wrote a heartbeat file.
        """
        return [one for one in self.present(but) if self.silent_s(one) < SILENCE_S]

    def present(self, but: str = "") -> list[WorkerRecord]:
        """Return the workers that may still write, except the one named `but`, sorted by name.

        These are the `living` workers, and those whose process on this host exists but is frozen. `status` and `cancel`
        list them.

        Raises:
            LaterFormatError: a later version wrote a heartbeat file.
        """
        found = [self.read(name) for name in self.output.workers()]
        return [one for one in found if one and one.worker != but and self.may_still_write(one)]

    def may_still_write(self, worker: WorkerRecord) -> bool:
        """Return whether a worker has not exited, and is either a process of this host or not yet silent for 180 s.

        `cancel` waits until the answer is False. Unlike in `is_dead`, a frozen process on this host may still write.

        Raises:
            LaterFormatError: a later version wrote a heartbeat file.
        """
        return not self.has_exited(worker) and (worker.is_alive_here is True or self.silent_s(worker) < SILENCE_S)

    def lives(self, worker: WorkerRecord) -> bool:
        """Return whether a worker is certainly alive.

        A worker that is not dead by `is_dead` may yet prove to be silent. So a worker whose process runs on this host
        must have written a heartbeat in the last 30 s; of any other, this watcher must have seen the file change.

        Raises:
            LaterFormatError: a later version wrote a heartbeat file.
        """
        if worker.is_alive_here:
            return self.silent_s(worker) < QUIET_S
        return worker.token in self._moved


def is_released(claim: Path) -> bool:
    """Return whether no living worker owns a claim, whatever the claim's content; False if that is uncertain.

    Used for claims that cannot be read. A claim is a hard link to the heartbeat file of its worker, which locks the
    file as long as it lives. On a shared disk locks prove nothing, so that the answer is False.
    """
    if not is_on_local_disk(claim.parent):
        return False
    try:
        with open_regular(claim) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
    except OSError:
        return False


def title(worker: WorkerRecord) -> str:
    """Return the name of a worker for messages: "worker a-17-3f2 on a", "train on a"."""
    name = "train" if worker.worker == LOCAL else f"worker {worker.worker}"
    return f"{name} on {worker.host}"
