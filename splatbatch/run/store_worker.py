"""A worker of a store: fetches a bundle, trains it by the loop of any night in a folder of its own, sends what came."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from splatbatch import __version__
from splatbatch.caches import own_scratch
from splatbatch.errors import ConfigError, ExecutorError, OutputError, SplatbatchError, StoreError, TrainerError
from splatbatch.failures.causes import cause_of, title
from splatbatch.files import MOST_FILES, TooManyFiles, find_files
from splatbatch.hashing import sha256_of
from splatbatch.isolated import Returned, StopRequested, WaitHooks
from splatbatch.machine.slots import given_cards
from splatbatch.monitor.messages import log_line
from splatbatch.outcome import Failed, Outcome, Trained
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import PatchFolder
from splatbatch.output.ledger import Ledger
from splatbatch.processes import start_ticks
from splatbatch.run.cluster_workers import AGAIN
from splatbatch.run.interruption import Interruption
from splatbatch.scheduler import session
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.tasks.batch import Batch
from splatbatch.text import one_line, seconds_of
from splatbatch.transfer import blobs, exchange
from splatbatch.transfer.blobs import FileRef, NewFile
from splatbatch.transfer.bundle import Bundle, open_bundle, why_left
from splatbatch.transfer.courier import REST_S, TransferJob, ask, pause, run, store_at
from splatbatch.transfer.exchange import (
    BUNDLES,
    CLAIMS,
    HERE,
    LEFT,
    RESULTS,
    StoreListing,
    StoreWatch,
    TransferredAttempt,
    TransferResult,
    WorkerStatus,
    is_following,
)

POLL_S = 2.0
"""Between two looks at a store that has nothing for us."""
SEND_S = 100.0
"""So long what was trained may take to be sent once somebody wants us to end: what a spot machine leaves."""
CLAIM_S = 10.0
"""So long a claim that is under way is awaited then: only its answer says whether it is ours, and must be let go."""
MARGIN_S = 20.0
"""Of our time, beside the grace, for sending."""
MOST_UNFIT = 2
"""So many bundles in a row that this machine cannot train: it takes no more."""


@dataclass(frozen=True)
class WorkerLifetime:
    """How long a worker stays."""

    for_s: float | None = None
    """Seconds; None: as long as it takes."""
    idle_s: float = 0.0
    """So long it waits for bundles where there are none to be trained."""


@dataclass
class StoreWorker:
    """Trains what a store holds, until nothing is due, its time is up, or somebody says stop."""

    url: str
    stay: WorkerLifetime
    interruption: Interruption
    scratch: Path
    only_builtin: bool = False
    """It leaves bundles that bring commands to others."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    watch: StoreWatch = field(default_factory=StoreWatch)
    sending: list[tuple[TransferJob[Any], Path]] = field(default_factory=list)
    """What came of bundles, on its way; each with the folder that goes once it is there."""
    failed: list[str] = field(default_factory=list)
    trained: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}-{self.token[:6]}"
        self.sign = WorkerStatus(
            self.name, self.token, socket.gethostname(), __version__, time.strftime("%Y-%m-%d %H:%M:%S")
        )
        self.patience = WaitHooks(self._beat, self._stop, log_line)
        self.for_claims = WaitHooks(self._beat, self._stop_claiming, log_line)
        self._told_at: float | None = None
        self._end = time.monotonic() + self.stay.for_s if self.stay.for_s is not None else None
        self._beating = TransferJob(partial(exchange.heartbeat, self.url), [], self.patience)
        self._ahead: TransferJob[Any] = TransferJob(partial(exchange.heartbeat, self.url), [], self.patience)
        self._next_beat, self._closed = 0.0, ""
        self._patch: PatchFolder | None = None
        self._not_before: dict[str, float] = {}
        """Bundles that we leave to others for now; for good where this machine cannot train them."""
        self._took: dict[int, float] = {}
        """Seconds that trainings of so many steps took here."""

    def work(self) -> int:
        """Return the exit code.

        Raises:
            SplatbatchError: the store refuses us, or nothing of it can be trained here.
        """
        try:
            try:
                code = self._train_all()
            except StopRequested:
                code = AGAIN
            self._finish()
            return code
        finally:
            self._go()

    def _train_all(self) -> int:
        """Train until nothing is due, or our time does not hold it; return the exit code."""
        if not ask(partial(exchange.makes_once, self.url), self.token, self.patience):
            log_line("this store cannot lock tasks: some tasks may be trained twice, but none is accepted twice")
        idle_since, unfit, never = time.monotonic(), 0, float("inf")
        while True:
            seen = exchange.listing(self.url, self.patience)
            bundle, name, claim = self._claimed(seen)
            if bundle is None:  # those that another worker holds may come back
                is_due = any(one.is_open and self._not_before.get(name) != never for name, one in seen.bundles.items())
                idle_s = self.stay.idle_s
                if not is_due if not idle_s else time.monotonic() - idle_since > idle_s:
                    return SplatbatchError.exit_code if self.failed else 0
                pause(POLL_S, self.patience)
                continue
            if self._stop() or not self._holds(bundle):
                ask(partial(blobs.put, self.url), [_left(claim)], self.for_claims)
                return AGAIN
            error = self._train(bundle, name, claim, seen)
            unfit = unfit + 1 if error else 0
            if error and unfit >= MOST_UNFIT:
                raise error
            idle_since = time.monotonic()

    def _claimed(self, seen: StoreListing) -> tuple[Bundle | None, str, str]:
        """Return a bundle that is ours, its name and that of its claim; None where there is none."""
        now = time.monotonic()
        unfit = frozenset(name for name, end in self._not_before.items() if now < end)
        for name in self.watch.due(seen, self.name, unfit):
            generation = seen.bundles[name].generation + 1
            asked = (name, generation, self.name, self.token, self.only_builtin)
            try:
                record = ask(partial(exchange.claim, self.url), asked, self.for_claims)
            except StoreError as error:
                log_line(error.message)
                self._not_before[name] = now + 600
                continue
            bundle = Bundle.from_record(record)
            if record and (why := why_left(bundle, only_builtin=self.only_builtin)):
                log_line(why)
                self._not_before[name] = float("inf")
            elif record:
                return bundle, name, f"{name}.{generation}"
        return None, "", ""

    def _holds(self, bundle: Bundle) -> bool:
        """Return whether our time holds a training; one that nobody can tell of is begun."""
        expected_s = self._took.get(bundle.max_steps, 0.0)
        grace_s = float(seconds_of(str(bundle.settings.get("limits", {}).get("grace_s", 10))) or 10)
        return self._end is None or self._end - time.monotonic() > grace_s + MARGIN_S + expected_s

    def _train(self, bundle: Bundle, name: str, claim: str, seen: StoreListing) -> SplatbatchError | None:
        """Train a bundle, and have what came of it sent; return why this machine cannot, if so."""
        folder, began = self.scratch / name, time.monotonic()
        self.sign, self._closed, self._next_beat = replace(self.sign, bundle=name, task=bundle.task), "", 0.0
        log_line(f"{bundle.task}: fetched for training")
        returned = TransferResult(name, bundle.task, self.name, socket.gethostname(), __version__, "stopped")
        before, error = set[int](), None
        try:
            if damaged := self._fetched(bundle, folder):
                self._not_before[name] = time.monotonic() + 30.0
                returned = replace(returned, outcome="damaged", why=damaged)
                return None
            batch = _on_our_cards(open_bundle(bundle, folder / "scene", folder / "output"))
            before = self._resumed(bundle, name, seen, batch)
            self._patch = batch.output.patch(bundle.task)
            self._fetch_next()
            returned = self._judged(returned, self._run(batch, is_retry=bundle.is_retry).get(bundle.task))
            self._took[bundle.max_steps] = time.monotonic() - began
        except StopRequested:
            raise
        except (ConfigError, TrainerError, ExecutorError, OutputError, StoreError) as found:
            error = found
            log_line(f"{bundle.task}: cannot be trained here: {found.message}")
            returned = replace(returned, outcome="unfit", why=one_line(found.message))
            self._not_before[name] = float("inf")
        finally:
            self._patch = None
            self.sign = replace(self.sign, bundle="", task="", phase="", step=None)
            attempts = tuple(_brought(folder / "output", bundle.task, before))
            files = _upload(replace(returned, attempts=attempts), folder, claim)
            self.sending.append((TransferJob(partial(blobs.put, self.url), files, self.patience), folder))
        return error

    def _judged(self, returned: TransferResult, outcome: Outcome | None) -> TransferResult:
        """Return what came of a bundle, by what came of its last attempt."""
        match outcome:
            case Trained():
                self.trained.append(returned.task)
                return replace(returned, outcome="trained")
            case Failed(diagnosis=why):
                self.failed.append(returned.task)
                words = one_line(f"{title(why.cause)}: {why.advice}")
                if cause_of(why.cause).may_do_elsewhere:  # waited for in vain, here
                    self._not_before[returned.bundle] = float("inf")
                    log_line(f"{returned.task}: left to other machines: {words}")
                    return replace(returned, outcome="unfit", why=words)
                return replace(returned, outcome="failed", why=words)
        return returned

    def _run(self, batch: Batch, *, is_retry: bool) -> Mapping[str, Outcome]:
        """Train by the loop of any night."""
        batch.output.create()
        batch.output.ledger.parent.mkdir(exist_ok=True)
        ledger = Ledger(batch.output.ledger, lambda event: None)
        return session.run(batch, ledger, RunHooks(self._stop_of_bundle, self._beat), is_retry=is_retry)

    def _fetch(self, pieces: Sequence[FileRef], task: str) -> dict[FileRef, str]:
        return blobs.fetch_all(self.url, self.scratch / blobs.BLOBS, pieces, task, self.patience)

    def _fetched(self, bundle: Bundle, folder: Path) -> str:
        """Lay the files of a bundle into a folder; return what of it is damaged in the store."""
        self._ahead.end()
        faults = self._fetch(bundle.pieces, bundle.task)
        for piece in faults:
            why = f"{piece.name} is damaged or missing in the store"
            log_line(f"{bundle.task}: {why}; home uploads it again")
            damaged = [blobs.blob(one.sha256) for one, fault in faults.items() if fault == "damaged"]
            run(partial(_delete, self.url), damaged, self.patience)
            return why
        blobs.lay(bundle.pieces, self.scratch / blobs.BLOBS, folder / "scene")
        return ""

    def _fetch_next(self) -> None:
        """Fetch what is likely to be trained next while a training runs; claim nothing."""
        others = frozenset({self.sign.bundle, *self._not_before})
        call = partial(_fetch_ahead, self.url, self.watch, self.scratch / blobs.BLOBS)
        self._ahead = TransferJob(call, [(self.name, others, self.only_builtin)], self.patience)

    def _resumed(self, bundle: Bundle, name: str, seen: StoreListing, batch: Batch) -> set[int]:
        """Lay beside ours the attempt that another worker had to stop, to go on from there; return its number."""
        stopped = [one for one in seen.state(name).results if one.split(".")[1] == "stopped"]
        for result in stopped:
            told = exchange.result_at(self.url, f"{RESULTS}/{result}", self.patience)
            for one in told.attempts:
                wanted = [piece for piece in one.pieces if piece.name in ("checkpoint.pt", "settings.json")]
                if len(wanted) == 2 and not self._fetch(wanted, bundle.task):
                    folder = AttemptFolder(batch.output.patch(bundle.task).path / _attempt(one.number))
                    blobs.lay(wanted, self.scratch / blobs.BLOBS, folder.path)
                    folder.cancel.touch()  # it was another's, and has ended
                    log_line(f"{bundle.task}: resumes from the checkpoint of worker {told.worker}")
                    return {one.number}
        return set()

    def _stop(self) -> str:
        is_up = self._end is not None and time.monotonic() > self._end - MARGIN_S
        return self.interruption.reason() or ("the time of this worker is up" if is_up else "")

    def _stop_claiming(self) -> str:
        """Return why not to wait any longer for a claim, or until one is let go."""
        why, now = self._stop(), time.monotonic()
        if why and self._told_at is None:
            self._told_at = now
        return why if self._told_at is not None and now - self._told_at > CLAIM_S else ""

    def _stop_of_bundle(self) -> str:
        return self._stop() or self._closed

    def _beat(self) -> None:
        """Show that we live, and go on with all that is under way; called many times a second."""
        for upload, folder in tuple(self.sending):
            for _, answer in upload.look():
                answer.result("")  # it is raised that the store takes it not
            if upload.is_over:
                self.sending.remove((upload, folder))
                shutil.rmtree(folder, ignore_errors=True)
        self._ahead.look()
        if self._beating.is_over and time.monotonic() >= self._next_beat:
            self.sign = replace(self.sign, sequence=self.sign.sequence + 1)
            for attempt in self._patch.attempts()[-1:] if self._patch else ():
                progress = attempt.last_progress()
                self.sign = replace(self.sign, phase=progress.phase, step=progress.step)
            self._beating = TransferJob(partial(exchange.heartbeat, self.url), [self.sign], self.patience)
            self._next_beat = time.monotonic() + exchange.BEAT_S
        for sign, answer in self._beating.look():
            if sign.bundle and sign.bundle == self.sign.bundle and answer == Returned(sign.bundle):
                self._closed = "the task was closed in the store"

    def _finish(self) -> None:
        """Send what is under way, for as long as there may be time for it."""
        self._ahead.end()
        end = float("inf")
        while self.sending and time.monotonic() < end:
            if end == float("inf") and self._stop():
                end = time.monotonic() + SEND_S
            self._beat()
            time.sleep(REST_S)

    def _go(self) -> None:
        """Say that we are gone, and leave nothing here."""
        for job in (self._ahead, self._beating, *(upload for upload, _ in self.sending)):
            job.end()
        sign = replace(self.sign, sequence=self.sign.sequence + 1, has_ended=True)
        last = TransferJob(partial(exchange.heartbeat, self.url), [sign], self.patience)
        end = time.monotonic() + 10.0
        while not last.is_over and time.monotonic() < end:
            last.look()
            time.sleep(REST_S)
        last.end()
        shutil.rmtree(self.scratch, ignore_errors=True)


