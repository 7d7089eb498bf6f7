"""`train` and `retry`: the commands that train."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from splatbatch import config as configuration
from splatbatch import terminal
from splatbatch.commands.look import print_plan
from splatbatch.commands.output import print_warnings, tell
from splatbatch.commands.quality.inspect import inspect_wanted
from splatbatch.commands.train.afterwards import After, Night, follow, publish_as_asked
from splatbatch.commands.train.summary import (
    Run,
    Stand,
    check_savable,
    conclude,
    print_retried,
    statuses_of,
    tell_the_end,
)
from splatbatch.config import Executor
from splatbatch.errors import ConfigError, SplatbatchError
from splatbatch.monitor.console import open_listener
from splatbatch.monitor.notify import Notifier
from splatbatch.monitor.prometheus import MetricsFile
from splatbatch.monitor.sinks import End, MlflowSink, Sinks
from splatbatch.night.decided import (
    Looking,
    Wish,
    look_anew,
    mend,
    note_outdated,
    refuse,
    settle_standing,
    tell_faults,
)
from splatbatch.night.decoding import Decoding
from splatbatch.night.interruption import Interruption
from splatbatch.outcome import Failed
from splatbatch.reader import Patience, ToldToStop
from splatbatch.scheduler import session
from splatbatch.scheduler.running import Rounds
from splatbatch.scheduler.scene import attempt
from splatbatch.scheduler.work.adopt import adopt, adopt_task
from splatbatch.scheduler.work.claiming import Claiming, Snapshot
from splatbatch.scheduler.work.holding import held
from splatbatch.scheduler.work.others import Waits
from splatbatch.scheduler.work.past import Past
from splatbatch.store.claims.claims import Claims
from splatbatch.store.claims.workers import LOCAL, Watcher
from splatbatch.store.events import Awaited, NotifyFailed, StillGivenUp
from splatbatch.store.ledger import Ledger
from splatbatch.store.records.result import Result
from splatbatch.tasks import plan as planning
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.fingerprints.contents import Contents
from splatbatch.tasks.partition.backdrop import needed_first
from splatbatch.tasks.status import summary
from splatbatch.tasks.task import Task


def is_elsewhere(executor: Executor) -> bool:
    """Return whether workers train a batch, and not `train` itself."""
    return executor.engine != "local" or executor.workers > 1


def dry_run(config: Path | None, names: Sequence[str], only: Sequence[str]) -> None:
    """Say what would be trained."""
    print_plan(open_batch(config, names, conditions=only), as_json=False)


def train(
    config: Path | None, names: Sequence[str], only: Sequence[str], *, verify: bool, after: After = publish_as_asked
) -> None:
    """Train what is not trained, and do what follows; exit with 0 if every patch is trained, with 1 if not."""
    batch = open_batch(config, names, conditions=only)
    if is_elsewhere(batch.config.executor):
        from splatbatch.commands.train import follow

        return follow.train(batch, names, only, verify=verify, after=after)
    _train(needed_first(batch), Wish(verify=verify), after)


@dataclass(frozen=True)
class RetryOptions:
    """What `retry` was asked."""

    failed: bool
    assignments: tuple[str, ...]
    force: bool
    only: tuple[str, ...] = ()
    save: bool = False
    """Write the settings into the YAML."""


def retry(config: Path | None, names: Sequence[str], options: RetryOptions) -> None:
    """Train named or failed patches again.

    Raises:
        ConfigError: no patch is named, or a named one is trained and fresh, and no setting would change.
    """
    changes = dict(configuration.parse_change(assignment) for assignment in options.assignments)
    batch = open_batch(config, names, changes, options.only)
    if options.save:
        check_savable(batch)
    if options.failed:
        states = {one.patch: one.state for one in statuses_of(batch)}
        batch = batch.only(name for name, state in states.items() if state in TO_RETRY)
        if not batch.tasks:
            typer.echo("no failed patch to retry", err=True)
            return
    elif not names and not options.only:
        raise ConfigError("retry: no patch named", "Name one, as retry p5, or take all failed ones with --failed.")
    if done := () if options.force else _trained_so_already(batch):
        raise ConfigError(
            f"{', '.join(done)}: trained and fresh already" + (", with these settings" if changes else ""),
            "Add --force to train it again.",
        )
    wish = Wish(force=options.force or bool(changes), is_retry=True)
    _train(needed_first(batch), wish, publish_as_asked, save=options.save)


TO_RETRY = ("failed", "stopped")


def _trained_so_already(batch: Batch) -> tuple[str, ...]:
    """Return the patches that are fresh and were trained under the changes that are asked for."""
    standing = batch.standing("content")
    effective = {name: standing.hash_of(recipe) for name, recipe in batch.recipes().items()}
    fresh = planning.fresh([standing.decide(name) for name in batch.names])
    results = {name: standing.evidence(name).result or Result() for name in fresh}
    return tuple(
        name
        for name, result in results.items()
        if not batch.changes or effective[name] == result.trained_from.effective
    )


def _train(batch: Batch, wish: Wish, after: After, *, save: bool = False) -> None:
    terminal.never_block()
    print_warnings(batch.config.warnings)
    interruption, whole = Interruption(), batch.whole()
    names, standing, contents = whole.names, whole.standing(), Contents(batch)
    batch.output.create()
    notifier = Notifier(batch.config.notify, batch.output, names, standing)
    sinks = Sinks([MetricsFile(batch.output, names, standing), _mlflow(batch), notifier])
    with (
        held(batch.output, batch.terms, tell) as ours,
        open_listener(batch.output, names, standing) as console,
    ):
        listeners = (console.tell, contents.tell, sinks.tell)
        ledger = Ledger(batch.output.ledger, *listeners, generation_of=ours.claims.generation)

        def beat() -> None:
            ours.beat()
            console.beat()
            contents.beat()
            for reason in sinks.beat():
                ledger.write(NotifyFailed(reason))

        forget = partial(settle_standing, whole, standing, Patience(ours.beat, interruption.reason, tell))
        hooks = Hooks(interruption.reason, beat, ours.beat, contents.want, forget)
        try:
            run = _run(batch, ledger, wish, hooks, ours.claims)
        except SplatbatchError as error:  # as for a GPU that is gone: who waits to be told hears that, too
            tell_the_end(sinks, End(f"ended with an error: {error.message}"), interruption, batch.config)
            raise
        inspected = inspect_wanted(batch, attempt.Hooks(hooks.stop, hooks.beat))
        if not run.stopped:
            with contextlib.suppress(ToldToStop):  # the next run reads on
                contents.finish(Patience(hooks.beat, hooks.stop, tell))
    look_anew(whole, standing)
    stand = Stand.of(batch, run, standing)
    afterwards = follow(Night(batch, stand.code, interruption), inspected, after)
    code = conclude(batch, run, stand, standing, afterwards)
    end = End(summary(stand.statuses), interruption.reason(), afterwards)
    tell_the_end(sinks, end, interruption, batch.config)
    if wish.is_retry:
        print_retried(batch, run, save=save)
    raise typer.Exit(interruption.exit_code if interruption.signal else code)


def _mlflow(batch: Batch) -> MlflowSink:
    def settings() -> dict[str, dict[str, Any]]:
        return {task.name: task.asked.recipe.settings() for task in batch.tasks}

    return MlflowSink(batch.config.tracking, batch.output, batch.path.resolve().parent, settings)


@dataclass(frozen=True)
class Hooks:
    """What is asked and called while a batch is prepared and trained."""

    stop: Callable[[], str]
    """Asked whether to stop, and why."""
    beat: Callable[[], None]
    keep_lock: Callable[[], None]
    """While earlier attempts are settled, nothing is shown yet."""
    fill: Callable[[str], None]
    """Takes a patch whose result knows too little of its files."""
    forget: Callable[[], None]
    """Lets what is shown look at every file anew."""


def _run(batch: Batch, ledger: Ledger, wish: Wish, hooks: Hooks, claims: Claims) -> Run:
    """Settle what an earlier run has left, decide, and train; where the backdrop is a new one, what was fresh, too."""
    patience = Patience(hooks.keep_lock, hooks.stop, tell)
    try:
        faults = adopt(batch, ledger, patience)
        mend(batch, ledger, patience)
    except ToldToStop as told:
        return Run(stopped=str(told))
    kept = {name: Failed(fault) for name, fault in faults.items() if not wish.is_retry}
    others = batch.only(name for name in batch.names if name not in kept)
    run = _train_stale(others, ledger, wish, hooks, claims)
    run = replace(run, outcomes={**kept, **run.outcomes})
    if run.stopped or not run.outdated:
        return run
    return run.then(_train_stale(batch.only(run.outdated), ledger, replace(wish, force=False), hooks, claims))


def _train_stale(batch: Batch, ledger: Ledger, wish: Wish, hooks: Hooks, claims: Claims) -> Run:
    """Decide, and train what is to be trained."""
    before = Snapshot.of(claims, batch.output, batch.names)
    patience = Patience(hooks.keep_lock, hooks.stop, tell)
    looking = Looking(wish, patience)
    try:
        looked = looking.settle(looking.look(batch))
        for name in note_outdated(looked, patience):
            hooks.fill(name)
        hooks.forget()
        settle_standing(looked.batch, looked.standing, patience)
    except ToldToStop as told:
        return Run(stopped=str(told))
    for name, reason in planning.given_up(looked.decisions).items():
        ledger.write(StillGivenUp(name, reason))
    outcomes, todo = dict(tell_faults(looked, ledger)), looked.todo

    def settle(task: Task) -> None:
        adopt_task(looked.batch, task, ledger, looked.standing.endings, hooks.keep_lock)

    past = Past(batch.output, batch.output.ledger, is_alone=True)
    claiming = Claiming(LOCAL, claims, before, looked.standing, past, settle)
    claiming.waits = Waits(Watcher(batch.output), lambda words: ledger.write(Awaited(words))).on
    if todo.tasks:
        refused = refuse(looked, ledger, verify=wish.verify)
        todo = todo.only(name for name in todo.names if name not in refused)
    if todo.tasks:
        with Decoding(todo.tasks if wish.verify else ()) as decoding:
            rounds = Rounds(hooks.stop, hooks.beat, decoding.refused, claiming, audited=looked.audited)
            outcomes |= session.run(todo, ledger, rounds, is_retry=wish.is_retry)
    fresh = planning.fresh(looked.decisions)
    return Run((*fresh, *claiming.trained_elsewhere), outcomes, hooks.stop(), claiming.outdated(fresh))
