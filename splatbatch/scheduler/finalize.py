"""How an attempt's end becomes history: collected by a reader, then written down; a kill at any moment is survived."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from splatbatch.failures.advice import EarlierFailure, PatchContext
from splatbatch.failures.signatures import site_signatures
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
from splatbatch.tasks.task import Task, TrainTask


@dataclass(frozen=True)
class CollectResult:
    """An attempt as a reader has judged it."""

    outcome: Outcome
    said: dict[str, Any]
    """What the ledger says of it besides."""


def collect(attempt: Attempt, end: Exit, task: Task, counts: Callable[[], bool] = lambda: True) -> Record:
    """Judge an attempt, and accept what it trained; return its outcome, and what the ledger says besides, as JSON.

    A reader does this. Until the ledger has the end on disk, a run that comes after a kill finds the attempt as it was,
    and collects it again.

    Args:
        attempt: that has ended.
        end: how.
        task: that it was at.
        counts: False for what was trained under settings or from inputs that are no longer those of the batch.
    """
    folder = attempt.folder
    own_signatures = site_signatures(task.next_settings.config.failures)
    outcome = judge.judge(folder, task.program, end, partial(_background, attempt, task), own_signatures)
    facts = judge.facts(folder)
    judge.remove_leftovers(folder)
    said = _keep_and_choose(attempt, task, outcome, facts, counts) if isinstance(outcome, Trained) else {}
    if isinstance(outcome, Made):
        task.keep(folder)
    elif isinstance(outcome, Trained):
        outcome = replace(outcome, splat=replace(outcome.splat, metrics={}))  # of which result.json tells
    return object_of(CollectResult(outcome, said | facts.to_record()))


def _background(attempt: Attempt, task: Task) -> PatchContext:
    """Return what is known of a patch whose attempt has failed: what its program reads, and how it failed before."""
    name = attempt.folder.task
    if not isinstance(task, TrainTask):
        return PatchContext(name)
    recipe, past = task.next_settings.recipe, tuple(_failures_before(attempt))
    differences = task.next_settings.differences
    return PatchContext(name, recipe.training.trainer, recipe.reads(), task.settings(), differences, past)


def _failures_before(attempt: Attempt) -> Iterator[EarlierFailure]:
    """Yield the earlier attempts at a patch that failed, with the settings that were in force."""
    home = PatchFolder(attempt.folder.path.parent)
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
            one.checkpoint.unlink(missing_ok=True)  # no attempt resumes from it any more
    return outcome


def _keep_and_choose(
    attempt: Attempt, task: Task, trained: Trained, facts: AttemptFacts, counts: Callable[[], bool]
) -> dict[str, Any]:
    """Keep a new splat, and make it or the better one the product; return what the ledger is to say of that."""
    folder = PatchFolder(attempt.folder.path.parent)
    new = results.keep(attempt, trained, facts)
    if not counts():
        return {"accepted": False}
    accepted, files, follows = folder.read_result(), FileFacts(), attempt.job.claim.follows
    whole, _ = results.splats_in(folder, accepted, files, new.attempt)
    choice = retention.decide(
        whole,
        accepted,
        new,
        is_retry=attempt.job.is_retry,
        keeps_better=task.next_settings.config.retry.keep == "better",
        differ=partial(retention.other_files, place=task.input_files().place, facts=files),
    )
    takes_new = choice.product is new
    if takes_new:
        if not results.accept(folder, attempt.folder, new, follows):
            return {"accepted": False, "choice": "another splat was accepted meanwhile"}
        results.forget_superseded(folder, new.attempt, accepted.attempt if accepted else "")
    elif choice.product:
        results.pin_to_inputs(folder, choice.product, attempt.job.depends_on, follows)
    said = {"choice": choice.words} if choice.words else {}
    if (early := new.metrics.early_stopping) and (words := early.in_words()):
        said["ended_early"] = words
    return {"accepted": takes_new, **said}