def _fetch_ahead(url: str, watch: StoreWatch, folder: Path, asked: tuple[str, frozenset[str], bool]) -> None:
    """Fetch the blobs of the bundle that a worker would claim now. A courier does this.

    Args:
        url: of the store.
        watch: knows which owners have not moved.
        folder: of blobs.
        asked: the worker, bundles that are none for it, and whether it runs no commands.
    """
    seen = StoreListing.from_record(exchange.look(url))
    worker, others, only_builtin = asked
    for name in watch.due(seen, worker, others)[:1]:
        bundle = Bundle.from_record(exchange.read_sealed(url, f"{BUNDLES}/{name}"))
        if not why_left(bundle, only_builtin=only_builtin):
            for group in blobs.groups(blobs.distinct(bundle.pieces)):
                blobs.fetch(url, str(folder), group)


def _upload(returned: TransferResult, folder: Path, claim: str) -> Iterator[list[NewFile]]:
    """Yield what came of a bundle, as it is sent: splats first, then what says so, then pictures."""
    first, place = "", folder / "output/patches" / returned.task
    has_more = any(is_following(piece) for one in returned.attempts for piece in one.pieces)
    for is_later in (False, True) if has_more else (False,):
        attempts = []
        for one in returned.attempts:
            pieces = tuple(piece for piece in one.pieces if is_following(piece) == is_later)
            attempts.append(replace(one, pieces=pieces))
            where = place / _attempt(one.number)
            files: list[NewFile] = [(blobs.blob(piece.sha256), where / piece.name) for piece in pieces]
            yield from blobs.groups(files)
        result = exchange.result_file(
            replace(returned, attempts=tuple(attempts), has_more=has_more and not is_later), first
        )
        yield [result]
        first = result[0].rpartition("/")[2]
    if returned.outcome not in exchange.FINAL and claim:
        yield [_left(claim)]


