"""Worker of a store: fetches a bundle, trains it in a folder of its own, and sends the result.

A courier is a helper process that makes the calls to a store, so that its caller never hangs; see `transfer.courier`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from splatbatch import __version__
from splatbatch.caches import own_scratch
from splatbatch.errors import ConfigError, ExecutorError, OutputError, SplatbatchError, StoreError, TrainerError
from splatbatch.failures.causes import cause_of, title
from splatbatch.files import MOST_FILES, TooManyFiles, find_files
from splatbatch.hashing import sha256_of
from splatbatch.isolated import ExpectedError, Returned, StopRequested, WaitHooks
from splatbatch.monitor.messages import log_line
from splatbatch.outcome import Failed, Trained
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import PatchFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.attempt import ProgressLine
from splatbatch.processes import living, name_of
from splatbatch.run.cluster_workers import AGAIN
from splatbatch.run.interruption import Interruption
from splatbatch.scheduler import session
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.work.time_left import MARGIN_S, end_of
from splatbatch.text import one_line
from splatbatch.transfer import blobs, courier, exchange
from splatbatch.transfer.blobs import FileRef
from splatbatch.transfer.bundle import Bundle, open_bundle, why_left
from splatbatch.transfer.exchange import (
    BUNDLES,
    HERE,
    RESULTS,
    BundleState,
    StoreListing,
    StoreWatch,
    TransferredAttempt,
    TransferResult,
    WorkerStatus,
)
from splatbatch.transfer.schemes import absolute_url
from splatbatch.transfer.store import Store

POLL_S = 2.0
"""Pause in seconds between two listings of a store that has no bundle to train."""
SEND_S = 100.0
"""Longest time in seconds to send results after a request to stop: about what a spot machine grants."""
GOODBYE_S = 10.0
"""Longest time in seconds to write the last status of the worker."""
MOST_UNFIT = 2
"""Number of bundles in a row that this machine cannot train, after which the worker ends."""
NEVER = float("inf")


@dataclass
class StoreWorker:
    """Worker of a store: trains its bundles until none is due, its time is up, or it is asked to stop."""

    url: str
    """Absolute URL of the store."""
    interruption: Interruption
    """The signals that may end the worker."""
    scratch: Path
    """Folder in which bundles are trained; `work` removes it."""
    for_s: float | None = None
    """Time limit of this worker in seconds, beside that of its Slurm job; None: no limit."""
    idle_s: float = 0.0
    """Seconds that the worker waits for new bundles when there are none to train; 0: it waits only while other workers
    train bundles that may become free again."""
    only_builtin: bool = False
    """Whether the worker leaves bundles with commands of external trainers to other workers."""
    ended: Counter[str] = field(default_factory=Counter)
    """Number of bundles by their outcome here; "failed" counts those that are left to other machines, too."""

    def __post_init__(self) -> None:
        host, token, since = socket.gethostname(), uuid.uuid4().hex, time.strftime("%Y-%m-%d %H:%M:%S")
        self.sign = WorkerStatus(f"{host}-{os.getpid()}-{token[:6]}", token, host, __version__, since)
        hooks = WaitHooks(self._beat, self._stop, log_line)
        self._asks, self._beats, self._fetches, self._sends = (courier.Courier(self.url, hooks) for _ in range(4))
        self._watch, self._hooks, self._cache = StoreWatch(), hooks, self.scratch / blobs.BLOBS
        self._end = end_of(self.for_s)
        self._next_beat, self._closed = 0.0, ""
        self._refusal: SplatbatchError | OSError | None = None
        """Error with which the store refused a result; None: there is none."""
        self._not_before: dict[str, float] = {}
        """Time until which a bundle is left to other workers, by time.monotonic(); `NEVER`: this machine cannot train
        it."""
        self._took_s = 0.0
        """Seconds that the latest training here took: no bundle is begun in less time."""

    def work(self) -> int:
        """Train bundles and send their results; return the exit code.

        0: no bundle is due; 1: a task failed here; `AGAIN`, 75: a stop was requested, or the time was too short. At
        the end, also after an error, the worker's claims are released and its scratch folder is removed.

        The store is waited for without limit; after a request to stop, `SEND_S` for the results.

        Raises:
            SplatbatchError, OSError: the store refuses access or a result, or this machine cannot train its bundles.
        """
        code = AGAIN
        try:
            with contextlib.suppress(StopRequested):
                code = self._train_all()
                courier.pause(NEVER, self._hooks, self._sends)
            self._fetches.end()
            courier.pause(SEND_S, WaitHooks(self._beat), self._sends)  # after a request to stop
            return code
        finally:
            self._go()

    def _train_all(self) -> int:
        """Train until no bundle is due, or the next one does not fit the time left; return the exit code."""
        self._asks.ask(exchange.heartbeat, self.sign)
        idle_since, unfit = time.monotonic(), 0
        while True:
            seen = exchange.listing(self._asks)
            # bundles of other workers may become free again
            is_due = any(one.is_open and self._not_before.get(name) != NEVER for name, one in seen.bundles.items())
            if is_due and self._end - time.monotonic() < MARGIN_S + self._took_s:
                return AGAIN  # before a claim, since a claim without a result counts as made in vain
            if claimed := self._claim(seen):
                error = self._train(*claimed, seen)
                unfit = unfit + 1 if error else 0
                if error and unfit >= MOST_UNFIT:
                    raise error
                idle_since = time.monotonic()
                continue
            if not is_due if not self.idle_s else time.monotonic() - idle_since > self.idle_s:
                return SplatbatchError.exit_code if self.ended["failed"] else 0
            courier.pause(POLL_S, self._hooks)

    def _claim(self, seen: StoreListing) -> tuple[Bundle, str] | None:
        """Claim a bundle that is due; return it with its name; None if there is none."""
        unfit = frozenset(name for name, end in self._not_before.items() if time.monotonic() < end)
        for name in self._watch.due(seen, self.sign.worker, unfit):
            bundle = exchange.bundles_at(self._asks, [name])[name]
            altered = f"bundle {name}, a packed task, was altered in the store and is not trained"
            if why := why_left(bundle, only_builtin=self.only_builtin) if bundle.home else altered:
                log_line(why)
                self._not_before[name] = NEVER
            elif self._asks.ask(exchange.claim, name, seen.bundles[name].generation + 1, self.sign):
                return bundle, name
        return None

    def _train(self, bundle: Bundle, name: str, seen: StoreListing) -> SplatbatchError | None:
        """Fetch and train a claimed bundle, and begin to send its result.

        Returned is the error if this machine cannot train it, else None.
        """
        folder, began, error = self.scratch / name, time.monotonic(), None
        self.sign, self._next_beat = replace(self.sign, bundle=name, task=bundle.task), 0.0
        log_line(f"{bundle.task}: claimed, fetching its files")
        result = TransferResult(name, bundle.task, self.sign.worker, __version__, "stopped")
        try:
            self._fetches.end()
            for piece in blobs.fetch_all(self._asks, self._cache, bundle.pieces):
                result = replace(result, outcome="damaged", why=f"{piece.name} is damaged or missing in the store")
                log_line(f"{bundle.task}: {result.why}; waiting until the machine that packed it uploads it again")
                self._not_before[name] = time.monotonic() + 30.0
                return None
            blobs.lay(bundle.pieces, self._cache, folder / "scene")
            batch = open_bundle(bundle, folder / "scene", folder / "output")
            self._resume(bundle, seen.state(name), folder)
            for following in self._watch.due(seen, self.sign.worker, frozenset({name, *self._not_before}))[:1]:
                self._fetches.begin(_fetch_ahead, following, self._cache, self.only_builtin)
            batch.output.create()
            ledger = Ledger(batch.output.ledger)
            hooks = RunHooks(self._beat, self._stop_of_bundle, ledger.tell_wait)
            match session.run(batch, ledger, hooks, is_retry=bundle.is_retry).get(bundle.task):
                case Trained():
                    result = replace(result, outcome="trained")
                case Failed(diagnosis=why):
                    outcome = "unfit" if cause_of(why.cause).may_do_elsewhere else "failed"
                    result = replace(result, outcome=outcome, why=one_line(f"{title(why.cause)}: {why.advice}"))
            self._took_s = time.monotonic() - began
        except (ConfigError, TrainerError, ExecutorError, OutputError, StoreError) as found:
            error, result = found, replace(result, outcome="unfit", why=one_line(found.message))
        finally:
            if result.outcome == "unfit":  # another machine may have what is missing here
                self._not_before[name] = NEVER
                log_line(f"{bundle.task}: left to other machines: {result.why}")
            self.ended["failed" if result.outcome == "unfit" else result.outcome] += 1
            self.sign = replace(self.sign, bundle="", task="")
            self._sends.begin(_send, result, folder, f"{name}.{seen.bundles[name].generation + 1}")
        return error

    def _resume(self, bundle: Bundle, state: BundleState, folder: Path) -> None:
        """Fetch the checkpoint of an attempt that another worker had to stop, so that the training resumes from it.

        That attempt is not sent again. Without a whole checkpoint the training begins anew.
        """
        for name in (name for name, outcome in state.results.items() if outcome == "stopped"):
            told = exchange.result_at(self._asks, name)
            for one in told.attempts:
                wanted = [piece for piece in one.pieces if piece.name in ("checkpoint.pt", "settings.json")]
                if len(wanted) == 2 and not blobs.fetch_all(self._asks, self._cache, wanted):
                    attempt = _patch_in(folder, bundle.task).attempt(one.number)
                    blobs.lay(wanted, self._cache, attempt.path)
                    attempt.cancel.touch()  # it has ended, on another machine
                    log_line(f"{bundle.task}: resuming from the checkpoint of worker {told.worker}")
                    return

    def _stop(self) -> str:
        over = "the time of this worker is up" if time.monotonic() > self._end - MARGIN_S else ""
        return self.interruption.reason() or over

    def _stop_of_bundle(self) -> str:
        return self._stop() or ("the task was closed in the store" if self._closed == self.sign.bundle != "" else "")

    def _beat(self) -> None:
        """Write the heartbeat every `BEAT_S`, and advance all transfers; called many times a second.

        Raises:
            SplatbatchError, OSError: the store has refused a result.
        """
        for (_, (_, folder, *_)), answer in self._sends.look():
            if isinstance(answer, ExpectedError):
                self._refusal = answer.error
            else:
                shutil.rmtree(folder, ignore_errors=True)
        if self._refusal:  # raised at every call, as the result is not sent
            raise self._refusal
        self._fetches.look()
        for _, answer in self._beats.look():
            self._closed = answer.value if isinstance(answer, Returned) else ""
        if self._beats.is_over and time.monotonic() >= self._next_beat:
            attempts = _patch_in(self.scratch / self.sign.bundle, self.sign.task).attempts()
            latest = attempts[-1].last_progress() if attempts else ProgressLine()
            self.sign = replace(self.sign, sequence=self.sign.sequence + 1, phase=latest.phase, step=latest.step)
            self._beats.begin(exchange.heartbeat, self.sign)
            self._next_beat = time.monotonic() + exchange.BEAT_S

    def _go(self) -> None:
        """Write the last status, which lets all claims go, within `GOODBYE_S`; then remove the scratch folder."""
        self._beats.end()
        self._beats.begin(exchange.heartbeat, replace(self.sign, sequence=self.sign.sequence + 1, has_ended=True))
        end = time.monotonic() + GOODBYE_S
        while time.monotonic() < end and not self._beats.look():
            time.sleep(courier.REST_S)
        for one in (self._asks, self._beats, self._fetches, self._sends):
            one.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


def _fetch_ahead(store: Store, name: str, folder: Path, only_builtin: bool) -> None:
    """Fetch the blobs of the bundle likely to be trained next, unclaimed; runs in the courier process."""
    bundle = Bundle.from_record(exchange.read_sealed(store, f"{BUNDLES}/{name}"))
    if not why_left(bundle, only_builtin=only_builtin):
        blobs.fetch(store, folder, blobs.distinct(bundle.pieces))


def _send(store: Store, result: TransferResult, folder: Path, claim: str) -> None:
    """Send the result of a bundle: first the files of its attempts, then the result file.

    The result file releases the claim. Runs in the courier process.

    Args:
        store: the store.
        result: the result, without its attempts.
        folder: the folder in which the bundle was trained.
        claim: name of this worker's claim.
    """
    left = [one for one in _patch_in(folder, result.task).attempts() if one.start.exists()]  # without fetched ones
    result = replace(result, attempts=tuple(map(_packed, left)))
    pieces = [(one.path, piece) for one, told in zip(left, result.attempts, strict=True) for piece in told.pieces]
    blobs.put(store, [(blobs.blob(one.sha256), where / one.name) for where, one in pieces])
    courier.patiently(exchange.put_sealed, store, f"{RESULTS}/{claim}.{result.outcome}.", result)


def _packed(folder: AttemptFolder) -> TransferredAttempt:
    """Return an attempt with its files, except those of `HERE`; values of environment variables are removed first.

    Links are left out, except those to the splat and its companion files: if the splat is valid, their contents travel.
    """
    folder.forget_environments()
    files = {one for one in folder.path.rglob("*") if one.is_file() and not one.is_symlink()}
    if (watch := folder.read_watch()) and folder.result.exists():
        with contextlib.suppress(TooManyFiles):
            files |= {*find_files(folder.output, watch.globs(), MOST_FILES)}
    named = {file.relative_to(folder.path).as_posix(): file for file in sorted(files)}
    pieces = (
        FileRef(name, sha256_of(file), file.stat().st_size, file.stat().st_mtime_ns)
        for name, file in named.items()
        if name.partition("/")[0] not in HERE
    )
    return TransferredAttempt(folder.number, tuple(pieces))


def _patch_in(folder: Path, task: str) -> PatchFolder:
    """Return the folder of a bundle's task, with its attempts, in the folder where the bundle is trained."""
    return PatchFolder(folder / "output/patches" / task)


