"""`work`: one worker of a batch, of as many as somebody starts on whatever machines see the output folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from splatbatch import __version__, terminal
from splatbatch.commands.output import print_warnings, tell
from splatbatch.commands.quality.inspect import wanted_by
from splatbatch.commands.train.afterwards import Night, follow, inspection_left_out, publish_as_asked
from splatbatch.commands.train.summary import Run, Stand, conclude, in_words, write_the_report
from splatbatch.engines.crew import Crew
from splatbatch.engines.engine import JOB, TERMS
from splatbatch.errors import ExecutorError, OutputError, SplatbatchError
from splatbatch.files import sweep
from splatbatch.machine.place import given_cards
from splatbatch.monitor.console import open_listener
from splatbatch.monitor.prometheus import MetricsFile
from splatbatch.night.decided import (
    Looked,
    Looking,
    Wish,
    look_anew,
    mend,
    note_outdated,
    refuse,
    settle_standing,
    tell_faults,
)
from splatbatch.night.ends import AGAIN
from splatbatch.night.interruption import Interruption
from splatbatch.outcome import Outcome
from splatbatch.plain_text import moment, one_line
from splatbatch.reader import Patience, ToldToStop
from splatbatch.scheduler import session
from splatbatch.scheduler.running import Rounds
from splatbatch.scheduler.work.adopt import adopt_task
from splatbatch.scheduler.work.claiming import Claiming, Snapshot
from splatbatch.scheduler.work.left import Left
from splatbatch.scheduler.work.others import PREPARATION, Waits, see_no_workers, see_same_terms
from splatbatch.scheduler.work.past import Past
from splatbatch.scheduler.work.time_left import TimeLeft
from splatbatch.store.claims.claims import PREPARING, Claim, Claims
from splatbatch.store.claims.workers import Presence, Watcher
from splatbatch.store.events import Awaited
from splatbatch.store.ledger import Ledger
from splatbatch.tasks import plan as planning
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.fingerprints.contents import Contents
from splatbatch.tasks.partition.backdrop import needed_first
from splatbatch.tasks.task import Task

CANCELLED = 143
"""Exit code of one that `cancel` has ended: nobody should start it again."""
WAIT_S = 0.2
PATIENCE_S = 5.0
"""So long the preparation by another worker is waited for without a word."""


def work(config: Path | None, names: Sequence[str], for_s: float | None, *, verify: bool) -> None:
    """Train what nobody else does, until nothing is left, the time is up, or somebody says stop."""
    terminal.never_block()
    batch = _open(config, names)
    print_warnings(batch.config.warnings)
    batch.output.create()
    interruption = Interruption()
    watcher = Watcher(batch.output)
    _see_terms_asked(os.environ.get(TERMS, ""), batch.terms, batch.path)
    with Presence(batch.output, terms=batch.terms) as presence:
        see_same_terms(watcher, presence.record, presence.beat, _say)
        worker = Worker(batch, presence, watcher, TimeLeft.of(batch, for_s), interruption)
        code = worker.work(Wish(verify=verify))
    if code in (0, SplatbatchError.exit_code):
        _follow(Night(batch, code, interruption))
    raise typer.Exit(code)


def _follow(night: Night) -> None:
    """Do what follows the training, if no other worker is at it any more, and show it in the report."""
    batch = night.batch
    if not (batch.config.publish.formats or wanted_by(batch.whole())):
        return
    try:
        see_no_workers(Watcher(batch.output), lambda: None, tell)
    except OutputError:
        what = "publishes" if batch.config.publish.formats else "says what is not inspected"
        tell(f"others are at work: the last of them {what}")
        return
    afterwards = follow(night, inspection_left_out(batch), publish_as_asked)
    whole = batch.whole()
    write_the_report(whole, whole.standing())
    for one in afterwards:
        typer.echo(in_words(one), err=not one.is_done)


@dataclass(frozen=True)
class Desk:
    """What a worker works with in each round."""

    claims: Claims
    ledger: Ledger
    wish: Wish
    beat: Callable[[], None]
    forget: Callable[[], None]
    """Lets what is shown look at every file anew."""


@dataclass
class Worker:
    """One worker, from its first look at the batch to its last."""

    batch: Batch
    presence: Presence
    watcher: Watcher
    time_left: TimeLeft
    interruption: Interruption
    was_cancelled: bool = False
    is_over: bool = False
    """Our time did not hold another task."""

    def work(self, wish: Wish) -> int:
        """Train; return the exit code."""
        output, whole = self.batch.output, self.batch.whole()
        claims = Claims(output, self.presence, self.watcher.is_gone)
        contents, shown, left = Contents(self.batch), whole.standing(), Left.of(self.batch)
        metrics = MetricsFile(output, whole.names, shown)
        with open_listener(output, whole.names, shown) as console:
            listeners = (console.tell, contents.tell)
            ledger = Ledger(output.ledger_of(self.presence.name), *listeners, generation_of=claims.generation)

            def beat() -> None:
                self.presence.beat()
                console.beat()
                metrics.beat()
                contents.beat()

            def forget() -> None:
                settle_standing(whole, shown, Patience(self.presence.beat, self.stop, _say))

            desk = Desk(claims, ledger, wish, beat, forget)
            run = self._round(desk, self.batch.names)
            if run.outdated and not self.stop():
                run = run.then(self._round(desk, run.outdated))
            if not (is_stopped := bool(self.stop())):
                with suppress(ToldToStop):
                    contents.finish(Patience(beat, self.stop, _say))
        look_anew(whole, shown)
        metrics.close(but=self.presence.name)
        if is_stopped:
            return CANCELLED if self._is_cancelled() else AGAIN
        run = replace(run, fresh=tuple(self.batch.names))  # whoever has trained them
        code = conclude(self.batch, run, Stand.of(self.batch, run, shown), shown)
        if not left.names(shown):
            _take_back(self.batch, os.environ.get(JOB, ""))
        return AGAIN if code and self.is_over else code

    def _round(self, desk: Desk, names: Sequence[str]) -> Run:
        """Decide on tasks, and train those that nobody else does."""
        with self._preparing(desk) as is_ours:
            if not is_ours:
                return Run()
            batch = _open(self.batch.path, names)  # with what others have settled by now
            try:
                before, looked = self._prepare(desk, batch)
                desk.forget()
                settle_standing(batch, looked.standing, Patience(desk.beat, self.stop, _say))
            except ToldToStop as told:
                return Run(stopped=str(told))
        past = Past(batch.output, batch.output.ledger_of(self.presence.name))

        def settle_task(task: Task) -> None:
            adopt_task(looked.batch, task, desk.ledger, looked.standing.endings, desk.beat)

        claiming = Claiming(self.presence.name, desk.claims, before, looked.standing, past, settle_task)
        claiming.will_hold = self.time_left.holds
        claiming.waits = Waits(self.watcher, lambda words: desk.ledger.write(Awaited(words))).on
        outcomes = self._train(desk, looked, claiming)
        self.is_over |= claiming.is_over
        fresh = planning.fresh(looked.decisions)
        return Run((*fresh, *claiming.trained_elsewhere), outcomes, outdated=claiming.outdated(fresh))

    def _train(self, desk: Desk, looked: Looked, claiming: Claiming) -> Mapping[str, Outcome]:
        todo = looked.todo
        if todo.tasks:
            refused = refuse(looked, desk.ledger, verify=desk.wish.verify)
            todo = todo.only(name for name in todo.names if name not in refused)
        for name in set(claiming.claims.mine()) - set(todo.names):  # what the dead had left of it was all it needed
            claiming.close(name)
        rounds = Rounds(self.stop, desk.beat, claimer=claiming, requests=self._requests, is_alone=False)
        rounds = replace(rounds, audited=looked.audited)
        faults = tell_faults(looked, desk.ledger)
        return {**faults, **session.run(todo, desk.ledger, rounds)} if todo.tasks else faults

    def stop(self) -> str:
        """Return why to stop; empty to go on."""
        return self.interruption.reason() or ("its time is up" if self.time_left.is_up() else "")

    def _requests(self) -> list[Path]:
        requests = self.batch.output.cancels(self.presence.name)
        self.was_cancelled |= any(not self.batch.output.read_cancel(one).patches for one in requests)
        return requests

    def _is_cancelled(self) -> bool:
        """Return whether `cancel` is what ended us, also if its signal came before we read its file."""
        self._requests()
        return self.was_cancelled

    @contextmanager
    def _preparing(self, desk: Desk) -> Iterator[bool]:
        """Let one worker after the other prepare; give False if it was told to stop meanwhile."""
        waits, began = Waits(self.watcher, lambda words: desk.ledger.write(Awaited(words))), time.monotonic()
        while not isinstance(held := desk.claims.take(PREPARING), Claim):
            if self.stop():
                yield False
                return
            waits.on(held, PREPARATION, though_well=time.monotonic() - began > PATIENCE_S)
            desk.beat()
            time.sleep(WAIT_S)
        try:
            yield True
        finally:
            desk.claims.close(PREPARING)

    def _prepare(self, desk: Desk, batch: Batch) -> tuple[Snapshot, Looked]:
        """Settle what workers that are gone have left, mend products, and decide; return how far all was before."""
        standing, claims = batch.standing(), desk.claims
        for task in batch.tasks:
            sweep(batch.output.patch(task.name).path, spares_living=True)
            if self._has_leftovers(task, standing.endings.is_judged) and isinstance(claims.take(task.name), Claim):
                adopt_task(batch, task, desk.ledger, standing.endings, self.presence.beat)
        patience = Patience(self.presence.beat, self.stop, _say)
        mend(batch, desk.ledger, patience)
        before = Snapshot.of(claims, batch.output, batch.names)
        looking = Looking(desk.wish, patience)
        looked = looking.settle(looking.look(batch))
        note_outdated(looked, patience)
        return before, looked

    def _has_leftovers(self, task: Task, is_judged: Callable[[str, int], bool]) -> bool:
        attempts = self.batch.output.patch(task.name).attempts()
        return any(not is_judged(task.name, one.number) and not one.never_starts() for one in attempts)


def _open(config: Path | None, names: Sequence[str]) -> Batch:
    """Open the batch, to be trained on the GPUs that were given to us where the YAML leaves that open."""
    batch = needed_first(open_batch(config, names))
    given = given_cards(os.environ.get("CUDA_VISIBLE_DEVICES"))
    if batch.config.executor.gpus != "auto" or given is None:
        return batch
    executor = batch.config.executor.model_copy(update={"gpus": given})
    return replace(batch, config=batch.config.model_copy(update={"executor": executor}))


def _take_back(batch: Batch, handle: str) -> None:
    """Have our engine start none of those that were to follow us: nothing is left for them."""
    crew = Crew(batch.config.executor, batch.output)
    for one in crew.submissions:
        has_more = handle in one.handles and len(one.handles) > one.record.num_workers
        if has_more and one.is_first_to_drop():  # sites forbid to ask often
            crew.engine(one.record.engine).drop(one)


def _see_terms_asked(asked: str, terms: str, path: Path) -> None:
    """See that we train by what stood in the YAML, and with the version, when an engine was asked for us.

    Raises:
        ExecutorError: we would not.
    """
    if asked not in ("", terms):
        raise ExecutorError(
            f"{path}: this worker was asked for by another YAML, or with another version than {__version__} here",
            "Put it back as it was; or end the others with `splatbatch cancel`, and `splatbatch train` again.",
        )


def _say(words: str) -> None:
    typer.echo(f"{moment(time.time())} {one_line(words)}", err=True)
