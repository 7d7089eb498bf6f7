"""The attempts of a patch as the ledger and their folders tell them: when, where, how they ended, what came next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from splatbatch.report.facts import OUTCOMES, Attempt, Next
from splatbatch.store.attempt_folder import ATTEMPT_PREFIX, AttemptFolder
from splatbatch.store.events import AttemptEnded, AttemptStarted, Gate, GaveUp, Retried
from splatbatch.store.folders import PatchFolder
from splatbatch.store.records.attempt import ExitFacts, Go, JobSpec, Progress
from splatbatch.store.records.metrics import Metrics
from splatbatch.store.records.result import Result

SETUP = ("start", "load", "init")
OfAttempt = AttemptStarted | Gate | AttemptEnded | Retried | GaveUp


def attempts_of(folder: PatchFolder, history: Sequence[OfAttempt]) -> tuple[Attempt, ...]:
    """Return the attempts at a patch, first to last, by what the ledger and their folders say of them."""
    product = folder.read_result() or Result()
    attempts = {one.number: Attempt(one.number) for one in folder.attempts()}
    latest = 0
    for event in history:
        place = latest if isinstance(event, Retried | GaveUp) else event.attempt
        if place is None or place < 1:
            continue
        latest = place
        attempts[place] = _with(attempts.get(place, Attempt(place)), event)
    return tuple(
        _as_its_folder_says(attempts[place], AttemptFolder(folder.path / f"{ATTEMPT_PREFIX}{place:02d}"), product)
        for place in sorted(attempts)
    )


def _with(attempt: Attempt, event: OfAttempt) -> Attempt:
    match event:
        case AttemptStarted():
            return replace(attempt, slot=event.slot, started_at=event.t, changes=event.changes)
        case Gate():
            return replace(attempt, gate_s=event.waited_s, gate=event.reason)
        case AttemptEnded():
            diagnosis = event.diagnosis
            return replace(
                attempt,
                ended_at=event.t,
                outcome=next((one for one in OUTCOMES if one == event.outcome), None),
                adopted=event.adopted,
                choice=event.choice,
                phase=event.phase or "",
                step=event.step,
                seconds=event.seconds,
                gpu_peak_mib=event.gpu_peak_mib,
                own_gpu_peak_mib=event.own_gpu_peak_mib,
                cause=event.cause,
                advice=diagnosis.advice if diagnosis else "",
                evidence=diagnosis.evidence if diagnosis else (),
                warnings=event.warnings or (),
            )
        case Retried():
            return replace(
                attempt,
                next=Next("retry", event.wait_s, changes=event.changes, trained_in_between=event.trained_in_between),
            )
        case GaveUp():
            between = event.trained_in_between or ()
            return replace(attempt, next=Next("gave_up", reason=event.reason, trained_in_between=between))


def _as_its_folder_says(attempt: Attempt, folder: AttemptFolder, product: Result) -> Attempt:
    """Add what only the attempt's own folder knows; its own clock is better than that of the run that adopted it."""
    job, told, start = folder.read_job() or JobSpec(), folder.read_exit() or ExitFacts(), folder.read_start()
    metrics, lines = folder.read_metrics() or Metrics(), folder.read_progress()
    started_at = (folder.read_go() or Go()).at or start.started_at or attempt.started_at
    known = [(line.phase, line.t) for line in lines if line.t is not None]
    begun = next((at for phase, at in known if phase not in SETUP), None)
    is_kept = product.attempt == folder.path.name
    own = folder.read_result() or (product if is_kept else Result())
    final = (own.metrics if own.metrics.written else metrics).final
    ended_at = told.ended_at or attempt.ended_at
    return replace(
        attempt,
        node=start.host,
        worker=job.claim.worker,
        slot=attempt.slot or job.slot,
        changes=attempt.changes or job.changes,
        started_at=started_at,
        ended_at=known[-1][1] if ended_at is None and known else ended_at,
        setup_s=None if begun is None or started_at is None else max(0.0, round(begun - started_at, 2)),
        pace_s=pace_s(lines),
        torch_peak_mib=metrics.peak.highest(),
        psnr=final.psnr,
        ssim=final.ssim,
        num_gaussians=own.num_gaussians,
        is_kept=is_kept,
        has_splat=folder.splat.exists(),
        is_pictured=bool(folder.read_views().ranked()),
    )


def pace_s(lines: Sequence[Progress]) -> float | None:
    """Return what a step took after the first one, in seconds; None where fewer than two have a time."""
    known = [(line.step, line.t) for line in lines if line.loss is not None and line.step and line.t is not None]
    steps = [(step, at) for step, at in known if step > 0]
    if len(steps) < 2 or steps[-1][0] <= steps[0][0]:
        return None
    return max(0.0, (steps[-1][1] - steps[0][1]) / (steps[-1][0] - steps[0][0]))


def gain_db(attempts: Sequence[Attempt], since: float) -> float | None:
    """Return by how much the product is better than the one before it, if the run that began then has trained it."""
    kept = next((one for one in attempts if one.is_kept), None)
    if kept is None or kept.psnr is None or (kept.started_at or 0.0) + 1 < since:
        return None
    before = [one.psnr for one in attempts if one.number < kept.number and one.outcome == "trained"]
    return kept.psnr - before[-1] if before and before[-1] is not None else None
