"""Home's side of a store: packs tasks, adopts results, and closes bundles that are not needed any more.

To adopt a result is to fetch it and to judge its attempts. Only home accepts splats. An attempt from the store is
judged like one left by a dead worker of the output folder. Whatever a store or a worker does, a splat is accepted once,
whole, and for its own task.

A courier is a helper process that makes the calls to a store, so that its caller never hangs; see `transfer.courier`.
"""

from __future__ import annotations

import shutil
import signal
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from splatbatch import __version__, isolated
from splatbatch.config.load import RECIPE_SECTIONS
from splatbatch.errors import StoreError
from splatbatch.files import PRIVATE, fault_of_name, write_json
from splatbatch.isolated import StopRequested, WaitHooks, answers
from splatbatch.monitor.messages import log_line, print_err
from splatbatch.outcome import Lost
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.endings import TaskHistory
from splatbatch.output.events import AttemptEnded, AttemptStarted, CancelRequested, Notice
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.attempt import Claim, ExitFacts, JobSpec
from splatbatch.output.records.record import TypedRecord
from splatbatch.scheduler.work.adopt import adopt_task
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.fingerprint import PLACES
from splatbatch.tasks.shared_decisions.decisions import is_trained_otherwise
from splatbatch.tasks.task import Task, TrainTask
from splatbatch.text import list_some, plural
from splatbatch.transfer import blobs, courier, exchange
from splatbatch.transfer.bundle import Bundle, bundle_of
from splatbatch.transfer.exchange import (
    BUNDLES,
    CLOSED,
    FINAL,
    HERE,
    MOST_HANDLINGS,
    REFUSED,
    RESULTS,
    StoreListing,
    StoreWatch,
    TransferredAttempt,
    TransferResult,
)

LOOK_S = 2.0
"""Pause in seconds between two listings of a store."""


@dataclass(frozen=True)
class Arrival(TypedRecord):
    """Record brought.json: the result of a store with which an attempt came home."""

    result: str = ""
    number: int = 0
    """Number that the worker gave the attempt."""
    total: int = 0
    """Number of attempts in the result; 0: unknown, and the result counts as having come home whole."""


@dataclass(frozen=True)
class StoreName(TypedRecord):
    """Record home.json: the name by which stores know an output folder; empty: it has none yet."""

    home: str = ""