def work_for(
    url: str, scratch: Path | None, for_s: float | None = None, idle_s: float = 0.0, *, only_builtin: bool = False
) -> int:
    """Run a worker of a store; return the exit code: 0: no bundle is due, 1: a task failed here, 75: start it again.

    A store that does not answer is waited for without limit, until a signal.

    Args:
        url: URL of the store; a relative path counts from the working folder.
        scratch: folder in which bundles are trained; None: below the folder for temporary files.
        for_s: time limit of this worker in seconds; None: no limit.
        idle_s: seconds that the worker waits for new bundles when there are none to train; 0: it waits only while
            other workers train bundles that may become free again.
        only_builtin: whether bundles with commands of external trainers are left to other workers.

    Raises:
        OutputError: the scratch folder cannot be written.
        ConfigError, TrainerError: the URL is not valid, or a library for this kind of store is not installed.
        SplatbatchError, OSError: the store refuses access or a result, or this machine cannot train its bundles.
    """
    try:
        root = scratch.absolute() if scratch else own_scratch()
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for one in root.glob(f"worker-*-{socket.gethostname()}"):
            if not living(":".join(one.name.split("-")[1:3])):  # its worker was killed
                shutil.rmtree(one, ignore_errors=True)
    except OSError as error:
        message = f"--scratch {scratch or error.filename}: cannot be written ({error.strerror})"
        raise OutputError(message, "Name a folder that can be written.") from error
    with Interruption() as interruption:
        mine = root / f"worker-{name_of(os.getpid()).replace(':', '-')}-{socket.gethostname()}"
        worker = StoreWorker(absolute_url(url, Path.cwd()), interruption, mine, for_s, idle_s, only_builtin)
        mine.mkdir()
        code = worker.work()
    num_failed = worker.ended["failed"]
    log_line(f"{worker.ended['trained']} trained here{f', {num_failed} failed' if num_failed else ''}")
    return code
