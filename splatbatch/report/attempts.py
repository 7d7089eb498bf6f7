"""The attempts of a patch as the ledger and their folders tell them: when, where, how they ended, what came next."""

from __future__ import annotations

from collections.abc import Sequence

from splatbatch.files import Record
from splatbatch.store.attempt_folder import ATTEMPT_PREFIX, AttemptFolder
from splatbatch.store.events import AttemptEnded, AttemptStarted, Gate, GaveUp, Retried
from splatbatch.store.folders.patch import PatchFolder
from splatbatch.store.records.attempt import ExitFacts, Go, JobSpec
from splatbatch.store.records.metrics import Metrics

SETUP = ("start", "load", "init")
OUTCOMES = ["trained", "failed", "stopped"]
OfAttempt = AttemptStarted | Gate | AttemptEnded | Retried | GaveUp
MEMORY = ("gpu_peak_mib", "own_gpu_peak_mib")
UNKNOWN = ("gate_s", "started_at", "ended_at", "setup_s", "outcome", "step", "seconds", *MEMORY, "torch_peak_mib")
SAID = ("gate", "slot", "node", "worker", "phase", "cause", "advice")


def attempts_of(folder: PatchFolder, history: Sequence[OfAttempt]) -> list[Record]:
    """Return a record per attempt, first to last.

    Keys: number, slot, node (the name of its host), worker, gate_s (for how long the slot was not fit before it), gate
    (why), started_at, ended_at (seconds since 1970; None if unknown), setup_s (before the first step),
    outcome (trained, failed, stopped or None while it runs), cause, advice, evidence, phase, step, seconds,
    gpu_peak_mib (all that was in use on the card), own_gpu_peak_mib (by this attempt, as NVML sees it), torch_peak_mib
    (of that, what torch had allocated), warnings, changes (settings that differ from the config), next (what was
    decided then, and why).
    """
    attempts: dict[int, Record] = {one.number: _blank(one.number) for one in folder.attempts()}
    latest = 0
    for event in history:
        place = latest if isinstance(event, Retried | GaveUp) else event.attempt
        if place is None or place < 1:
            continue
        latest = place
        _take(attempts.setdefault(place, _blank(place)), event)
    for place, attempt in attempts.items():
        _look_into(attempt, AttemptFolder(folder.path / f"{ATTEMPT_PREFIX}{place:02d}"))
    return [attempts[place] for place in sorted(attempts)]


def _blank(number: int) -> Record:
    blank = {**dict.fromkeys(UNKNOWN), **dict.fromkeys(SAID, ""), "adopted": False}
    return {"number": number, **blank, "evidence": [], "warnings": [], "changes": {}, "next": None}


def _take(attempt: Record, event: OfAttempt) -> None:
    match event:
        case AttemptStarted():
            attempt |= {"slot": event.slot, "started_at": event.t, "changes": event.changes}
        case Gate():
            attempt |= {"gate_s": event.waited_s, "gate": event.reason}
        case AttemptEnded():
            attempt |= _end(event)
        case Retried() | GaveUp():
            attempt["next"] = _next(event)


def _end(event: AttemptEnded) -> Record:
    diagnosis = event.diagnosis
    return {
        "ended_at": event.t,
        "outcome": event.outcome if event.outcome in OUTCOMES else None,
        "adopted": event.adopted,
        "phase": event.phase or "",
        "step": event.step,
        "seconds": event.seconds,
        "gpu_peak_mib": event.gpu_peak_mib,
        "own_gpu_peak_mib": event.own_gpu_peak_mib,
        "cause": event.cause,
        "advice": diagnosis.advice if diagnosis else "",
        "evidence": list(diagnosis.evidence) if diagnosis else [],
        "warnings": list(event.warnings or ()),
    }


def _next(event: Retried | GaveUp) -> Record:
    return {
        "decision": event.name,
        "wait_s": event.wait_s if isinstance(event, Retried) else None,
        "reason": event.reason if isinstance(event, GaveUp) else "",
        "changes": event.changes if isinstance(event, Retried) else {},
        "trained_in_between": list(event.trained_in_between or ()),
    }


def _look_into(attempt: Record, folder: AttemptFolder) -> None:
    """Add what only the attempt's own folder knows; its own clock is better than that of the run that adopted it."""
    job, told = folder.read_job() or JobSpec(), folder.read_exit() or ExitFacts()
    start = folder.read_start()
    begun_at = (folder.read_go() or Go()).at or start.started_at
    attempt |= {"node": start.host, "worker": job.claim.worker}
    attempt["slot"] = attempt["slot"] or job.slot
    attempt["changes"] = attempt["changes"] or job.changes
    attempt["started_at"] = begun_at or attempt["started_at"]
    attempt["ended_at"] = told.ended_at or attempt["ended_at"]
    attempt["torch_peak_mib"] = (folder.read_metrics() or Metrics()).peak.highest()
    known = [(line.phase, line.t) for line in folder.read_progress() if line.t is not None]
    begun = next((at for phase, at in known if phase not in SETUP), None)
    if begun is not None and attempt["started_at"] is not None:
        attempt["setup_s"] = max(0.0, round(begun - attempt["started_at"], 2))
    if attempt["ended_at"] is None and known:
        attempt["ended_at"] = known[-1][1]