@dataclass
class HomeSide:
    """Home of a store: packs the tasks of a batch into the store, and adopts the results of its workers.

    The caller must hold the output lock. Making the object gives the output folder a name for stores, in home.json; an
    OSError is raised if this file cannot be written.
    """

    batch: Batch
    url: str
    """URL of the store; a relative path has been made absolute."""
    ledger: Ledger
    hooks: WaitHooks
    """Functions that are called during each wait, and may ask to stop."""
    is_retry: bool = False
    """Whether the tasks were requested by `retry`."""

    def __post_init__(self) -> None:
        output = self.batch.output
        self.name = (StoreName.read(output.home) or StoreName()).home or uuid.uuid4().hex
        write_json(output.home, StoreName(self.name).to_record())
        self.courier, self.endings, self.watch = (
            courier.Courier(self.url, self.hooks),
            TaskHistory(output),
            StoreWatch(),
        )
        self.waiting = {task.name: task for task in self.batch.tasks if isinstance(task, TrainTask)}
        self.bundles = dict[str, Bundle]()
        """Bundles of this output folder in the store, by their hash."""
        self._read, self._packed, self._shown = set[str](), set[str](), ""
        arrivals = [one for path in output.path.glob("patches/*/*/brought.json") if (one := Arrival.read(path))]
        self.arrived = {(one.result, one.number) for one in arrivals}
        """Attempts that had come home before this object was made: their result, and their number at their worker."""
        counts = Counter(result for result, _ in self.arrived)
        self.whole = {one.result for one in arrivals if counts[one.result] >= one.total}
        """Results whose attempts have all come home."""

    def follow(self, *, packs: bool, watch: bool = True) -> list[str]:
        """Pack tasks and adopt results until no result is awaited; return the tasks that became up to date by them.

        A request to stop ends the wait; the workers of the store go on. A store that does not answer is waited for
        without limit.

        Args:
            packs: whether the tasks of the batch are packed; else only bundles already in the store are followed.
            watch: whether to wait for open bundles; else only the results in the store are adopted.

        Raises:
            SplatbatchError: the store refuses access, or a task cannot be packed; see `pack`. Other errors: see
                `Courier.run`.
        """
        done = list[str]()
        try:
            while True:
                seen = self.look()
                done += self.adopt(seen)  # adopt results from before this run first
                self._give_up(seen, packs=packs)
                if packs and (packed := self.pack()):
                    self.ledger.write(Notice("workers_seen", f"{plural(len(packed), 'task')} packed for {self.url}"))
                if self.waiting or not packs:
                    self._show(seen)
                is_under_way = self.waiting and (packs or any(seen.state(name).is_open for name in self.bundles))
                if not (watch and is_under_way):
                    break
                self._cancel()
                courier.pause(LOOK_S, self.hooks)
        except StopRequested:
            if self.waiting:
                print_err(
                    "workers of the store keep running;"
                    " fetch their splats with `splatbatch train` or `splatbatch adopt`"
                )
        finally:
            self.courier.close()
            shutil.rmtree(self.batch.output.arriving, ignore_errors=True)
        return done

    def look(self) -> StoreListing:
        """Return a listing of the store, after reading the manifests of new bundles.

        Damaged bundles are skipped, with a message.

        Raises:
            StoreError: the store refuses access.
            StopRequested: a stop was requested during the wait. Other errors: see `Courier.run`.
        """
        seen = exchange.listing(self.courier)
        unread = [name for name in seen.bundles if name not in self.bundles.keys() | self._read]
        new = exchange.bundles_at(self.courier, unread)
        for name in (name for name, one in new.items() if not one.home):
            self.hooks.tell(f"bundle {name}, a packed task, is damaged or missing in the store and is skipped")
        self._read |= new.keys()
        self.bundles |= {name: one for name, one in new.items() if one.home == self.name}
        return seen

    def pack(self) -> dict[str, bool]:
        """Put bundles into the store: once for each waiting task whose required tasks have come home.

        An open bundle with the same contents stays; so does one whose splat is to be adopted. Other open bundles of the
        task are closed. Returned is for each packed task, by its name, whether its splat is to be adopted; {} if none
        is ready.

        Raises:
            SplatbatchError: a file cannot be read, or the store refuses it.
            StopRequested: a stop was requested during the wait. Other errors: see `Courier.run`.
        """
        ready = [
            task
            for name, task in self.waiting.items()
            if name not in self._packed and self.waiting.keys().isdisjoint(task.required)
        ]
        if not ready:
            return {}
        seen, packed, there = self.look(), dict[str, bool](), set(self.courier.ask(blobs.names, blobs.BLOBS))
        for task, bundle in self._put_bundles(ready, there):
            ours = {name: one for name, one in self.bundles.items() if one.task == task.name}
            trained = {
                name
                for name in ours
                for result, outcome in seen.state(name).results.items()
                if outcome == "trained" and result not in self.whole
            }
            live = [name for name in ours if seen.state(name).is_open or name in trained]
            same = next((name for name in live if replace(ours[name], number=bundle.number) == bundle), "")
            name = same or self.courier.ask(exchange.put_sealed, f"{BUNDLES}/", bundle)
            packed[task.name], self.bundles[name] = name in trained, ours.get(name, bundle)
            self._close((name for name in ours if name != same and seen.state(name).is_open), "packed again")
        self._packed |= packed.keys()
        return packed

    def adopt(self, seen: StoreListing) -> list[str]:
        """Fetch new results and judge their attempts; return the tasks that are up to date by them, sorted by name.

        Trained results come first. A bundle whose splat came home is closed; a bundle that is damaged is uploaded
        again. A result that is altered or does not fit its bundle is refused, with a message.

        Raises:
            SplatbatchError: the store refuses access, or a file of a bundle to be uploaded again cannot be read.
            StopRequested: a stop was requested during the wait. Other errors: see `Courier.run`.
        """
        found = [
            (outcome != "trained", bundle, name, outcome)
            for bundle in self.bundles
            for name, outcome in seen.state(bundle).results.items()
            if name not in self.whole
        ]
        came = [
            (bundle, outcome) for _, bundle, name, outcome in sorted(found) if self._adopt(name, self.bundles[bundle])
        ]
        self._close((bundle for bundle, outcome in came if outcome == "trained"), "trained")
        outcomes, standing = [(self.bundles[bundle].task, outcome) for bundle, outcome in came], self.batch.standing()
        done = {name for name, _ in outcomes if name in self.waiting and standing.is_up_to_date(name)}
        # the result may be a second one, of a task whose splat is home already
        for name in done | {name for name, outcome in outcomes if outcome in FINAL}:
            self.waiting.pop(name, None)
        damaged = {name for name, outcome in outcomes if outcome == "damaged"} & self.waiting.keys()
        for task, bundle in self._put_bundles([self.waiting[name] for name in damaged], set()):
            num_files = plural(len(bundle.pieces), "file")
            self.hooks.tell(f"{task.name}: uploaded {num_files} of its bundle again (damaged in the store)")
        return sorted(done)

    def _give_up(self, seen: StoreListing, *, packs: bool) -> None:
        """Close tasks that too many workers have started in vain; wait no more for those that are closed."""
        for name, bundle in self.bundles.items():
            one = seen.state(name)
            if one.num_in_vain >= MOST_HANDLINGS and one.is_open and self.watch.is_dead(name, one):
                why = f"given up: {one.num_in_vain} workers have started this task, and none has finished"
                log_line(f"{bundle.task}: {why}")
                self._close([name], why)
        states = [(bundle.task, seen.state(name)) for name, bundle in self.bundles.items()]
        closed = {name for name, _ in states} - {name for name, one in states if one.is_final or not one.is_closed}
        for name in closed & self.waiting.keys():
            if name in self._packed or not packs:
                log_line(
                    f"{name}: the task is closed in the store (cancelled or given up), so its splat is not awaited"
                )
                self.waiting.pop(name)

    def _show(self, seen: StoreListing) -> None:
        """Write into the ledger how many bundles are in which state, and the tasks in training, if that changed."""
        states = Counter(self.watch.state_of(name, seen.state(name)) for name in self.bundles)
        told = [
            f"{one.task} on {one.host}{f' at step {one.step}' if one.step else ''}"
            for one in seen.signs.values()
            if one.bundle in self.bundles and not one.has_ended
        ]
        counts = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        words = f"{counts}{': ' if told else ''}{list_some(told, 4)}"
        if words != self._shown:
            self._shown = words
            self.ledger.write(Notice("workers_seen", f"in the store: {words}"))

    def _cancel(self) -> None:
        """Obey requests of `cancel`: close the bundles of the named tasks, or all and stop this run."""
        for request in self.batch.output.cancels():
            asked = self.batch.output.read_cancel(request)
            if asked.run.is_self:
                self.ledger.write(CancelRequested(asked.by, asked.patches))
                names = set(asked.patches) or set(self.waiting)
                self._close([name for name, one in self.bundles.items() if one.task in names], "cancelled")
                self.waiting = {name: task for name, task in self.waiting.items() if name not in names}
                if not asked.patches:
                    signal.raise_signal(signal.SIGTERM)
            request.unlink(missing_ok=True)

    def _close(self, names: Iterable[str], why: str) -> None:
        """Close bundles in the store: no worker claims them any more, and a worker that trains one stops."""
        if files := [(f"{CLOSED}/{name}", why.encode()) for name in names]:
            self.courier.ask(blobs.put, files)

    def _put_bundles(self, tasks: Sequence[Task], there: set[str]) -> Iterator[tuple[Task, Bundle]]:
        """Put the blobs of tasks into the store, except the blobs in `there`; yield each task with its bundle.

        The manifests are not put. Readers hash the files.
        """
        packing = isolated.start(partial(bundle_of, self.name, self.is_retry), tasks)
        for task, found in answers(packing, self.hooks):
            record, paths = found.result("pack")
            self.courier.ask(
                blobs.put, [(blobs.blob(sha256), Path(path)) for sha256, path in paths.items() if sha256 not in there]
            )
            there |= paths.keys()
            yield task, Bundle.from_record(record)

    def _adopt(self, name: str, bundle: Bundle) -> bool:
        """Fetch a result, and judge its attempts like those of a dead worker.

        Returned is whether the result is sound. Otherwise it is marked as refused in the store, so that its task is
        trained again.
        """
        returned, ours = exchange.result_at(self.courier, name), 0
        task = next((one for one in self.batch.every if one.name == bundle.task), None)
        try:
            _see_sound(name, bundle, returned)
            for piece, fault in blobs.fetch_all(self.courier, self.batch.output.arriving, returned.pieces).items():
                raise StoreError(f"{piece.name} is {fault} in the store")
            if task is None:
                raise StoreError(f"the batch no longer has a task {bundle.task}")
            for one in returned.attempts:
                if (name, one.number) not in self.arrived:
                    ours = self._adopt_attempt(name, one, bundle, returned, task)
        except StoreError as error:  # the result is ignored, and its task trained again
            self.hooks.tell(
                f"{bundle.task}: a result in the store is refused, and the task trained again: {name}: {error.message}"
            )
            self.courier.ask(blobs.put, [(f"{RESULTS}/{name}{REFUSED}", error.message.encode())])
            return False
        self.whole.add(name)
        adopt_task(task, self.ledger, self.endings, self.hooks.tick)
        if returned.outcome == "failed" and not returned.attempts:
            self.hooks.tell(f"{task.name}: worker {returned.worker} could not train this task: {returned.why}")
        match self.endings.last(task.name):
            case AttemptEnded(attempt=number, outcome="trained", accepted=False, choice=why) if number == ours:
                why = why or "its settings or inputs have changed here since the task was packed"
                self.hooks.tell(
                    f"{task.name}: the splat of worker {returned.worker} is kept as an attempt, not accepted: {why}"
                )
        return True

    def _adopt_attempt(
        self, name: str, one: TransferredAttempt, bundle: Bundle, returned: TransferResult, task: Task
    ) -> int:
        """Move a fetched attempt into the folder of its task; return the number that it gets here.

        Raises:
            StoreError: the attempt was not trained from its bundle, or names files outside its folder.
        """
        folder = AttemptFolder(self.batch.output.arriving / f"{task.name}-{one.number}.{uuid.uuid4().hex}")
        blobs.lay(one.pieces, folder.path.parent, folder.path, shutil.copyfile)
        job = _make_ours(folder, bundle, returned, task)
        write_json(folder.brought, Arrival(name, one.number, len(returned.attempts)).to_record())
        attempt = task.home.new_attempt()
        folder.path.rename(attempt.path)
        self.ledger.write(AttemptStarted(task.name, attempt.number, job.key, returned.worker, dict(job.changes)))
        return attempt.number


