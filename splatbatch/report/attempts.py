"""The attempts of a patch as the ledger and their folders tell them: when, where, how they ended, what came next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from splatbatch.attempt import ATTEMPT_PREFIX, AttemptFolder
from splatbatch.batch.folder import PatchFolder
from splatbatch.files import Record, read_json, read_lines

SETUP = ("start", "load", "init")
OUTCOMES = ["trained", "failed", "stopped"]
MEMORY = ("gpu_peak_mib", "own_gpu_peak_mib")
UNKNOWN = ("gate_s", "started_at", "ended_at", "setup_s", "outcome", "step", "seconds", *MEMORY, "torch_peak_mib")
SAID = ("gate", "slot", "phase", "cause", "advice")


def attempts_of(folder: PatchFolder, history: Sequence[Record]) -> list[Record]:
    """Return a record per attempt, first to last.

    Keys: number, slot, gate_s (for how long the slot was not fit before it), gate (why), started_at, ended_at (seconds
    since 1970; None if unknown), setup_s (before the first step),
    outcome (trained, failed, stopped or None while it runs), cause, advice, evidence, phase, step, seconds,
    gpu_peak_mib (all that was in use on the card), own_gpu_peak_mib (by this attempt, as NVML sees it), torch_peak_mib
    (of that, what torch had allocated), warnings, changes (settings that differ from the config), next (what was
    decided then, and why).
    """
    attempts: dict[int, Record] = {one.number: _blank(one.number) for one in folder.attempts()}
    latest = 0
    for event in history:
        number = event.get("attempt", latest)
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            continue
        latest = number
        _take(attempts.setdefault(number, _blank(number)), event)
    for number, attempt in attempts.items():
        _look_into(attempt, AttemptFolder(folder.path / f"{ATTEMPT_PREFIX}{number:02d}"))
    return [attempts[number] for number in sorted(attempts)]


def _blank(number: int) -> Record:
    blank = {**dict.fromkeys(UNKNOWN), **dict.fromkeys(SAID, ""), "adopted": False}
    return {"number": number, **blank, "evidence": [], "warnings": [], "changes": {}, "next": None}


def _take(attempt: Record, event: Record) -> None:
    match event["event"]:
        case "attempt_started":
            attempt |= {"slot": text(event.get("slot")), "started_at": number(event.get("t"))}
            attempt["changes"] = mapping(event.get("changes"))
        case "gate":
            attempt |= {"gate_s": number(event.get("waited_s")), "gate": text(event.get("reason"))}
        case "attempt_ended":
            diagnosis = mapping(event.get("diagnosis"))
            outcome = event.get("outcome")
            attempt |= {"ended_at": number(event.get("t")), "outcome": outcome if outcome in OUTCOMES else None}
            attempt |= {"adopted": bool(event.get("adopted")), "phase": text(event.get("phase"))}
            attempt |= {key: number(event.get(key)) for key in ("step", "seconds", *MEMORY)}
            attempt |= {"cause": text(diagnosis.get("cause") or event.get("reason"))}
            attempt |= {"advice": text(diagnosis.get("advice")), "evidence": texts(diagnosis.get("evidence"))}
            attempt["warnings"] = texts(event.get("warnings"))
        case "retry" | "gave_up" as decision:
            witnesses = texts(event.get("trained_in_between"))
            facts = {"wait_s": number(event.get("wait_s")), "reason": text(event.get("reason"))}
            changes = mapping(event.get("changes"))
            attempt["next"] = {"decision": decision, **facts, "changes": changes, "trained_in_between": witnesses}
        case _:
            pass


def _look_into(attempt: Record, folder: AttemptFolder) -> None:
    """Add what only the attempt's own folder knows; its own clock is better than that of the run that adopted it."""
    start, end, job, go = (read_json(path) or {} for path in (folder.start, folder.exit, folder.job, folder.go))
    attempt["slot"] = attempt["slot"] or text(job.get("slot"))
    attempt["changes"] = attempt["changes"] or mapping(job.get("changes"))
    attempt["started_at"] = number(go.get("at")) or number(start.get("started_at")) or attempt["started_at"]
    attempt["ended_at"] = number(end.get("ended_at")) or attempt["ended_at"]
    peak = mapping((read_json(folder.metrics) or {}).get("peak"))
    peaks = [number(peak.get(f"{phase}_mib")) for phase in ("training", "evaluation")]
    attempt["torch_peak_mib"] = max((one for one in peaks if one is not None), default=None)
    times = [(record.get("phase"), number(record.get("t"))) for record in read_lines(folder.progress)]
    known = [(phase, at) for phase, at in times if at is not None]
    begun = next((at for phase, at in known if phase not in SETUP), None)
    if begun is not None and attempt["started_at"] is not None:
        attempt["setup_s"] = max(0.0, round(begun - attempt["started_at"], 2))
    if attempt["ended_at"] is None and known:
        attempt["ended_at"] = known[-1][1]


def text(value: Any) -> str:
    """Return a value from a file as text; empty for None."""
    return "" if value is None else str(value)


def texts(value: Any) -> list[str]:
    """Return a list from a file as texts; a lone text counts as a list of one."""
    if isinstance(value, str):
        return [value]
    return [str(one) for one in value] if isinstance(value, Iterable) else []


def mapping(value: Any) -> dict[str, Any]:
    """Return an object from a file; empty for anything else."""
    return dict(value) if isinstance(value, Mapping) else {}


def number(value: Any) -> float | None:
    """Return a number from a file; None for anything else that may stand there."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
