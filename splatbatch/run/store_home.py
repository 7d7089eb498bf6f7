"""Home's side of a store: it packs tasks, adopts results, and closes bundles that are no longer needed.

Only home accepts, by the one acceptance there is: an attempt that came home is settled as one that a worker has left
which died before it could. Whatever a store or a worker does, a splat is accepted once, whole, for its own task.
"""

from __future__ import annotations

import shutil
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
from splatbatch.output.attempt_folder import ATTEMPT_PREFIX, AttemptFolder
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
from splatbatch.transfer.blobs import FileRef
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
    is_following,
)

LOOK_S = 2.0
"""Between two looks at a store."""
PICTURES_S = 30.0
"""So long pictures are waited for once all splats are home; the next run brings what comes later."""


@dataclass(frozen=True)
class Arrival(TypedRecord):
    """brought.json: which result of a store an attempt came home as."""

    result: str = ""
    number: int = 0
    """Of the attempt, as its worker counted."""
    total: int = 0
    """Of the attempts of that result."""
    has_all: bool = False
    """Its pictures have come, too."""


@dataclass(frozen=True)
class StoreName(TypedRecord):
    """home.json: the name by which stores know an output folder."""

    home: str = ""


@dataclass
class HomeSide:
    """A batch whose tasks travel by a store: they are packed, and what workers bring is adopted."""

    batch: Batch
    url: str
    ledger: Ledger
    hooks: WaitHooks
    is_retry: bool = False
    bundles: dict[str, Bundle] = field(default_factory=dict)
    """Of ours, as far as they were read; each under its hash."""
    arrived: dict[str, dict[int, AttemptFolder]] = field(default_factory=dict)
    """Results of which something is here: the attempts that came, by their numbers there."""
    whole: set[str] = field(default_factory=set)
    """Results whose attempts are all here."""
    awaited: set[str] = field(default_factory=set)
    """Results whose pictures are still on their way."""
    new: set[str] = field(default_factory=set)
    """Results that have come since we began."""

    def __post_init__(self) -> None:
        output = self.batch.output
        known = StoreName.read(output.home) or StoreName()
        self.name = known.home or uuid.uuid4().hex
        if not known.home:
            write_json(output.home, StoreName(self.name).to_record())
        self.courier, self.endings, self.watch = (
            courier.Courier(self.url, self.hooks),
            TaskHistory(output),
            StoreWatch(),
        )
        self.waiting = {task.name: task for task in self.batch.tasks if isinstance(task, TrainTask)}
        self._others, self._packed, self._shown = set[str](), set[str](), ""
        for path in output.path.glob(f"patches/*/{ATTEMPT_PREFIX}*/brought.json"):
            if arrival := Arrival.read(path):
                self._note(AttemptFolder(path.parent), arrival)

    def follow(self, *, packs: bool, watch: bool = True) -> list[str]:
        """Return the tasks whose splats have come home, and count.

        Args:
            packs: what is to be trained is packed; else only what is under way is followed.
            watch: wait for what is under way; else only what has come is adopted.

        Raises:
            StoreError: the store refuses us.
        """
        done = list[str]()
        try:
            while True:
                seen = self.look()
                done += self._take(seen)  # results that came while no run was here are not trained again
                self._give_up(seen, packs=packs)
                if packs:
                    self._pack_ready()
                if self.waiting or not packs:
                    self._show(seen)
                is_under_way = packs or any(seen.state(name).is_open for name in self.bundles)
                if not (watch and self.waiting and is_under_way):
                    break
                self._cancel()
                courier.pause(LOOK_S, self.hooks)
            end = time.monotonic() + PICTURES_S
            while watch and self.awaited and time.monotonic() < end:
                self.adopt(self.look())
                courier.pause(1.0, self.hooks)
        except StopRequested:
            if self.waiting:
                words = "workers of the store keep running"
                print_err(f"{words}; fetch their splats with `splatbatch train` or `splatbatch adopt`")
        finally:
            self.courier.close()
            shutil.rmtree(self.batch.output.arriving, ignore_errors=True)
        return done

    def look(self) -> StoreListing:
        """Look at the store, and read the manifests that are new."""
        seen = exchange.listing(self.courier)
        unread = [name for name in seen.bundles if name not in self.bundles.keys() | self._others]
        records = self.courier.run((exchange.read_sealed, (f"{BUNDLES}/{name}",)) for name in unread)
        for name, record in zip(unread, records, strict=True):
            bundle = Bundle.from_record(record)
            if bundle.home == self.name:
                self.bundles[name] = bundle
                continue
            self._others.add(name)
            if not record:
                self.hooks.tell(f"bundle {name} in the store is damaged or missing; ignored")
        return seen

    def pack(self, tasks: Sequence[Task]) -> dict[str, str]:
        """Have tasks travel; return the bundle of each by its name: one that is there and still right stays.

        So does one that was trained meanwhile: its result is only to be adopted.

        Raises:
            SplatbatchError: a file cannot be read, or the store takes nothing.
        """
        seen, packed = self.look(), dict[str, str]()
        there = set(self.courier.ask(blobs.names, blobs.BLOBS))
        for task, bundle in self._put_bundles(tasks, there):
            ours = {name: one for name, one in self.bundles.items() if one.task == task.name}
            live = [name for name in ours if seen.state(name).is_open or self.is_trained(name, seen)]
            packed[task.name] = next((name for name in live if replace(ours[name], number=bundle.number) == bundle), "")
            if not packed[task.name]:
                manifest = exchange.bundle_file(bundle)
                self.courier.ask(blobs.put, [manifest])
                packed[task.name] = name = PurePath(manifest[0]).name
                self.bundles[name] = bundle
            self._close(
                (name for name in ours if name != packed[task.name] and seen.state(name).is_open), "packed anew"
            )
        return packed

    def is_trained(self, name: str, seen: StoreListing) -> bool:
        """Return whether a splat of a bundle lies in the store that is not home yet."""
        return "trained" in {outcome for one, outcome in seen.state(name).results.items() if one not in self.whole}

    def adopt(self, seen: StoreListing) -> list[tuple[str, str]]:
        """Bring home what workers have left, and settle it; return the tasks that have results, with the outcomes."""
        came, found = [], [(bundle, one) for bundle in self.bundles for one in seen.state(bundle).results.items()]
        for bundle, (name, outcome) in sorted(found, key=lambda one: one[1][1] != "trained"):
            if name not in self.whole and self._adopt(name, self.bundles[bundle]):
                came.append((self.bundles[bundle].task, outcome))
                if outcome == "trained":
                    self._close([bundle], "trained")
        self.awaited = {name for name in self.awaited if not self._adopt_pictures(name) and name in self.new}
        return came

    def _pack_ready(self) -> None:
        """Pack what has not travelled yet, and whose needs have come home."""
        todo = [task for name, task in self.waiting.items() if name not in self._packed]
        ready = [task for task in todo if not self.waiting.keys() & set(task.required)]
        if ready:
            self._packed |= self.pack(ready).keys()
            self.ledger.write(Notice("workers_seen", f"{plural(len(ready), 'task')} packed for {self.url}"))

    def _take(self, seen: StoreListing) -> list[str]:
        """Adopt what has come; return the tasks whose splats count."""
        came, done = self.adopt(seen), []
        standing = self.batch.standing()
        for name, outcome in came:
            is_done = name in self.waiting and standing.is_up_to_date(name)
            if is_done:
                done.append(name)
            if is_done or outcome in FINAL:  # it may be a second result, of a task whose splat is home already
                self.waiting.pop(name, None)
        damaged = {name for name, outcome in came if outcome == "damaged"}
        for task, bundle in self._put_bundles([self.waiting[name] for name in damaged & self.waiting.keys()], set()):
            num_files = plural(len(bundle.pieces), "file")
            self.hooks.tell(f"{task.name}: uploaded {num_files} of its bundle again (damaged in the store)")
        return done

    def _give_up(self, seen: StoreListing, *, packs: bool) -> None:
        """Wait no longer for tasks that no worker is to try again, or that another command has closed."""
        states = {name: seen.state(name) for name in self.bundles}
        for name, one in states.items():
            if one.generation >= MOST_HANDLINGS and one.is_open and self.watch.is_dead(name, one):
                why = f"given up: {one.generation} workers have started this task, and none has finished"
                log_line(f"{self.bundles[name].task}: {why}")
                self._close([name], why)
                self.waiting.pop(self.bundles[name].task, None)
        expected = {self.bundles[name].task for name, one in states.items() if one.is_final or not one.is_closed}
        for name in {self.bundles[name].task for name in states} - expected:
            if self.waiting.keys() & {name} and (name in self._packed or not packs):
                log_line(f"{name}: another `splatbatch` command closed this task in the store")
                self.waiting.pop(name)

    def _show(self, seen: StoreListing) -> None:
        """Say who is at what, if that is another state than before."""
        states = Counter(self.watch.state_of(name, seen.state(name)) for name in self.bundles)
        at_work = [one for one in seen.signs.values() if one.bundle in self.bundles and not one.has_ended]
        told = [f"{one.task} on {one.host}{f' at step {one.step}' if one.step else ''}" for one in at_work]
        counts = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        words = f"{counts}{': ' if told else ''}{list_some(told, 4)}"
        if words != self._shown:
            self._shown = words
            self.ledger.write(Notice("workers_seen", f"in the store: {words}"))

    def _cancel(self) -> None:
        """Close what `cancel` asks to be left."""
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
        """Tell workers that bundles are not wanted any more: none takes them, and one that trains them stops."""
        self.courier.ask(blobs.put, [(f"{CLOSED}/{name}", why.encode()) for name in names])

    def _put_bundles(self, tasks: Sequence[Task], there: set[str]) -> Iterator[tuple[Task, Bundle]]:
        """Put what bundles of tasks need into the store, but for the blobs that are there; yield the bundles."""
        follows = [(task, task.home.newest_accepted()) for task in tasks]
        call = partial(_packed, self.name, self.is_retry)
        for (task, _), found in answers(isolated.start(call, follows), self.hooks):
            record, paths = found.result("pack")
            self.courier.ask(
                blobs.put, [(blobs.blob(sha256), Path(path)) for sha256, path in paths.items() if sha256 not in there]
            )
            there |= paths.keys()
            yield task, Bundle.from_record(record)

    def _note(self, folder: AttemptFolder, one: Arrival) -> None:
        numbers = self.arrived.setdefault(one.result, {})
        numbers[one.number] = folder
        if not one.has_all:
            self.awaited.add(one.result)
        if len(numbers) >= one.total:
            self.whole.add(one.result)

    def _adopt(self, name: str, bundle: Bundle) -> bool:
        """Bring a result home, and judge it as any attempt that a dead worker has left.

        Returned is whether the result is what it says.
        """
        returned = exchange.result_at(self.courier, name)
        task = next((one for one in self.batch.every if one.name == bundle.task), None)
        ours = 0
        try:
            _see_sound(name, bundle, returned)
            pieces = [one for one in returned.pieces if not is_following(one)]
            for piece, fault in self._fetch(pieces, bundle.task).items():
                raise StoreError(f"{piece.name} is {fault} in the store")
            if task is None:
                raise StoreError(f"the batch no longer has a task {bundle.task}")
            for one in returned.attempts:
                if one.number not in self.arrived.get(name, {}):
                    ours = self._adopt_attempt(name, one, bundle, returned, task)
        except StoreError as error:  # it counts for nothing, so that its task is trained again
            self.hooks.tell(f"{bundle.task}: a result in the store is refused: {name}: {error.message}")
            self.courier.ask(blobs.put, [(f"{RESULTS}/{name}{REFUSED}", error.message.encode())])
            return False
        self.whole.add(name)
        adopt_task(task, self.ledger, self.endings, self.hooks.tick)
        if returned.outcome == "failed" and not returned.attempts:
            self.hooks.tell(f"{task.name}: worker {returned.worker} could not train this task: {returned.why}")
        match self.endings.last(task.name):
            case AttemptEnded(attempt=number, outcome="trained", accepted=False, choice=why) if number == ours:
                why = why or "its settings or inputs have changed here since the task was packed"
                words = f"the splat of worker {returned.worker} is kept as an attempt, not accepted: {why}"
                self.hooks.tell(f"{task.name}: {words}")
        return True

    def _adopt_attempt(
        self, name: str, one: TransferredAttempt, bundle: Bundle, returned: TransferResult, task: Task
    ) -> int:
        """Give an attempt of a result its place here; return the number that it has here.

        Raises:
            StoreError: it is not one of its bundle.
        """
        place, pieces = self.batch.output.arriving, [piece for piece in one.pieces if not is_following(piece)]
        folder = AttemptFolder(place / f"{task.name}-{one.number}.{uuid.uuid4().hex}")
        blobs.lay(pieces, place, folder.path, shutil.copyfile)
        job = _make_ours(folder, bundle, returned, task)
        has_all = len(pieces) == len(one.pieces)
        arrival = Arrival(name, one.number, len(returned.attempts), has_all)
        write_json(folder.brought, arrival.to_record())
        attempt = task.home.new_attempt()
        folder.path.rename(attempt.path)
        self._note(attempt, arrival)
        self.new.add(name)
        self.ledger.write(AttemptStarted(task.name, attempt.number, job.key, returned.worker, dict(job.changes)))
        return attempt.number

    def _fetch(self, pieces: Sequence[FileRef], task: str) -> dict[FileRef, str]:
        """Fetch blobs into the folder of what arrives; return those that are damaged or missing, and which of both."""
        return blobs.fetch_all(self.courier, self.batch.output.arriving, pieces, task, self.hooks.tell)

    def _adopt_pictures(self, name: str) -> bool:
        """Bring home what is sent after the splats of a result; return whether no more of it is to come."""
        for one in exchange.result_at(self.courier, name).attempts:
            folder, pieces = self.arrived[name].get(one.number), [piece for piece in one.pieces if is_following(piece)]
            faults = self._fetch(pieces, name)
            if "missing" in faults.values():
                return False
            if folder and (arrival := Arrival.read(folder.brought)):
                try:
                    sound = [piece for piece in pieces if piece not in faults]
                    blobs.lay(sound, self.batch.output.arriving, folder.path, shutil.copyfile)
                except StoreError as error:
                    self.hooks.tell(f"a picture or log of a result in the store is refused: {name}: {error.message}")
                write_json(folder.brought, replace(arrival, has_all=True).to_record())
        return True


