"""The workers of a batch: each shows by a file of its own that it lives, and learns of the others by theirs alone.

A worker lives as long as the content of its file moves, by the clock of the reader: clocks of two hosts are never
compared. On one host and boot a process that has ended is gone at once; one that is frozen is silent like any other.
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
"""So long unchanged, its writer is dead, frozen or cut off; three times what NFS may keep an old content for."""
QUIET_S = 30.0
"""So long unchanged, people are told: a busy worker moves six times in that time."""
RECORD_BYTES = 1024
LOCAL = "local"
"""The worker that `train` is."""


class WorkerFile:
    """The file by which a worker shows that it lives; a context manager, after which all that it claimed is free."""

    def __init__(self, output: OutputFolder, name: str = "", terms: str = "") -> None:
        """Prepare it.

        Args:
            output: the folder that the worker trains into.
            name: of the worker; else a unique one.
            terms: a hash of what the worker trains by: all workers of a batch must train by the same.
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
        """Of `train` it lies aside until it has claimed the folder, and may take the name."""
        self._inode = 0
        self._next_beat = 0.0
        self._held = -1
        """Our file, locked as long as we live: that tells on a local disk, also if what we write there is torn."""

    def __enter__(self) -> WorkerFile:
        try:
            self.path.parent.mkdir(exist_ok=True)
            sweep(self.path.parent, spares_living=True)
            write_text(self.path, self._text())  # a new file, never one in which another has beaten
            self._inode = self.path.stat().st_ino
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written ({error.strerror})") from error
        if self.record.worker == LOCAL or is_on_local_disk(self.path.parent):
            with contextlib.suppress(OSError):
                self._held = os.open(self.path, os.O_RDONLY)
                fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._next_beat = time.monotonic() + BEAT_S
        return self

    def appear(self) -> None:
        """Take the name that others know `train` by."""
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
        """Show that we live, at most every few seconds; that it cannot be written must not end a batch."""
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
    """Says who of the others lives; each look counts for how long a content has not changed."""

    output: OutputFolder
    clock: Callable[[], float] | None = None
    """None: time.monotonic()."""
    _seen: dict[str, tuple[WorkerRecord, float]] = field(default_factory=dict)
    """Content, and since when it has not changed."""
    _moved: set[str] = field(default_factory=set)
    """Tokens of those that were seen to move."""

    def read(self, name: str) -> WorkerRecord | None:
        """Return what a worker says of itself; None if there is no such file, or it cannot be read."""
        return WorkerRecord.read(self.output.worker(name))

    def is_dead(self, owner: WorkerRecord) -> bool:
        """Return whether the worker that a claim names has ended, has died, or has been silent for so long."""
        return self.has_exited(owner) or self.silent_s(owner) >= SILENCE_S

    def has_exited(self, owner: WorkerRecord) -> bool:
        """Return whether a worker has let go of all that it had, or its process is known to be no more."""
        now = self.read(owner.worker)
        if now is not None and (now.token != owner.token or now.has_ended):
            return True  # another has its name by now, as each `train` has
        return owner.is_alive_here is False

    def is_over(self, run: WorkerRecord) -> bool:
        """Return whether a `train` holds its folder no more: one that is frozen on this host may thaw."""
        alive = run.is_alive_here
        if run.has_ended or alive is not None or not run.is_elsewhere:
            return run.has_ended or not alive
        return self.silent_s(run) >= SILENCE_S

    def silent_s(self, owner: WorkerRecord) -> float:
        """Return for how long the content of a worker's file is known not to have changed."""
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
        """Return the workers that are not known to be gone, except one."""
        return [one for one in self.present(but) if self.silent_s(one) < SILENCE_S]

    def present(self, but: str = "") -> list[WorkerRecord]:
        """Return the living, and those whose processes are here although they count as gone: they may thaw."""
        found = [self.read(name) for name in self.output.workers()]
        return [one for one in found if one and one.worker != but and self.may_still_write(one)]

    def may_still_write(self, worker: WorkerRecord) -> bool:
        """Return whether a worker may still do something: one that is frozen on this host may thaw."""
        return not self.has_exited(worker) and (worker.is_alive_here is True or self.silent_s(worker) < SILENCE_S)

    def lives(self, worker: WorkerRecord) -> bool:
        """Return whether a worker, seen just now not to be gone, is known to live: it moves."""
        if worker.is_alive_here:
            return self.silent_s(worker) < QUIET_S
        return worker.token in self._moved


def is_released(claim: Path) -> bool:
    """Return whether no living worker can have made a claim, whatever stands in it; False if uncertain.

    A claim is the file in which its worker beats, by another name, and is locked as long as that worker lives.
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
    """Return how people are told of a worker: "worker a-17-3f2 on a", "train on a"."""
    name = "train" if worker.worker == LOCAL else f"worker {worker.worker}"
    return f"{name} on {worker.host}"