def _see_sound(name: str, bundle: Bundle, returned: TransferResult) -> None:
    """Check that a result belongs to its bundle, is of this version, and holds no file that only home may write.

    Raises:
        StoreError: it does not.
    """
    if not returned.bundle:
        raise StoreError("the result was altered in the store")
    if (returned.bundle, returned.task) != (name.partition(".")[0], bundle.task):
        raise StoreError(f"the result belongs to another task: {returned.task}")
    if returned.version != __version__:
        raise StoreError(f"the worker used splatbatch {returned.version}, this machine uses {__version__}")
    if ours := [piece.name for piece in returned.pieces if piece.name.partition("/")[0] in HERE]:
        raise StoreError(f"the result contains {ours[0]!r}, which a worker must not send")


def _make_ours(folder: AttemptFolder, bundle: Bundle, returned: TransferResult, task: Task) -> JobSpec:
    """Rewrite the job file of a fetched attempt as home would have written it, with home's paths; return the job.

    An attempt without an exit record gets one, so that no process of it is looked for here.

    Raises:
        StoreError: the attempt was trained from other settings or inputs than its bundle, its splat is outside its
            folder, or the settings of the bundle are invalid.
    """
    watch = folder.read_watch()
    if outside := [name for name in (watch.globs() if watch else ()) if fault_of_name(PurePath(name).as_posix())]:
        raise StoreError(f"{folder.watch.name} names {outside[0]}, which lies outside the attempt's folder")
    job = folder.read_job() or JobSpec()
    then, asked = job.depends_on, bundle.depends_on
    is_other_model = any(
        then.files.get(key, (0, 0, ""))[2] != fact.sha256
        for key, fact in asked.files.items()
        if key.startswith("sparse/")
    )
    if is_other_model or then.recipe != asked.recipe or is_trained_otherwise(then, asked):
        raise StoreError("the splat was trained from other settings or inputs than those that were packed")
    job = replace(
        job,
        depends_on=replace(asked, effective=then.effective),
        claim=Claim(returned.worker, 0, bundle.follows),
        env={},
        is_retry=bundle.is_retry,
        changes={**_since(bundle, task), **job.changes},
    )
    write_json(folder.job, job.to_record(), PRIVATE)
    folder.place_model(task.patch.sparse)
    if not folder.has_exited():
        write_json(folder.exit, ExitFacts(Lost(f"{returned.worker} did not report how the attempt ended")).to_record())
    return job


def _since(bundle: Bundle, task: Task) -> dict[str, Any]:
    """Return the settings of a bundle that differ from home's current ones: an attempt is judged by those it had.

    Raises:
        StoreError: a section of the settings is no JSON object.
    """
    if odd := [name for name in RECIPE_SECTIONS if not isinstance(bundle.settings.get(name, {}), dict)]:
        raise StoreError(f"settings.{odd[0]} of its bundle is not an object")
    now = {name: getattr(task.yaml_settings.recipe, name).model_dump(mode="json") for name in RECIPE_SECTIONS}
    return {
        f"{name}.{key}": value
        for name in RECIPE_SECTIONS
        for key, value in bundle.settings.get(name, {}).items()
        if key in now[name] and now[name][key] != value and (name, key) not in PLACES
    }