def _left(claim: str) -> NewFile:
    """Return what says that the owner of a bundle has let it go."""
    return f"{CLAIMS}/{claim}{LEFT}", b""


def work_for(url: str, stay: WorkerLifetime, scratch: Path | None = None, *, only_builtin: bool = False) -> int:
    """Train what a store holds; return the exit code: 0 nothing is due, 1 something failed here, 75 start it again.

    Args:
        url: of the store.
        stay: how long.
        scratch: where bundles are trained; None: below the folder for temporary files.
        only_builtin: bundles that bring commands are left to others.

    Raises:
        SplatbatchError: the store refuses us, or nothing of it can be trained here.
    """
    try:
        root = scratch.absolute() if scratch else own_scratch()
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        _sweep(root)
    except OSError as error:
        raise OutputError(f"--scratch {scratch or error.filename}: cannot be written ({error.strerror})") from error
    with Interruption() as interruption:
        mine = root / f"worker-{os.getpid()}-{start_ticks(os.getpid())}-{socket.gethostname()}"
        worker = StoreWorker(url, stay, interruption, mine, only_builtin)
        mine.mkdir()
        code = worker.work()
    log_line(f"{len(worker.trained)} trained here{f', {len(worker.failed)} failed' if worker.failed else ''}")
    return code


