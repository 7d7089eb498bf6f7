"""How an attempt's end becomes history: collected by a reader, then written down; a kill at any moment is survived."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from splatbatch.failures.advice import EarlierFailure, PatchContext
from splatbatch.failures.signatures import own
from splatbatch.files import Record
from splatbatch.hashing import FileFacts
from splatbatch.outcome import Exit, Made, Outcome, Trained
from splatbatch.output import results, retention
from splatbatch.output.attempt_folder import Attempt
from splatbatch.output.events import AttemptEnded
from splatbatch.output.folders import PatchFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger, events
from splatbatch.output.records.attempt import AttemptFacts
from splatbatch.output.records.record import object_of, read_as
from splatbatch.scheduler import judge
from splatbatch.tasks.task import TRAINING, Task


@dataclass(frozen=True)
class FinishedAttempt:
    """An attempt that has ended, and what decides whether its splat becomes the product."""

    attempt: Attempt
    end: Exit
    task: Task
    home: PatchFolder
    """Of its task."""
    keeps_better: bool = True
    """`retry.keep: better`."""
    place: Callable[[str], str] | None = None
    """Where the files of the patch lie; None: what the manifests say of them is all."""
    counts: Callable[[], bool] | None = None
    """False for what was trained under settings or from inputs that are no longer those of the batch; None: it does."""


@dataclass(frozen=True)
class CollectResult:
    """An attempt as a reader has judged it."""

    outcome: Outcome
    said: dict[str, Any]
    """What the ledger says of it besides."""


def collect(ending: FinishedAttempt) -> Record:
    """Judge an attempt, and accept what it trained; return its outcome, and what the ledger says besides, as JSON.

    A reader does this. Until the ledger has the end on disk, a run that comes after a kill finds the attempt as it was,
    and collects it again.
    """
    folder, task = ending.attempt.folder, ending.task
    outcome = judge.judge(
        folder, task.maker, ending.end, partial(_background, ending), own(task.next_settings.config.failures)
    )
    facts = judge.facts(folder)
    judge.tidy(folder)
    said = _take_in(ending, outcome, facts) if isinstance(outcome, Trained) else {}
    if isinstance(outcome, Made):
        task.kind.keep(task, folder)
    elif isinstance(outcome, Trained):
        outcome = replace(outcome, splat=replace(outcome.splat, metrics={}))  # of which result.json tells
    return object_of(CollectResult(outcome, said | facts.to_record()))


def _background(ending: FinishedAttempt) -> PatchContext:
    """Return what is known of a patch whose attempt has failed: what its program reads, and how it failed before."""
    task, name = ending.task, ending.attempt.folder.task
    if task.kind is not TRAINING:
        return PatchContext(name)
    recipe, past = task.next_settings.recipe, tuple(_failures_before(ending.attempt, ending.home))
    differences = task.next_settings.differences
    return PatchContext(name, recipe.training.trainer, recipe.reads(), task.kind.settings(task), differences, past)


def _failures_before(attempt: Attempt, home: PatchFolder) -> Iterator[EarlierFailure]:
    """Yield the earlier attempts at a patch that failed, with the settings that were in force."""
    folders = {one.number: one for one in home.attempts()}
    for event in events(OutputFolder(home.path.parent.parent), AttemptEnded):
        if event.patch == attempt.patch and event.attempt in folders and event.diagnosis and event.outcome == "failed":
            settings = folders[event.attempt].read_settings().as_given()
            yield EarlierFailure(event.attempt, event.diagnosis.cause, settings)


def write_down(attempt: Attempt, end: Exit, collected: Record, ledger: Ledger, *, adopted: bool = False) -> Outcome:
    """Write the end of an attempt, as `collect` found it, into the ledger; return its outcome."""
    found = read_as(CollectResult, collected)
    outcome, said = found.outcome, found.said
    ledger.write(AttemptEnded.of(attempt.patch, attempt.folder.number, outcome, exit=end, adopted=adopted, **said))
    if isinstance(outcome, Trained) and ledger.flush():
        for one in (attempt.folder, *attempt.folder.earlier()):
            one.checkpoint.unlink(missing_ok=True)  # nobody goes on from there any more
    return outcome


def _take_in(ending: FinishedAttempt, trained: Trained, facts: AttemptFacts) -> dict[str, Any]:
    """Keep a new splat, and make it or the better one the product; return what the ledger is to say of that."""
    attempt, folder = ending.attempt, ending.home
    new = results.keep(attempt, trained, facts)
    if ending.counts and not ending.counts():
        return {"accepted": False}
    accepted, files, follows = folder.read_result(), FileFacts(), attempt.claim.follows
    whole, _ = results.splats_in(folder, accepted, files, new.attempt)
    choice = retention.decide(
        whole,
        accepted,
        new,
        is_retry=attempt.is_retry,
        keeps_better=ending.keeps_better,
        differ=partial(retention.other_files, place=ending.place, facts=files if ending.place else None),
    )
    takes_new = choice.product is new
    if takes_new:
        if not results.accept(folder, attempt.folder, new, follows):
            return {"accepted": False, "choice": "another splat was accepted meanwhile"}
        results.forget_superseded(folder, new.attempt, accepted.attempt if accepted else "")
    elif choice.product:
        results.pin(folder, choice.product, attempt.depends_on, follows)
    said = {"choice": choice.words} if choice.words else {}
    if (early := new.metrics.early_stopping) and (words := early.in_words()):
        said["ended_early"] = words
    return {"accepted": takes_new, **said}
