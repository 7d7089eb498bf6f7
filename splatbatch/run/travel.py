"""Commands of a store at home: pack tasks into it, adopt results from it, show its state, close its bundles.

A courier is a helper process that makes the calls to a store, so that its caller never hangs; see `transfer.courier`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from splatbatch.errors import StoreError
from splatbatch.isolated import WaitHooks
from splatbatch.monitor.messages import log_line, print_err
from splatbatch.output.ledger import Ledger
from splatbatch.run.context import RunContext, RunResult, RunSummary, status
from splatbatch.run.decide import (
    TrainOptions,
    assess_and_audit,
    make_shared_decisions,
    record_rejections,
    restore_missing_products,
)
from splatbatch.run.follow_ups import Show
from splatbatch.run.interruption import Interruption
from splatbatch.run.store_home import HomeSide
from splatbatch.scheduler.work.adopt import adopt as adopt_left
from splatbatch.scheduler.work.exclusive_output import lock_output
from splatbatch.tasks.batch import Batch
from splatbatch.transfer import blobs, courier, exchange
from splatbatch.transfer.exchange import CLOSED, StoreWatch
from splatbatch.transfer.schemes import absolute_url


@dataclass(frozen=True)
class PackOutput:
    """Output of `pack --json`: what was packed, and why the other tasks were not."""

    store: str
    packed: tuple[str, ...]
    """Tasks whose bundles lie in the store, to be trained."""
    trained: tuple[str, ...]
    """Tasks whose splats lie in the store; `splatbatch adopt` fetches them."""
    waiting: tuple[str, ...]
    """Tasks that are not packed yet: they need the products of other tasks, which must come home first."""
    fresh: tuple[str, ...]
    """Tasks that are up to date in the output folder; also those given up, or whose reader or audit failed or hung."""
    refused: tuple[str, ...]
    """Tasks that the audit refuses; `verify-dims` says why."""


def pack(batch: Batch, url: str) -> PackOutput:
    """Put the tasks to train into a store, after the same decisions and audit as for a training here.

    Returned is which tasks were packed, and why others were not. A store that does not answer is waited for without
    limit.

    Raises:
        ConfigError, TrainerError: the URL is not valid, or a library for this kind of store is not installed.
        SplatbatchError: another run trains into the folder, a file cannot be read, or the store refuses access.
        OSError: the record home.json cannot be written. Other errors: see `Courier.run`.
        Interrupted: a signal ended the packing.
    """
    batch = batch.with_required()
    batch.output.create()
    with Interruption() as interruption, lock_output(batch, print_err) as ours:
        patience = WaitHooks(ours.heartbeat, interruption.reason, print_err)
        ledger = Ledger(batch.output.ledger, generation_of=ours.generation)
        adopt_left(batch, ledger, patience)
        restore_missing_products(batch, ledger, patience)
        decisions = make_shared_decisions(assess_and_audit(batch, TrainOptions(), patience), patience)
        refused = record_rejections(decisions, ledger, verify=True) if decisions.todo.tasks else {}
        todo = decisions.todo.only(name for name in decisions.todo.names if name not in refused)
        home = HomeSide(todo, url, ledger, patience)
        with contextlib.closing(home.courier):
            packed = home.pack()
    due = {*home.waiting, *refused}
    return PackOutput(
        store=home.url,
        packed=tuple(name for name, is_trained in packed.items() if not is_trained),
        trained=tuple(name for name, is_trained in packed.items() if is_trained),
        waiting=tuple(name for name in home.waiting if name not in packed),
        fresh=tuple(name for name in batch.names if name not in due),
        refused=tuple(refused),
    )


def adopt(batch: Batch, url: str, show: Show, *, watch: bool) -> RunSummary:
    """Fetch the results that a store holds for a batch, and judge them; return the summary of the run.

    With `watch`, wait until no bundle of the batch is open any more. A store that does not answer is waited for without
    limit; a signal ends each wait, and raises nothing. `show` is called with the summary.

    Raises:
        ConfigError, TrainerError: the URL is not valid, or a library for this kind of store is not installed.
        SplatbatchError: another run trains into the folder, or the store refuses access.
        OSError: the record home.json cannot be written. Other errors: see `Courier.run`.
    """
    batch.output.create()
    with Interruption() as interruption:
        with (
            lock_output(batch, print_err) as ours,
            RunContext.open(batch, interruption, show, ours) as context,
        ):
            hooks = WaitHooks(context.tick, interruption.reason, log_line)
            HomeSide(batch, url, context.ledger, hooks).follow(packs=False, watch=watch)
            context.finish_contents(WaitHooks(context.tick, interruption.reason, print_err))
            context.shown.forget()
            ended = RunSummary(batch, RunResult(tuple(batch.names)), status(batch.whole(), context.shown))
        return context.end(ended)


@dataclass(frozen=True)
class BundleFacts:
    """State of a task in a store, with the worker that trains it.

    `worker` is empty unless the state is "at work" or "silent". `step` is null until that worker reports a step;
    `max_steps` is 0 if the bundle does not say.
    """

    task: str
    home: str
    """Name of the output folder that the task belongs to, by home.json; empty: the bundle was altered."""
    state: str
    """State in a word: waiting, at work, silent, trained, failed, closed, or altered by someone in the store."""
    worker: str
    step: int | None
    max_steps: int
    claims: int
    """Number of times that workers have claimed the task."""
    results: tuple[str, ...]
    """Outcome of each result of the task in the store; empty: there is no result yet."""


@dataclass(frozen=True)
class StoreFacts:
    """Output of `status STORE --json`: the bundles of a store, sorted by home and task, and its workers."""

    store: str
    bundles: tuple[BundleFacts, ...]
    workers: tuple[exchange.WorkerStatus, ...]
    """Workers that have not said that they ended; a worker that died may be among them."""


def status_of(url: str) -> StoreFacts:
    """Return the current state of all bundles and workers of a store; needs no output folder.

    `url` is the store's; a relative path counts from the working folder. A store that does not answer is waited for
    without limit.

    Raises:
        ConfigError: the URL is not valid.
        TrainerError: a library for this kind of store is not installed.
        StoreError: the store refuses access.
        Interrupted: a signal ended the wait.
    """
    with _courier(url) as ours:
        seen = exchange.listing(ours)
        bundles = exchange.bundles_at(ours, [*seen.bundles])
    watch, found = StoreWatch(), []
    for name, one in seen.bundles.items():
        bundle = bundles[name]
        sign = seen.signs.get(one.worker, exchange.WorkerStatus())
        state = watch.state_of(name, one) if bundle.home else "altered"
        found.append(
            BundleFacts(
                bundle.task or name,
                bundle.home,
                state,
                one.worker if state in ("at work", "silent") else "",
                sign.step if sign.bundle == name else None,
                bundle.max_steps,
                one.generation,
                tuple(one.results.values()),
            )
        )
    workers = tuple(one for one in seen.signs.values() if not one.has_ended)
    return StoreFacts(ours.url, tuple(sorted(found, key=lambda one: (one.home, one.task))), workers)


def cancel_in(url: str, names: Iterable[str]) -> list[str]:
    """Close the open bundles of some tasks in a store, or all if none is named; return the names of the tasks, sorted.

    A worker that trains a closed bundle stops when it next writes its heartbeat, every 10 s. A store that does not
    answer is waited for without limit.

    Raises:
        ConfigError: the URL is not valid.
        TrainerError: a library for this kind of store is not installed.
        StoreError: the store refuses access, or holds no open bundle of a named task.
        Interrupted: a signal ended the wait.
    """
    wanted = set(names)
    with _courier(url) as ours:
        left = [name for name, one in exchange.listing(ours).bundles.items() if one.is_open]
        tasks = {name: one.task or name for name, one in exchange.bundles_at(ours, left).items()}
        chosen = {name: task for name, task in tasks.items() if not wanted or task in wanted}
        if lacking := wanted - set(chosen.values()):
            raise StoreError(
                f"{url}: no open task {', '.join(sorted(lacking))} in this store", f"See `splatbatch status {url}`."
            )
        ours.ask(blobs.put, [(f"{CLOSED}/{name}", b"cancelled") for name in chosen])
    return sorted(chosen.values())


@contextlib.contextmanager
def _courier(url: str) -> Iterator[courier.Courier]:
    """Open a courier to a store for the time of a command; Ctrl-C ends its waits."""
    with Interruption() as interruption:
        hooks = WaitHooks(stop=interruption.reason, tell=print_err)
        with contextlib.closing(courier.Courier(absolute_url(url, Path.cwd()), hooks)) as ours:
            yield ours
