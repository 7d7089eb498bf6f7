"""Tasks that travel: packed into a store, trained by whoever works there, adopted here until nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from splatbatch import processes
from splatbatch.errors import StoreError
from splatbatch.isolated import StopRequested, WaitHooks
from splatbatch.monitor.messages import log_line, print_err
from splatbatch.output.events import CancelRequested, Notice
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.run import RunIdentity
from splatbatch.run.context import RunContext, RunResult, RunSummary, metrics, people
from splatbatch.run.decide import DecisionMaker, TrainOptions, record_rejections, restore_missing_products
from splatbatch.run.follow_ups import Show
from splatbatch.run.interruption import Interruption
from splatbatch.run.store_home import HomeSide, tidy
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.work.adopt import adopt as adopt_left
from splatbatch.scheduler.work.exclusive_output import lock_output
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.task import TRAINING, Task
from splatbatch.text import plural
from splatbatch.transfer import blobs, courier, exchange
from splatbatch.transfer.exchange import CLOSED, FINAL, BundleState, StoreListing, StoreWatch
from splatbatch.transfer.schemes import anchored

LOOK_S = 2.0
"""Between two looks at a store."""
PICTURES_S = 30.0
"""So long pictures are waited for once all splats are home; the next look brings what comes later."""


@dataclass
class TransferRun:
    """Has tasks trained by way of a store, and follows them until each has come home, or does not come."""

    url: str
    batch: Batch
    ledger: Ledger
    rounds: RunHooks
    is_retry: bool = False
    packs: bool = True
    """What is to be trained is packed; else only what is under way is followed."""
    home: HomeSide = field(init=False)
    _waiting: dict[str, Task] = field(init=False)
    _packed: set[str] = field(default_factory=set)
    _cancelled: bool = False
    _said: str = ""

    def __post_init__(self) -> None:
        url = anchored(self.url, self.batch.path.resolve().parent)
        patience = WaitHooks(self.rounds.tick, self.rounds.stop, log_line)
        self.home = HomeSide(self.batch, url, self.ledger, patience)
        self._waiting = {task.name: task for task in self.batch.tasks if task.kind is TRAINING}

    def follow(self, *, watch: bool = True) -> list[str]:
        """Return the tasks whose splats have come home, and count.

        Args:
            watch: wait for what is under way; else only what has come is adopted.

        Raises:
            StoreError: the store refuses us.
        """
        done, patience = list[str](), WaitHooks(self._tick, self.rounds.stop)
        try:
            while True:
                seen = self.home.look()
                done += self._take(seen)  # what came while nobody was here is not trained again
                self._pack()
                if self._waiting or not self.packs:
                    self._tell(seen)
                is_under_way = self.packs or any(seen.state(name).is_open for name in self.home.bundles)
                if not (watch and self._waiting and is_under_way):
                    break
                courier.pause(LOOK_S, patience)
            end = time.monotonic() + PICTURES_S
            while watch and self.home.awaited and time.monotonic() < end:
                self.home.adopt(self.home.look())
                courier.pause(1.0, patience)
        except StopRequested:
            if not self._cancelled:
                print_err(
                    "workers of the store keep running; "
                    "fetch their splats with `splatbatch train` or `splatbatch adopt`"
                )
        finally:
            self.home.courier.close()
            tidy(self.batch.output)
        return done

    def _pack(self) -> None:
        """Pack what has not travelled yet, and whose needs have come home."""
        todo = [task for task in self._waiting.values() if task.name not in self._packed] if self.packs else []
        ready = [task for task in todo if not self._waiting.keys() & set(task.kind.needs(task))]
        if ready:
            packed = self.home.pack(ready, is_retry=self.is_retry)
            self._packed |= packed.keys()
            self.ledger.write(Notice("workers_seen", f"{plural(len(packed), 'task')} packed for {self.home.url}"))

    def _take(self, seen: StoreListing) -> list[str]:
        """Adopt what has come; return the tasks whose splats count."""
        came, done = self.home.adopt(seen), []
        standing = self.batch.standing()
        for name, outcome in came:
            is_done = name in self._waiting and standing.is_up_to_date(name)
            if is_done:
                done.append(name)
            if is_done or outcome in FINAL:  # it may be a second result, of a task whose splat is home already
                self._waiting.pop(name, None)
        damaged = {name for name, outcome in came if outcome == "damaged"}
        self.home.heal([task for name, task in self._waiting.items() if name in damaged])
        for bundle, why in self.home.spent(seen).items():
            name = self.home.bundles[bundle].task
            log_line(f"{name}: {why}")
            self.home.close([bundle], why)
            self._waiting.pop(name, None)
        for name in self._closed_by_others(seen):
            log_line(f"{name}: another `splatbatch` command closed this task in the store")
            self._waiting.pop(name, None)
        return done

    def _closed_by_others(self, seen: StoreListing) -> list[str]:
        """Return the tasks without an open bundle, although no final result has come since they were packed."""
        states: dict[str, list[BundleState]] = {}
        for name, bundle in self.home.bundles.items():
            states.setdefault(bundle.task, []).append(seen.state(name))
        is_shut = {task: all(one.is_closed and not one.is_final for one in ours) for task, ours in states.items()}
        return [name for name in self._waiting if is_shut.get(name) and (name in self._packed or not self.packs)]

    def _tell(self, seen: StoreListing) -> None:
        """Say who is at what, if that is another state than before."""
        states = Counter(self.home.watch.state_of(name, seen.state(name)) for name in self.home.bundles)
        at_work = [one for one in seen.signs.values() if one.bundle in self.home.bundles and not one.has_ended]
        told = [f"{one.task} on {one.host}{f' at step {one.step}' if one.step else ''}" for one in at_work[:4]]
        if len(at_work) > len(told):
            told.append(f"and {len(at_work) - len(told)} more")
        counts = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        words = f"{counts}{': ' if told else ''}{', '.join(told)}"
        if words != self._said:
            self._said = words
            self.ledger.write(Notice("workers_seen", f"in the store: {words}"))

    def _tick(self) -> None:
        """Close what `cancel` asks to be left."""
        for request in (self.rounds.requests or self.batch.output.cancels)():
            asked, me = self.batch.output.read_cancel(request), os.getpid()
            if asked.run == RunIdentity(me, processes.boot_id(), processes.start_ticks(me)):
                self.ledger.write(CancelRequested(asked.by, asked.patches))
                names = set(asked.patches) or set(self._waiting)
                self.home.close([name for name, one in self.home.bundles.items() if one.task in names], "cancelled")
                self._waiting = {name: task for name, task in self._waiting.items() if name not in names}
                if not asked.patches:
                    self._cancelled = True
                    signal.raise_signal(signal.SIGTERM)
            request.unlink(missing_ok=True)
        self.rounds.tick()


@dataclass(frozen=True)
class PackOutput:
    """`pack --json`: what was packed."""

    store: str
    packed: tuple[str, ...]
    """Tasks whose bundles lie in the store, to be trained."""
    trained: tuple[str, ...]
    """Tasks whose splats lie in the store, to be adopted."""
    waiting: tuple[str, ...]
    """Tasks that need others first, which are to come home before them."""
    fresh: tuple[str, ...]
    """Tasks that have their splats here."""
    refused: tuple[str, ...]
    """By the audit; `verify-dims` says why."""


def pack(batch: Batch, url: str, *, verify: bool) -> PackOutput:
    """Put what is to be trained into a store, decided, audited and settled as for a night here.

    Raises:
        SplatbatchError: somebody trains into the folder, a file cannot be read, or the store refuses us.
    """
    batch = batch.needed_first()
    batch.output.create()
    with Interruption() as interruption, lock_output(batch.output, batch.plan_hash, print_err) as ours:
        patience = WaitHooks(ours.heartbeat, interruption.reason, print_err)
        ledger = Ledger(batch.output.ledger, generation_of=ours.generation)
        adopt_left(batch, ledger, patience)
        restore_missing_products(batch, ledger, patience)
        looking = DecisionMaker(TrainOptions(verify=verify), patience)
        looked = looking.settle(looking.look(batch))
        refused = record_rejections(looked, ledger, verify=verify) if looked.todo.tasks else {}
        todo = [task for task in looked.todo.tasks if task.name not in refused and task.kind is TRAINING]
        names = {task.name for task in todo}
        ready = [task for task in todo if not names.intersection(task.kind.needs(task))]
        home = HomeSide(looked.batch, url, ledger, patience)
        with contextlib.closing(home.courier):
            packed = home.pack(ready, is_retry=False)
            seen = home.look() if packed else StoreListing()
    trained = tuple(name for name, bundle in packed.items() if home.is_trained(bundle, seen))
    due = {*names, *refused}
    waiting = tuple(task.name for task in todo if task.name not in packed)
    fresh = tuple(name for name in batch.names if name not in due)
    still = tuple(name for name in packed if name not in trained)
    return PackOutput(home.url, still, trained, waiting, fresh, tuple(refused))


def adopt(batch: Batch, url: str, show: Show, *, watch: bool) -> RunSummary:
    """Bring home what a store holds for a batch; `watch`: until nobody trains any of it any more.

    Raises:
        SplatbatchError: somebody trains into the folder, or the store refuses us.
    """
    batch.output.create()
    with Interruption() as interruption:
        with (
            lock_output(batch.output, batch.plan_hash, print_err) as ours,
            RunContext.open(batch, interruption, show, (metrics, people), ours.heartbeat) as night,
        ):
            ledger = night.open_ledger(batch.output.ledger, ours)
            rounds = RunHooks(interruption.reason, night.tick)
            travel = TransferRun(url, batch, ledger, rounds, packs=False)
            travel.follow(watch=watch)
            night.finish_contents(WaitHooks(night.tick, interruption.reason, print_err))
            night.shown.forget()
            ended = RunSummary.of(batch, RunResult(tuple(batch.names)), night.shown)
        return night.end(ended)


@dataclass(frozen=True)
class BundleFacts:
    """A task in a store."""

    task: str
    home: str
    state: str
    worker: str
    step: int | None
    max_steps: int
    claims: int
    """So often a worker has begun it."""
    results: tuple[str, ...]
    """What has come of it, by each worker that brought something."""


@dataclass(frozen=True)
class StoreFacts:
    """`status STORE --json`."""

    store: str
    bundles: tuple[BundleFacts, ...]
    workers: tuple[exchange.WorkerStatus, ...]
    """Those that have not ended."""


def status_of(url: str) -> StoreFacts:
    """Return how all that a store holds stands now; asked from anywhere.

    Raises:
        StoreError: the store refuses us.
    """
    url = anchored(url, Path.cwd())
    with _courier(url) as ours:
        seen = exchange.listing(ours)
        told = ours.run(exchange.outline, seen.bundles)
    watch, found = StoreWatch(), []
    for (name, one), (task, home, max_steps) in zip(seen.bundles.items(), told, strict=True):
        sign = seen.signs.get(one.worker)
        step = sign.step if sign and sign.bundle == name else None
        state = watch.state_of(name, one) if home else "altered"
        worker = one.worker if state in ("at work", "silent") else ""
        found.append(BundleFacts(task, home, state, worker, step, max_steps, one.generation, tuple(one.outcomes)))
    workers = tuple(one for one in seen.signs.values() if not one.has_ended)
    return StoreFacts(url, tuple(sorted(found, key=lambda one: (one.home, one.task))), workers)


def cancel_in(url: str, names: Iterable[str]) -> list[str]:
    """Close the bundles of a store, or of some tasks; return the tasks. Workers leave them within seconds.

    Raises:
        StoreError: the store refuses us, or holds no such task.
    """
    wanted = set(names)
    with _courier(url) as ours:
        left = [name for name, one in exchange.listing(ours).bundles.items() if one.is_open]
        tasks = [task for task, *_ in ours.run(exchange.outline, left)]
        chosen = {name: task for name, task in zip(left, tasks, strict=True) if not wanted or task in wanted}
        if lacking := wanted - set(chosen.values()):
            raise StoreError(f"{url}: no open task {', '.join(sorted(lacking))} in this store")
        ours.ask(blobs.put, [(f"{CLOSED}/{name}", b"cancelled") for name in chosen])
    return sorted(chosen.values())


@contextlib.contextmanager
def _courier(url: str) -> Iterator[courier.Courier]:
    """Give what asks a store for a command; Ctrl-C ends it."""
    with Interruption() as interruption:
        hooks = WaitHooks(stop=interruption.reason, tell=print_err)
        with contextlib.closing(courier.Courier(anchored(url, Path.cwd()), hooks)) as ours:
            yield ours
