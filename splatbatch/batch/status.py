"""What the files say of every patch, at any time and from any machine that sees them; nobody needs to be running."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from splatbatch.attempt import ATTEMPT_PREFIX, AttemptFolder
from splatbatch.batch.folder import OutputFolder, never_went
from splatbatch.batch.ledger import Endings
from splatbatch.batch.pace import eta_s, steps_per_s
from splatbatch.files import Record, last_line, read_json, read_lines
from splatbatch.scene.patches import natural_key
from splatbatch.supervisor.processes import boot_id, start_ticks

State = Literal["trained", "running", "failed", "stopped", "refused", "waiting"]
STATES: tuple[State, ...] = ("trained", "running", "failed", "stopped", "refused", "waiting")
MOST_INTERESTING: tuple[State, ...] = ("running", "failed", "refused", "stopped", "waiting", "trained")


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """One patch as its files show it."""

    patch: str
    state: State
    attempt: str = ""
    phase: str = ""
    step: int = 0
    max_steps: int = 0
    loss: float | None = None
    psnr: float | None = None
    """On held-out photographs, in dB."""
    ssim: float | None = None
    initial_psnr: float | None = None
    training_psnr: float | None = None
    """On a few of the photographs it was trained on: far above `psnr` means memorised."""
    lpips: float | None = None
    """On held-out photographs; None also where its weights are missing."""
    num_gaussians: int | None = None
    seconds: float | None = None
    cause: str = ""
    advice: str = ""
    evidence: tuple[str, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    splat: str = ""
    steps_per_s: float | None = None
    eta_s: float | None = None
    """Until the last step, at this pace."""
    gpu_used_mib: int | None = None
    gpu_temperature_c: int | None = None


def read_status(output: OutputFolder, names: Iterable[str] = (), in_full: int | None = None) -> tuple[PatchStatus, ...]:
    """Return the state of the named patches and of all that have a folder, in natural order.

    Args:
        output: where they are.
        names: of patches that belong to the batch, begun or not.
        in_full: of how many, the most interesting ones, all figures are read; None: of all. Of a trained patch beyond
            these only the state is known.
    """
    endings, folders = Endings(output.ledger), _folders(output)
    patches = sorted(dict.fromkeys([*names, *folders]), key=natural_key)
    found = [_status(output, name, endings) if name in folders else _without_files(name, endings) for name in patches]
    chosen = most_interesting(found, len(found) if in_full is None else in_full)
    figures = {one.patch: _trained(output, one.patch, endings) for one in chosen if one.state == "trained"}
    return tuple(figures.get(one.patch, one) for one in found)


def _folders(output: OutputFolder) -> set[str]:
    try:
        with os.scandir(output.path / "patches") as entries:
            return {entry.name for entry in entries if entry.is_dir()}
    except OSError:
        return set()


def most_interesting(statuses: Sequence[PatchStatus], room: int) -> Sequence[PatchStatus]:
    """Return at most `room` patches, the running ones first, still in their order."""
    if len(statuses) <= room:
        return statuses
    order = {state: place for place, state in enumerate(MOST_INTERESTING)}
    chosen = {status.patch for status in sorted(statuses, key=lambda status: order[status.state])[:room]}
    return [status for status in statuses if status.patch in chosen]


def summary(statuses: Sequence[PatchStatus]) -> str:
    """Return one line that says how it went: "7 of 8 patches trained; failed: p5"."""
    trained = sum(status.state == "trained" for status in statuses)
    line = f"{trained} of {len(statuses)} patches trained"
    for state in STATES[1:]:
        names = [status.patch for status in statuses if status.state == state]
        line += f"; {state}: {', '.join(names)}" if names else ""
    return line


def _status(output: OutputFolder, name: str, endings: Endings) -> PatchStatus:
    """Return what a patch's files say; of a trained one that it is, and no figures."""
    folder = output.patch(name)
    files = folder.files()
    attempt = folder.latest(files)
    if attempt and not attempt.has_ended() and not endings.is_judged(name, attempt.number) and attempt.job.exists():
        stands_by, died = never_went(attempt), has_died(attempt)
        if stands_by and not died:
            return PatchStatus(name, "waiting", phase="standby")
        if not stands_by:
            return _lost(name, attempt) if died else _running(name, attempt)
    return PatchStatus(name, "trained") if folder.is_accepted(files) else _without_files(name, endings)


