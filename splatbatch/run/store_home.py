"""Home's side of a store: tasks are packed, what workers bring is adopted, and what nobody needs any more is closed.

Only home accepts, by the one acceptance there is: an attempt that came home is settled as one that a worker has left
which died before it could. Whatever a store or a worker does, a splat is accepted once, whole, for its own task.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from splatbatch import __version__, isolated
from splatbatch.config.load import RECIPE_SECTIONS
from splatbatch.errors import CutOffError, OutputError, StoreError
from splatbatch.files import PRIVATE, fault_of_name, write_json
from splatbatch.isolated import WaitHooks, answers
from splatbatch.outcome import Lost
from splatbatch.output.attempt_folder import ATTEMPT_PREFIX, AttemptFolder
from splatbatch.output.endings import TaskHistory
from splatbatch.output.events import AttemptEnded, AttemptStarted
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger, events
from splatbatch.output.records.attempt import Claimed, ExitFacts, JobSpec
from splatbatch.output.records.record import TypedRecord
from splatbatch.scheduler.work.adopt import adopt_task
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.fingerprints.settings import PLACES
from splatbatch.tasks.shared_decisions.decisions import is_trained_otherwise
from splatbatch.tasks.task import Task
from splatbatch.text import plural
from splatbatch.transfer import blobs, exchange
from splatbatch.transfer.blobs import BLOBS, FetchResult, FileRef
from splatbatch.transfer.bundle import Bundle, bundle_of
from splatbatch.transfer.exchange import (
    HERE,
    MOST_HANDLINGS,
    REFUSED,
    RESULTS,
    StoreListing,
    StoreWatch,
    TransferResult,
    is_following,
)
from splatbatch.transfer.traffic import TransferJob, ask, run, store_at

Say = Callable[[str], None]


@dataclass(frozen=True)
class Arrival(TypedRecord):
    """brought.json: which result of a store an attempt came home as."""

    result: str = ""
    number: int = 0
    """Of the attempt, as its worker counted."""
    worker: str = ""
    host: str = ""
    total: int = 0
    """Of the attempts of that result."""
    has_all: bool = False
    """Its pictures have come, too."""


@dataclass(frozen=True)
class StoreName(TypedRecord):
    """home.json: the name by which stores know an output folder."""

    home: str = ""


def home_of(output: OutputFolder) -> str:
    """Return the name by which stores know an output folder; it is given one where it has none."""
    known = StoreName.read(output.home)
    if known is None or not known.home:
        known = StoreName(uuid.uuid4().hex)
        write_json(output.home, known.to_record())
    return known.home


@dataclass
class HomeSide:
    """A batch whose tasks travel, and the store that they travel by."""

    batch: Batch
    url: str
    ledger: Ledger
    patience: WaitHooks
    say: Say
    name: str = field(init=False)
    watch: StoreWatch = field(default_factory=StoreWatch)
    bundles: dict[str, Bundle] = field(default_factory=dict)
    """Of ours, as far as they were read; each under its hash."""
    strange: set[str] = field(default_factory=set)
    """Those of other homes, and altered ones."""
    refused: list[str] = field(default_factory=list)
    """Results, and what came after one, that were refused, by name, since we began."""

    def __post_init__(self) -> None:
        self.name = home_of(self.batch.output)
        self._arrived: dict[str, set[int]] = {}
        self._whole: set[str] = set()
        self._awaited: set[str] = set()
        for _, one in self._arrivals():
            self._note(one)

    def look(self) -> StoreListing:
        """Look at the store, and read the manifests of ours that are new."""
        seen = self.watch.take(ask(partial(exchange.look, self.url), self.watch.owners, self.patience))
        unread = [one for one in seen.bundles if one not in self.bundles and one not in self.strange]
        call = partial(_manifest, self.url)
        for name, record in run(TransferJob(call, unread, self.say), self.patience) if unread else ():
            bundle = Bundle.from_record(record)
            if bundle.home == self.name:
                self.bundles[name] = bundle
                continue
            self.strange.add(name)
            if not record:
                self.say(f"bundle {name} in the store is damaged or missing; ignored")
        return seen

    def pack(self, tasks: Sequence[Task], *, is_retry: bool) -> dict[str, str]:
        """Have tasks travel; return the bundle of each by its name: one that is there and still right stays.

        So does one that was trained while nobody was here: what came of it is only to be adopted.

        Raises:
            SplatbatchError: a file cannot be read, or the store takes nothing.
        """
        seen, output = self.look(), self.batch.output
        follows = {task.name: task.home(output).newest_accepted() for task in tasks}
        call = partial(_packed, self.name, follows, is_retry)
        there = set(ask(partial(_names, self.url), BLOBS, self.patience))
        packed = {}
        for task, found in answers(isolated.start(call, tasks), self.patience):
            told = found.result("pack")
            bundle = Bundle.from_record(told["bundle"])
            self._send({sha256: path for sha256, path in told["paths"].items() if sha256 not in there})
            there |= told["paths"].keys()
            mine = [name for name, one in self.bundles.items() if one.task == task.name and self._is_as(name, bundle)]
            old = [name for name in mine if seen.is_open(name) or self.is_trained(name, seen)]
            if old:
                packed[task.name] = old[0]
            else:
                name = ask(partial(exchange.put_bundle, self.url), bundle, self.patience)
                packed[task.name], self.bundles[name] = name, bundle
            self.close([name for name in self._open(task.name, seen) if name != packed[task.name]], "packed anew")
        return packed

    def heal(self, seen: StoreListing, tasks: Iterable[Task]) -> None:
        """Put blobs anew that bundles need and a worker has found damaged, and removed."""
        there = set(ask(partial(_names, self.url), BLOBS, self.patience))
        by_name = {task.name: task for task in tasks}
        for name, bundle in self.bundles.items():
            lacking = {piece.sha256 for piece in bundle.pieces} - there
            if lacking and seen.is_open(name) and (task := by_name.get(bundle.task)):
                call = partial(_packed, self.name, {task.name: bundle.follows}, bundle.is_retry)
                found = isolated.answer(call, task, self.patience).result("pack")
                again = {sha256: path for sha256, path in found["paths"].items() if sha256 in lacking}
                self._send(again)
                there |= again.keys()
                self.say(
                    f"{bundle.task}: uploaded {plural(len(again), 'file')} of its bundle again (damaged in the store)"
                )

    def close(self, names: Iterable[str], why: str) -> None:
        """Tell workers that bundles are not wanted any more: nobody takes them, and who has one lets it go."""
        call = partial(exchange.note, self.url)
        run(TransferJob(call, [(f"{exchange.CLOSED}/{name}", why) for name in names], self.say), self.patience)

    def adopt(self, seen: StoreListing) -> list[tuple[str, str]]:
        """Bring home what workers have left, and settle it; return the tasks of which something came, and what."""
        came = []
        for name in self._news(seen):
            bundle_name = name.partition(".")[0]
            bundle = self.bundles[bundle_name]
            if self._adopt(name, bundle):
                came.append((bundle.task, name.split(".")[1]))
                if came[-1][1] == "trained":
                    self.close([bundle_name], "trained")
        for name in seen.later:
            try:
                self._adopt_later(name)
            except StoreError as error:
                if name not in self.refused:
                    self.refused.append(name)
                    self.say(f"pictures and logs of a result are refused: {name}: {error.message}")
        return came

    def _note(self, one: Arrival) -> None:
        numbers = self._arrived.setdefault(one.result, set())
        numbers.add(one.number)
        self._whole |= {one.result} if len(numbers) >= one.total else set()

    def _news(self, seen: StoreListing) -> list[str]:
        """Return the results of ours that are not here yet, those that are trained first."""
        names = [one for bundle in self.bundles for one in seen.results.get(bundle, ()) if one not in self._whole]
        return sorted(names, key=lambda name: (name.split(".")[1] != "trained", name))

    def awaits_more(self) -> bool:
        """Return whether pictures of anything that has come since we began are still on their way."""
        return bool(self._awaited)

    def spent(self, seen: StoreListing) -> dict[str, str]:
        """Return our open bundles that no worker is to try again, each with the reason."""
        found = {}
        for name in self.bundles:
            owner = seen.owners.get(name)
            if owner and owner.generation >= MOST_HANDLINGS and seen.is_open(name) and self.watch.is_dead(owner, seen):
                found[name] = f"given up: {owner.generation} workers have started this task, and none has finished"
        return found

    def _open(self, task: str, seen: StoreListing) -> list[str]:
        return [name for name, one in self.bundles.items() if one.task == task and seen.is_open(name)]

    def is_trained(self, name: str, seen: StoreListing) -> bool:
        """Return whether a splat of a bundle lies in the store that is not home yet."""
        results = set(seen.results.get(name, ())) - self._whole
        return any(one.split(".")[1] == "trained" for one in results)

    def _is_as(self, name: str, bundle: Bundle) -> bool:
        known = self.bundles[name]
        return replace(known, number=bundle.number, packed_at=bundle.packed_at).to_record() == bundle.to_record()

    def _send(self, paths: dict[str, str]) -> None:
        files = [(path, sha256) for sha256, path in paths.items()]
        run(TransferJob(partial(blobs.put, self.url), blobs.groups(files), self.say), self.patience)

    def _adopt(self, name: str, bundle: Bundle) -> bool:
        """Bring a result home; return whether it is what it says."""
        returned = TransferResult.from_record(
            ask(partial(exchange.read_result, self.url), f"{RESULTS}/{name}", self.patience)
        )
        try:
            self._see_sound(name, bundle, returned)
            place = self._fetched(returned.pieces, bundle.task)
        except StoreError as error:
            self._refuse(name, error.message)
            return False
        task = next((one for one in self.batch.every if one.name == bundle.task), None)
        if task is None:
            self._refuse(name, f"the batch no longer has a task {bundle.task}")
            return False
        left = [one for one in returned.attempts if one.number not in self._arrived.get(name, ())]
        ours = 0
        for one in left:
            folder = AttemptFolder(place / f"{task.name}-{one.number}.{uuid.uuid4().hex}")
            try:
                blobs.lay(one.pieces, place, folder.path, shutil.copyfile)
                _make_ours(folder, bundle, returned, task)
            except StoreError as error:
                shutil.rmtree(folder.path)
                self._refuse(name, error.message)
                return False
            job = folder.read_job() or JobSpec()
            arrival = Arrival(
                name, one.number, returned.worker, returned.host, len(returned.attempts), not returned.has_more
            )
            self._awaited |= {name} if returned.has_more else set()
            write_json(folder.brought, arrival.to_record())
            attempt = task.home(self.batch.output).new_attempt()
            folder.path.rename(attempt.path)
            self._note(arrival)
            ours = attempt.number
            self.ledger.write(AttemptStarted(task.name, ours, job.key, returned.worker, dict(job.changes)))
        self._whole.add(name)
        self._settle(task, ours, returned)
        return True

    def _settle(self, task: Task, ours: int, returned: TransferResult) -> None:
        """Judge what has come as any attempt that a dead worker has left, and say why it does not count, if so."""
        adopt_task(self.batch, task, self.ledger, TaskHistory(self.batch.output), self.patience.tick)
        found = (
            one for one in events(self.batch.output, AttemptEnded) if (one.patch, one.attempt) == (task.name, ours)
        )
        end = next(found, None)
        if end and end.outcome == "trained" and end.accepted is False:
            why = end.choice or "its settings or inputs have changed here since the task was packed"
            self.say(f"{task.name}: the splat of worker {returned.worker} is kept as an attempt, not accepted: {why}")
        elif returned.outcome == "failed" and not returned.attempts:
            self.say(f"{task.name}: worker {returned.worker} could not train this task: {returned.why}")

    def _see_sound(self, name: str, bundle: Bundle, returned: TransferResult) -> None:
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

    def _fetched(self, pieces: Sequence[FileRef], task: str) -> Path:
        """Fetch blobs; return the folder in which they lie under their hashes.

        Raises:
            StoreError: one is gone, or damaged in the store.
        """
        place, names = self.batch.output.arriving, {piece.sha256: piece.name for piece in pieces}
        wanted = {piece.sha256: piece.num_bytes for piece in pieces}
        call = partial(blobs.fetch, self.url, str(place))
        for _, told in run(TransferJob(call, blobs.groups(wanted.items()), self.say), self.patience):
            found = FetchResult.from_record(told)
            for sha256 in found.refused:
                self.say(f"{task}: {names[sha256]} does not match its SHA-256: refused, fetched again")
            for sha256 in (*found.damaged, *found.absent):
                raise StoreError(
                    f"{names[sha256]} is {'damaged' if sha256 in found.damaged else 'missing'} in the store"
                )
        return place

    def _refuse(self, name: str, why: str) -> None:
        """Have a result count for nothing, so that its task is trained again, and say so."""
        self.refused.append(name)
        self.say(f"{self.bundles[name.partition('.')[0]].task}: a result in the store is refused: {name}: {why}")
        ask(partial(exchange.note, self.url), (f"{RESULTS}/{name}{REFUSED}", why), self.patience)

    def _adopt_later(self, name: str) -> None:
        """Bring home what came after a result: pictures, logs.

        Raises:
            StoreError: it is damaged; the splat is here all the same.
        """
        result = name.rpartition(".")[0]
        if result not in self._arrived:
            return
        mine = {one.number: folder for folder, one in self._arrivals() if one.result == result and not one.has_all}
        if not mine:
            return
        place = f"{exchange.LATER}/{name}"
        returned = TransferResult.from_record(ask(partial(exchange.read_result, self.url), place, self.patience))
        for piece in returned.pieces:
            if not is_following(piece):
                raise StoreError(f"{piece.name!r} is in none of the folders {', '.join(exchange.FOLLOWING)}")
        for one in returned.attempts:
            if folder := mine.get(one.number):
                blobs.lay(one.pieces, self._fetched(one.pieces, returned.task), folder.path, shutil.copyfile)
        self._awaited.discard(result)
        for folder in mine.values():
            arrival = Arrival.read(folder.brought) or Arrival()
            write_json(folder.brought, replace(arrival, has_all=True).to_record())

    def _arrivals(self) -> list[tuple[AttemptFolder, Arrival]]:
        places = self.batch.output.path.glob(f"patches/*/{ATTEMPT_PREFIX}*/brought.json")
        found = ((AttemptFolder(path.parent), Arrival.read(path)) for path in places)
        return [(folder, one) for folder, one in found if one is not None]


def _names(url: str, folder: str) -> list[str]:
    return list(store_at(url).names(folder))


def _manifest(url: str, name: str) -> dict[str, Any]:
    """Return a manifest; nothing of one that was altered."""
    try:
        return exchange.read_manifest(url, name)
    except CutOffError:
        raise
    except StoreError:
        return {}


def _packed(home: str, follows: dict[str, int], is_retry: bool, task: Task) -> dict[str, Any]:
    bundle, paths = bundle_of(task, home, follows[task.name], is_retry=is_retry)
    return {"bundle": bundle.to_record(), "paths": paths}


def _make_ours(folder: AttemptFolder, bundle: Bundle, returned: TransferResult, task: Task) -> None:
    """Write the orders of an attempt as home would have given them, and what is of home alone.

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
    is_same = (
        then.recipe == asked.recipe
        and then.surroundings == asked.surroundings
        and not is_trained_otherwise(then, asked)
    )
    if not is_same or any(then.files.get(key, (0, 0, ""))[2] != asked.files[key].sha256 for key in models):
        raise StoreError("the splat was trained from other inputs than its bundle")
    claim = Claimed(returned.worker, 0, bundle.follows)
    depends_on, changes = replace(asked, effective=then.effective), {**_since(bundle, task), **job.changes}
    job = replace(job, depends_on=depends_on, claim=claim, env={}, is_retry=bundle.is_retry, changes=changes)
    write_json(folder.job, job.to_record(), PRIVATE)
    folder.place_model(task.patch.sparse)
    if not folder.has_exited():
        write_json(folder.exit, ExitFacts(Lost(f"{returned.worker} did not report how the attempt ended")).to_record())


def _since(bundle: Bundle, task: Task) -> dict[str, Any]:
    """Return the settings of a bundle that are others at home by now: by its own an attempt is judged."""
    now = {name: getattr(task.yaml_settings.recipe, name).model_dump(mode="json") for name in RECIPE_SECTIONS}
    return {
        f"{name}.{key}": value
        for name in RECIPE_SECTIONS
        for key, value in bundle.settings.get(name, {}).items()
        if key in now[name] and now[name][key] != value and (name, key) not in PLACES
    }


def tidy(output: OutputFolder) -> None:
    """Remove what is left of what was on its way home.

    Raises:
        OutputError: it cannot be removed.
    """
    try:
        shutil.rmtree(output.arriving)
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(f"{output.arriving}: cannot be removed ({error.strerror})") from error
