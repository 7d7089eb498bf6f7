"""How an attempt's end becomes history: accepted, written down, tidied up; a kill between any two steps is survived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from splatbatch.identity import FileFacts
from splatbatch.outcome import Exit, Outcome, Trained
from splatbatch.scheduler import judge
from splatbatch.store import best, results
from splatbatch.store.attempt_folder import Attempt
from splatbatch.store.events import AttemptEnded
from splatbatch.store.folders.patch import PatchFolder
from splatbatch.store.ledger import Ledger
from splatbatch.store.records.attempt import AttemptFacts


@dataclass(frozen=True)
class Ending:
    """An attempt that has ended, and what came of it."""

    attempt: Attempt
    end: Exit
    outcome: Outcome


@dataclass(frozen=True)
class Rules:
    """What decides whether a new splat becomes its patch's product."""

    counts: bool = True
    """False for what was trained under settings or from inputs that are no longer those of the batch."""
    keeps_better: bool = True
    """`retry.keep: better`."""
    place: Callable[[str], str] | None = None
    """Where the files of the patch lie; None: what the manifests say of them is all."""


def settle(ending: Ending, folder: PatchFolder, ledger: Ledger, rules: Rules = Rules(), **more: Any) -> None:
    """Accept what an attempt trained and write its end into the ledger.

    Until the ledger has the end on disk, a run that comes after a kill finds the attempt as it was, and settles it
    again.
    """
    attempt, outcome = ending.attempt, ending.outcome
    facts = judge.facts(attempt.folder)
    judge.tidy(attempt.folder)
    if isinstance(outcome, Trained):
        more |= _take_in(attempt, outcome, facts, folder, rules)
    more |= {"exit": ending.end, **facts.to_record()}
    ledger.write(AttemptEnded.of(attempt.patch, attempt.folder.number, outcome, **more))
    if isinstance(outcome, Trained) and ledger.flush():
        for one in (attempt.folder, *attempt.folder.earlier()):
            one.checkpoint.unlink(missing_ok=True)  # nobody goes on from there any more


def _take_in(
    attempt: Attempt, trained: Trained, facts: AttemptFacts, folder: PatchFolder, rules: Rules
) -> dict[str, Any]:
    """Keep a new splat, and make it or the better one the product; return what the ledger is to say of that."""
    new = results.keep(attempt, trained, facts)
    if not rules.counts:
        return {"accepted": False}
    accepted = folder.read_result()
    files = FileFacts()
    if accepted and results.why_not_the_splat(folder, accepted, "content", files):
        accepted = None
    differ = best.other_files(accepted, new, rules.place, files if rules.place else None) if accepted else ()
    choice = best.choose(new, accepted, best.Rules(attempt.is_retry, rules.keeps_better), differ)
    before, follows = accepted.attempt if accepted else "", attempt.claim.follows
    if choice.takes_new:
        if not results.accept(folder, attempt.folder, new, follows):
            return {"accepted": False, "choice": "another splat was accepted meanwhile"}
        results.forget_superseded(folder, attempt.folder.path.name, before)
    elif accepted:
        results.pin(folder, accepted, attempt.depends_on, follows)
    said = {"choice": choice.words} if choice.words else {}
    return {"accepted": choice.takes_new, **said}