def _packed(home: str, is_retry: bool, asked: tuple[Task, int]) -> tuple[dict[str, Any], dict[str, str]]:
    bundle, paths = bundle_of(asked[0], home, asked[1], is_retry=is_retry)
    return bundle.to_record(), paths


def _see_sound(name: str, bundle: Bundle, returned: TransferResult) -> None:
    """See that a result is one of its bundle.

    Raises:
        StoreError: it is not.
    """
    if not returned.bundle:
        raise StoreError("the result was altered in the store")
    if (returned.bundle, returned.task) != (name.partition(".")[0], bundle.task):
        raise StoreError(f"the result belongs to another task: {returned.task}")
    if returned.version != __version__:
        raise StoreError(f"the worker used splatbatch {returned.version}, this machine uses {__version__}")
    for piece in returned.pieces:
        if piece.name.partition("/")[0] in HERE:
            raise StoreError(f"a worker must not send {piece.name!r}")


def _make_ours(folder: AttemptFolder, bundle: Bundle, returned: TransferResult, task: Task) -> JobSpec:
    """Write the orders of an attempt as home would have given them, and what is of home alone; return them.

    That is the model's place, and that nothing of it can run here: whatever a worker wrote, no process is looked for.

    Raises:
        StoreError: they were others, and it trained something else; or its splat is looked for outside of its folder.
    """
    watch = folder.read_watch()
    for name in watch.globs() if watch else ():
        if fault_of_name(PurePath(name).as_posix()):
            raise StoreError(f"{folder.watch.name} names {name}, which lies outside of its attempt")
    job = folder.read_job() or JobSpec()
    then, asked = job.depends_on, bundle.depends_on
    models = [key for key in asked.files if key.startswith("sparse/")]
    is_same = then.recipe == asked.recipe and not is_trained_otherwise(then, asked)
    if not is_same or any(then.files.get(key, (0, 0, ""))[2] != asked.files[key].sha256 for key in models):
        raise StoreError("the splat was trained from other inputs than its bundle")
    claim = Claim(returned.worker, 0, bundle.follows)
    depends_on, changes = replace(asked, effective=then.effective), {**_since(bundle, task), **job.changes}
    job = replace(job, depends_on=depends_on, claim=claim, env={}, is_retry=bundle.is_retry, changes=changes)
    write_json(folder.job, job.to_record(), PRIVATE)
    folder.place_model(task.patch.sparse)
    if not folder.has_exited():
        write_json(folder.exit, ExitFacts(Lost(f"{returned.worker} did not report how the attempt ended")).to_record())
    return job


def _since(bundle: Bundle, task: Task) -> dict[str, Any]:
    """Return the settings of a bundle that are others at home by now: by its own an attempt is judged."""
    now = {name: getattr(task.yaml_settings.recipe, name).model_dump(mode="json") for name in RECIPE_SECTIONS}
    return {
        f"{name}.{key}": value
        for name in RECIPE_SECTIONS
        for key, value in bundle.settings.get(name, {}).items()
        if key in now[name] and now[name][key] != value and (name, key) not in PLACES
    }
