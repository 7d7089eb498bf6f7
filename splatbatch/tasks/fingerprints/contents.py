"""Contents of photographs and masks, hashed for accepted results while patches train; so that a copy is no change."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from pathlib import Path

from splatbatch.files import write_json
from splatbatch.identity import Files, file_fact, sha256_of
from splatbatch.store.events import AttemptEnded, Event
from splatbatch.store.records.result import Result
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.fingerprints.inputs import unread

SLICE_S = 0.01
"""Of each round of the batch; a photograph takes about a millisecond."""


class Contents:
    """Fills in what result.json does not know yet of the files its splat was trained from."""

    def __init__(self, batch: Batch) -> None:
        self._output = batch.output
        self._tasks = {task.name: task for task in batch.tasks}
        self._waiting: deque[str] = deque()
        self._unread: list[Path] = []
        self._known: dict[tuple[str, int, int], str] = {}

    def tell(self, event: Event) -> None:
        """Hear an event of the ledger: a patch that has been trained is next."""
        if isinstance(event, AttemptEnded) and event.outcome == "trained":
            self.want(event.patch)

    def want(self, name: str) -> None:
        """Take a patch in."""
        self._waiting.append(name)

    def beat(self) -> None:
        """Hash for a moment; called many times a second."""
        end = time.monotonic() + SLICE_S
        while self._waiting and time.monotonic() < end:
            self._go_on()

    def finish(self) -> None:
        """Hash what is left."""
        while self._waiting:
            self._go_on()

    def _go_on(self) -> None:
        """Read one more file of the first patch that waits; once there is none, write down what is known."""
        task = self._tasks[self._waiting[0]]
        if not self._unread:
            files = (self._output.patch(task.name).read_result() or Result()).held_against.files
            self._unread = [path for _, path in unread(files, task.patch, task.recipe) if _key(path) not in self._known]
        if self._unread:
            path = self._unread.pop()
            key = _key(path)
            digest = sha256_of(path)
            self._known[key] = digest if _key(path) == key else ""  # it changed while it was read
        if not self._unread:
            self._write(self._waiting.popleft())

    def _write(self, name: str) -> None:
        task, folder = self._tasks[name], self._output.patch(name)
        result = folder.read_result() or Result()
        files = result.held_against.files
        found: Files = {}
        for key, place in unread(files, task.patch, task.recipe):
            fact = files[key]
            if digest := self._known.get((str(place), fact.num_bytes, fact.mtime_ns), ""):
                found[key] = fact._replace(sha256=digest)
        if found:
            with contextlib.suppress(OSError):  # a full disk, or a folder that cannot be written: the next run tries
                write_json(folder.result, result.with_files({**files, **found}).to_record())


def _key(path: Path) -> tuple[str, int, int]:
    fact = file_fact(path)
    return (str(path), fact.num_bytes, fact.mtime_ns)