def _sweep(root: Path) -> None:
    """Remove what workers of this host that were killed have left."""
    for one in root.glob(f"worker-*-{socket.gethostname()}"):
        with contextlib.suppress(ValueError, IndexError):
            pid, ticks = (int(part) for part in one.name.split("-")[1:3])
            if start_ticks(pid) != ticks:
                shutil.rmtree(one, ignore_errors=True)


def _on_our_cards(batch: Batch) -> Batch:
    """Return a batch on the GPUs that were given to us."""
    given = given_cards(os.environ.get("CUDA_VISIBLE_DEVICES"))
    if given is None:
        return batch
    executor = batch.config.executor.model_copy(update={"gpus": given})
    return replace(batch, config=batch.config.model_copy(update={"executor": executor}))


def _attempt(number: int) -> str:
    return f"attempt-{number:02d}"


def _delete(url: str, name: str) -> None:
    store_at(url).delete(name)


def _brought(output: Path, task: str, before: set[int]) -> Iterator[TransferredAttempt]:
    """Yield the attempts that were made here, with all their files but what stays; no values of environments.

    A link goes only where it leads to the splat, or to what must lie beside it: as a copy, once that was found good.
    """
    for folder in PatchFolder(output / "patches" / task).attempts():
        if folder.number in before or not folder.start.exists():
            continue
        folder.forget_environments()
        files = {one for one in folder.path.rglob("*") if one.is_file() and not one.is_symlink()}
        if (watch := folder.read_watch()) and folder.result.exists():
            with contextlib.suppress(TooManyFiles):
                files |= {*find_files(folder.output, watch.globs(), MOST_FILES)}
        pieces = []
        for file in sorted(files):
            name, stat = file.relative_to(folder.path).as_posix(), file.stat()
            sha256 = "" if name.partition("/")[0] in HERE else sha256_of(file)
            if sha256:
                pieces.append(FileRef(name, sha256, stat.st_size, stat.st_mtime_ns))
        yield TransferredAttempt(folder.number, tuple(pieces))
