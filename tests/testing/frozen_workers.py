"""Two workers of two hosts at one task, each frozen after some file operation of the protocol and thawed later.

The code is the real one; the operations are those of `os`, and a worker that is frozen stands in one of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fake_trainer import splat_of

from splatbatch.files import write_json
from splatbatch.outcome import Splat, Trained
from splatbatch.output import results
from splatbatch.output.attempt_folder import Attempt
from splatbatch.output.claims import Claims
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.attempt import AttemptFacts, Claim, JobSpec, TimeLimits
from splatbatch.output.workers import WorkerFile
from splatbatch.splats import check_splat, write_splat

TASK = "p0"
OPERATIONS = ("link", "mkdir", "rename", "replace", "unlink", "listdir")
"""Of `os`: what the protocol does to files that others see, and what it decides by."""
REAL_LISTDIR = os.listdir
TRIES = 3
ENDLESS = 10_000
PATIENCE_S = 20.0


@dataclass
class Worker:
    """One that claims the task, trains it and has the splat accepted; it stands still after `limit` operations."""

    output: OutputFolder
    name: str
    num_gaussians: int
    limit: int = ENDLESS
    done: int = 0
    accepted: bool | None = None
    """None: it had nothing to accept."""
    error: BaseException | None = None
    names: list[str] = field(default_factory=list)
    lags: bool = False
    """It sees a folder as it was when this worker was made, until it has changed the folder itself (NFS)."""
    _seen: dict[str, list[str]] = field(default_factory=dict)
    _turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _rest: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _thread: threading.Thread | None = None

    def go_on(self, limit: int = ENDLESS) -> None:
        """Run until so many operations are done, or to the end."""
        self.limit = limit
        if self._thread is None:
            self._thread = threading.Thread(target=self._live, daemon=True)
            self._thread.start()
        else:
            self._turn.release()
        if not self._rest.acquire(timeout=PATIENCE_S):
            raise TimeoutError(self.name)

    @property
    def is_over(self) -> bool:
        return self._thread is not None and not self._thread.is_alive()

    def __post_init__(self) -> None:
        folders = [self.output.path, *self.output.path.rglob("*")] if self.lags else ()
        self._seen = {str(path): sorted(one.name for one in path.iterdir()) for path in folders if path.is_dir()}

    def listing(self, folder: str, now: list[str]) -> list[str]:
        """Return what this worker sees of a folder."""
        return self._seen.setdefault(folder, []) if self.lags else now

    def forget(self, paths: Iterable[str]) -> None:
        """See anew the folders of what was changed, or of what could not be made since it is there."""
        for path in paths:
            self._seen[str(Path(path).parent)] = REAL_LISTDIR(Path(path).parent)

    def operation_done(self, name: str) -> None:
        self.done += 1
        self.names.append(name)
        if self.done >= self.limit:
            self._rest.release()
            self._turn.acquire()

    def _live(self) -> None:
        try:
            self.accepted = self.work()
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.error = error
        finally:
            WORKERS.pop(threading.get_ident(), None)
            self._rest.release()

    def work(self) -> bool | None:
        """Do what the scheduler does for a task; the other one counts as gone as soon as it is asked about."""
        WORKERS[threading.get_ident()] = self
        with WorkerFile(self.output, self.name) as presence:
            claims = Claims(self.output, presence, lambda _: True)
            claim = next((one for one in (claims.take(TASK) for _ in range(TRIES)) if isinstance(one, Claim)), None)
            return self._train(claim) if claim else None

    def _train(self, claim: Claim) -> bool | None:
        folder = self.output.patch(TASK)
        if claim.follows:  # it is trained already: what was decided when the claim was made
            return None
        attempt = folder.new_attempt()
        job = JobSpec(limits=TimeLimits(wall_s=60), claim=claim)
        write_json(attempt.job, job.to_record())
        write_splat(attempt.splat, splat_of(self.num_gaussians), 20)
        splat = check_splat(attempt.splat)
        assert isinstance(splat, Splat)
        tried = Attempt(TASK, attempt, job)
        result = results.keep(tried, Trained(splat), AttemptFacts())
        is_ours = results.accept(folder, attempt, result, claim.follows)
        results.forget_superseded(folder, attempt.path.name)
        return is_ours


WORKERS: dict[int, Worker] = {}
"""Who runs in which thread."""


@contextmanager
def frozen_after_operations() -> Iterator[None]:
    """Have every operation of the workers counted, and those stand still that have done enough."""
    real = {name: getattr(os, name) for name in OPERATIONS}

    def counted(name: str) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            worker = WORKERS.get(threading.get_ident())
            try:
                found = real[name](*args, **more)
                return worker.listing(str(args[0]), found) if worker and name == "listdir" else found
            finally:
                if worker and name != "listdir" and worker.lags:
                    worker.forget([path for path in map(str, args) if "/" in path])
                if worker:
                    worker.operation_done(name)

        return call

    for name in OPERATIONS:
        setattr(os, name, counted(name))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)


def num_operations(folder: Path) -> int:
    """Return how many operations one worker alone needs."""
    output = OutputFolder(folder)
    output.create()
    alone = Worker(output, "alone", 5)
    alone.go_on()
    if alone.error:
        raise alone.error
    return alone.done
