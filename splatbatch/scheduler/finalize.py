"""Finalizes an ended attempt: a reader process judges it and accepts its splat, then the loop records its end.

After a kill at any moment the next run repeats the rest; nothing is trained twice.
"""

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
from splatbatch.output.records.record import object_of
from splatbatch.scheduler import judge
from splatbatch.tasks.task import Task, TrainTask


@dataclass(frozen=True)
class CollectResult:
    """Result of `collect`, passed as JSON from the reader process to the loop."""

    outcome: Outcome
    said: dict[str, Any]
    """Further fields of the event `AttemptEnded`, by name, as "accepted" and "seconds"."""


def collect(attempt: Attempt, end: Exit, task: Task, counts: Callable[[], bool] = lambda: True) -> Record:
    """Judge an ended attempt, and accept its splat if it should replace the accepted one; return a `CollectResult`.

    This runs in a reader process; the result is JSON. If the process is killed before the ledger has the end, the next
    run collects the attempt again.

    Args:
        attempt: the ended attempt.
        end: how its process ended.
        task: task of the attempt.
        counts: returns False if the splat was trained from other settings or inputs than those of the batch now; then
            it is kept but not accepted.

    Raises:
        OSError: a file cannot be written, as on a full disk.
        SplatbatchError: the site's own failure signatures are invalid, or the splat cannot be accepted.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
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
        outcome = replace(outcome, splat=replace(outcome.splat, metrics={}))  # result.json has them
    return object_of(CollectResult(outcome, said | facts.to_record()))


def _background(attempt: Attempt, task: Task) -> PatchContext:
    """Return facts for the diagnosis of a failed attempt: its trainer, its settings, and its earlier failures."""
    name = attempt.folder.task
    if not isinstance(task, TrainTask):
        return PatchContext(name)
    recipe, past = task.next_settings.recipe, tuple(_failures_before(attempt))
    differences = task.next_settings.differences
    return PatchContext(name, recipe.training.trainer, recipe.reads(), task.settings(), differences, past)


def _failures_before(attempt: Attempt) -> Iterator[EarlierFailure]:
    """Yield the causes of earlier failed attempts at a patch, with the settings that were in force."""
    home = PatchFolder(attempt.folder.path.parent)
    folders = {one.number: one for one in home.attempts()}
    for event in events(OutputFolder(home.path.parent.parent), AttemptEnded):
        if event.patch == attempt.patch and event.attempt in folders and event.diagnosis and event.outcome == "failed":
            settings = folders[event.attempt].read_settings().as_given()
            yield EarlierFailure(event.attempt, event.diagnosis.cause, settings)


def write_down(attempt: Attempt, end: Exit, found: CollectResult, ledger: Ledger, *, adopted: bool = False) -> None:
    """Write the end of an attempt into the ledger, by the result of `collect`.

    Once the end of a trained attempt is on disk, the checkpoints of this and all earlier attempts are removed. On a
    full disk the event is kept in memory for later, and the checkpoints stay.

    Args:
        attempt: the ended attempt.
        end: how its process ended.
        found: result of `collect`.
        ledger: ledger of this run.
        adopted: the attempt was started by an earlier run.

    Raises:
        OutputError: the ledger cannot be written.
        OSError: a checkpoint cannot be removed.
    """
    outcome, said = found.outcome, found.said
    ledger.write(AttemptEnded.of(attempt.patch, attempt.folder.number, outcome, exit=end, adopted=adopted, **said))
    if isinstance(outcome, Trained) and ledger.flush():
        for one in (attempt.folder, *attempt.folder.earlier()):
            one.checkpoint.unlink(missing_ok=True)  # no attempt resumes from it any more


def _keep_and_choose(
    attempt: Attempt, task: Task, trained: Trained, facts: AttemptFacts, counts: Callable[[], bool]
) -> dict[str, Any]:
    """Write the manifest of a new splat, and accept it, or confirm the accepted one; return the fields for the ledger.

    Which one is accepted is decided by `retention.choose_splats`.
    """
    folder = PatchFolder(attempt.folder.path.parent)
    new = results.keep(attempt, trained, facts)
    if not counts():
        return {"accepted": False}
    accepted, files, follows = folder.read_result(), FileFacts(), attempt.job.claim.follows
    whole, _ = results.splats_in(folder, accepted, files, new.attempt)
    choice = retention.choose_splats(
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
            return {"accepted": False, "choice": "not accepted, since another splat was accepted meanwhile"}
        results.forget_superseded(folder, new.attempt, accepted.attempt if accepted else "")
    elif choice.product:
        results.pin_to_inputs(folder, choice.product, attempt.job.depends_on, follows)
    said = {"choice": choice.words} if choice.words else {}
    if (early := new.metrics.early_stopping) and (words := early.in_words()):
        said["ended_early"] = words
    return {"accepted": takes_new, **said}
