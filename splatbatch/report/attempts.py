"""The attempts of a patch as the ledger and their folders tell them: when, where, how they ended, what came next."""

from __future__ import annotations

from collections.abc import Sequence

from splatbatch.files import Record
from splatbatch.store.attempt_folder import ATTEMPT_PREFIX, AttemptFolder
from splatbatch.store.events import AttemptEnded, AttemptStarted, Gate, GaveUp, Retried
from splatbatch.store.folders.patch import PatchFolder
from splatbatch.store.records.attempt import ExitFacts, Go, JobSpec
from splatbatch.store.records.metrics import Metrics
from splatbatch.store.records.progress import Progress
from splatbatch.store.records.result import Result

SETUP = ("start", "load", "init")
OUTCOMES = ["trained", "made", "failed", "stopped"]
OfAttempt = AttemptStarted | Gate | AttemptEnded | Retried | GaveUp
MEMORY = ("gpu_peak_mib", "own_gpu_peak_mib")
TIMES = ("gate_s", "started_at", "ended_at", "setup_s", "pace_s")
FIGURES = ("psnr", "ssim", "num_gaussians")
UNKNOWN = (*TIMES, "outcome", "step", "seconds", *MEMORY, "torch_peak_mib", *FIGURES)
SAID = ("gate", "slot", "node", "worker", "phase", "cause", "advice", "choice")
FLAGS = ("adopted", "is_kept", "has_splat", "is_pictured")


def attempts_of(folder: PatchFolder, history: Sequence[OfAttempt]) -> list[Record]:
    """Return a record per attempt, first to last.

    Keys: number, slot, node (the name of its host), worker, gate_s (for how long the slot was not fit before it), gate
    (why), started_at, ended_at (seconds since 1970; None if unknown), setup_s (before the first step),
    outcome (trained, failed, stopped or None while it runs), cause, advice, evidence, phase, step, seconds,
    gpu_peak_mib (all that was in use on the card), own_gpu_peak_mib (by this attempt, as NVML sees it), torch_peak_mib
    (of that, what torch had allocated), warnings, changes (settings that differ from the config), next (what was
    decided then, and why), psnr, ssim, num_gaussians (of its splat), pace_s (of a step, but for the first, which
    compiles kernels), choice (which of two splats was kept, and why), is_kept (its splat is the product), has_splat
    (it is there still), is_pictured.
    """
    product = folder.read_result() or Result()
    attempts: dict[int, Record] = {one.number: _blank(one.number) for one in folder.attempts()}
    latest = 0
    for event in history:
        place = latest if isinstance(event, Retried | GaveUp) else event.attempt
        if place is None or place < 1:
            continue
        latest = place
        _take(attempts.setdefault(place, _blank(place)), event)
    for place, attempt in attempts.items():
        _look_into(attempt, AttemptFolder(folder.path / f"{ATTEMPT_PREFIX}{place:02d}"), product)
    return [attempts[place] for place in sorted(attempts)]


def _blank(number: int) -> Record:
    blank = {**dict.fromkeys(UNKNOWN), **dict.fromkeys(SAID, ""), **dict.fromkeys(FLAGS, False)}
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
        "choice": event.choice,
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


def _look_into(attempt: Record, folder: AttemptFolder, product: Result) -> None:
    """Add what only the attempt's own folder knows; its own clock is better than that of the run that adopted it."""
    job, told = folder.read_job() or JobSpec(), folder.read_exit() or ExitFacts()
    start = folder.read_start()
    begun_at = (folder.read_go() or Go()).at or start.started_at
    attempt |= {"node": start.host, "worker": job.claim.worker}
    attempt["slot"] = attempt["slot"] or job.slot
    attempt["changes"] = attempt["changes"] or job.changes
    attempt["started_at"] = begun_at or attempt["started_at"]
    attempt["ended_at"] = told.ended_at or attempt["ended_at"]
    metrics = folder.read_metrics() or Metrics()
    attempt["torch_peak_mib"] = metrics.peak.highest()
    attempt |= _product_of(folder, metrics, product)
    lines = folder.read_progress()
    attempt["pace_s"] = pace_s(lines)
    known = [(line.phase, line.t) for line in lines if line.t is not None]
    begun = next((at for phase, at in known if phase not in SETUP), None)
    if begun is not None and attempt["started_at"] is not None:
        attempt["setup_s"] = max(0.0, round(begun - attempt["started_at"], 2))
    if attempt["ended_at"] is None and known:
        attempt["ended_at"] = known[-1][1]


def _product_of(folder: AttemptFolder, metrics: Metrics, product: Result) -> Record:
    """Return how good the splat of an attempt is, and what there is of it."""
    is_kept = product.attempt == folder.path.name
    own = folder.read_result() or (product if is_kept else Result())
    final = (own.metrics if own.metrics.written else metrics).final
    figures = {"psnr": final.psnr, "ssim": final.ssim, "num_gaussians": own.num_gaussians}
    views = folder.read_views()
    return {**figures, "is_kept": is_kept, "has_splat": folder.splat.exists(), "is_pictured": bool(views.ranked())}


def pace_s(lines: Sequence[Progress]) -> float | None:
    """Return what a step took after the first one, in seconds; None where fewer than two have a time."""
    known = [(line.step, line.t) for line in lines if line.loss is not None and line.step and line.t is not None]
    steps = [(step, at) for step, at in known if step > 0]
    if len(steps) < 2 or steps[-1][0] <= steps[0][0]:
        return None
    return max(0.0, (steps[-1][1] - steps[0][1]) / (steps[-1][0] - steps[0][0]))


def gain_db(attempts: Sequence[Record], since: float) -> float | None:
    """Return by how much the product is better than the one before it, if the run that began then has trained it."""
    kept = next((one for one in attempts if one["is_kept"]), None)
    if kept is None or kept["psnr"] is None or (kept["started_at"] or 0.0) + 1 < since:
        return None
    before = [one["psnr"] for one in attempts if one["number"] < kept["number"] and one["outcome"] == "trained"]
    return kept["psnr"] - before[-1] if before and before[-1] is not None else None