def _without_files(name: str, endings: Endings) -> PatchStatus:
    ended = endings.last(name)
    if ended is None:
        return PatchStatus(name, "waiting")
    if ended["event"] == "refused":
        return PatchStatus(name, "refused", cause="audit", advice=str(ended.get("reason", "")))
    return _ended(name, ended)


def has_died(attempt: AttemptFolder) -> bool:
    """Return whether the attempt's supervisor was a process of this machine that is no more; False if unknown."""
    start = read_json(attempt.start) or {}
    if "ticks" not in start or start.get("host") != socket.gethostname():
        return False
    return start.get("boot_id") != boot_id() or start_ticks(_whole(start.get("pid"))) != start["ticks"]


def _lost(name: str, attempt: AttemptFolder) -> PatchStatus:
    advice = "Its supervisor was killed, or the machine went down: `splatbatch train` goes on with it."
    return replace(_running(name, attempt), state="stopped", cause="lost", advice=advice)


def _whole(value: Any) -> int:
    """Return a number from a file of ours as an int; 0 for anything else that may stand there."""
    return int(value) if isinstance(value, int | float) else 0


def _figure(value: Any) -> float | None:
    """Return a number from a file; None for anything else that may stand there."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _count(value: Any) -> int | None:
    figure = _figure(value)
    return None if figure is None or not math.isfinite(figure) else int(figure)


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()


def _running(name: str, attempt: AttemptFolder) -> PatchStatus:
    records, sample = list(read_lines(attempt.progress)), last_line(attempt.gpu_samples) or {}
    last = records[-1] if records else {}
    figures, measured = _latest(records, "loss"), _latest(records, "psnr")
    step, max_steps, pace = _whole(last.get("step")), _whole(last.get("max_steps")), steps_per_s(records)
    return PatchStatus(
        name,
        "running",
        attempt=attempt.path.name,
        phase=str(last.get("phase", "start")),
        step=step,
        max_steps=max_steps,
        loss=_figure(figures.get("loss")),
        psnr=_figure(measured.get("psnr")),
        ssim=_figure(measured.get("ssim")),
        num_gaussians=_count(figures.get("num_gaussians")),
        seconds=_figure(last.get("seconds")),
        steps_per_s=pace,
        eta_s=eta_s(step, max_steps, pace),
        gpu_used_mib=_count(sample.get("used_mib")),
        gpu_temperature_c=_count(sample.get("temperature_c")),
    )


def _latest(records: Sequence[Record], key: str) -> Record:
    return next((record for record in reversed(records) if key in record), {})


def _trained(output: OutputFolder, name: str, endings: Endings) -> PatchStatus:
    folder = output.patch(name)
    result = read_json(folder.result)
    if result is None:  # it is no JSON
        return _without_files(name, endings)
    metrics = _mapping(result.get("metrics"))
    final = _mapping(metrics.get("final"))
    return PatchStatus(
        name,
        "trained",
        attempt=str(result.get("attempt", "")),
        phase="done",
        step=_whole(result.get("step")),
        max_steps=_whole(result.get("step")),
        psnr=_figure(final.get("psnr")),
        ssim=_figure(final.get("ssim")),
        initial_psnr=_figure(_mapping(metrics.get("initial")).get("psnr")),
        training_psnr=_figure(final.get("training_psnr")),
        lpips=_figure(final.get("lpips")),
        num_gaussians=_count(result.get("num_gaussians")),
        seconds=_figure(result.get("seconds")),
        changes=_mapping(result.get("changes")),
        warnings=_texts(result.get("warnings")),
        splat=str(folder.splat),
    )


def _ended(name: str, event: Record) -> PatchStatus:
    diagnosis = _mapping(event.get("diagnosis"))
    stopped = event.get("outcome") == "stopped"
    return PatchStatus(
        name,
        "stopped" if stopped else "failed",
        attempt=f"{ATTEMPT_PREFIX}{_whole(event.get('attempt')):02d}",
        phase=str(event.get("phase") or ""),
        step=_whole(event.get("step")),
        seconds=_figure(event.get("seconds")),
        cause=str(event.get("reason", "")) if stopped else str(diagnosis.get("cause", "unknown")),
        advice="" if stopped else str(diagnosis.get("advice", "")),
        evidence=_texts(diagnosis.get("evidence")),
    )
