"""How an attempt's end becomes history: accepted, written down, tidied up; a kill between any two steps is survived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from splatbatch.attempt import Attempt
from splatbatch.batch import attempts, results
from splatbatch.batch.folder import PatchFolder
from splatbatch.batch.ledger import Ledger
from splatbatch.files import Record
from splatbatch.outcome import Exit, Failed, Outcome, Stopped, Trained, exit_to_record


@dataclass(frozen=True)
class Ending:
    """An attempt that has ended, and what came of it."""

    attempt: Attempt
    end: Exit
    outcome: Outcome


def settle(ending: Ending, folder: PatchFolder, ledger: Ledger, **more: Any) -> None:
    """Accept what an attempt trained and write its end into the ledger.

    Until the ledger has the end on disk, the attempt keeps its own name of the splat: a run that comes after a kill
    finds the attempt as it was, and settles it again.

    Args:
        ending: what is settled.
        folder: where its patch's product lies.
        ledger: the history.
        more: further facts for the ledger; `accepted=False` leaves the patch's product as it is.
    """
    attempt, outcome = ending.attempt, ending.outcome
    facts = attempts.facts(attempt.folder)
    attempts.tidy(attempt.folder)
    if isinstance(outcome, Trained) and more.get("accepted", True):
        results.accept(folder, attempt, outcome, facts)
    ledger.write(
        "attempt_ended",
        patch=attempt.patch,
        attempt=attempt.folder.number,
        exit=exit_to_record(ending.end),
        **facts,
        **outcome_to_record(outcome),
        **more,
    )
    if isinstance(outcome, Trained) and ledger.flush():
        attempt.folder.splat.unlink(missing_ok=True)
        for one in (attempt.folder, *attempt.folder.earlier()):
            one.checkpoint.unlink(missing_ok=True)  # nobody goes on from there any more


def outcome_to_record(outcome: Outcome) -> Record:
    """Return the JSON form of an outcome."""
    match outcome:
        case Trained(splat=splat, warnings=warnings):
            return {"outcome": "trained", "num_gaussians": splat.num_gaussians, "warnings": list(warnings)}
        case Failed(diagnosis=diagnosis):
            return {"outcome": "failed", "diagnosis": {**vars(diagnosis), "evidence": list(diagnosis.evidence)}}
        case Stopped(reason=reason):
            return {"outcome": "stopped", "reason": reason}
