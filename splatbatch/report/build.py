"""Gathers the facts of a batch from the files of its output folder; nothing is written."""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypeVar

from splatbatch import __version__
from splatbatch.config import TaskId, Variant
from splatbatch.files import Record, read_tail
from splatbatch.groups import grouped
from splatbatch.output import events
from splatbatch.output.attempt_folder import ATTEMPT_PREFIX, AttemptFolder
from splatbatch.output.exclusive import holder
from splatbatch.output.folders import PatchFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import lines
from splatbatch.output.records.attempt import ExitFacts, Go, JobSpec, ProgressLine
from splatbatch.output.records.deadline import DeadlineDecision
from splatbatch.output.records.frame import Frame
from splatbatch.output.records.metrics import Metrics
from splatbatch.output.records.result import Result
from splatbatch.report.colors import colors_of
from splatbatch.report.comparison import compare
from splatbatch.report.facts import (
    OUTCOMES,
    NextStep,
    Report,
    ReportedAttempt,
    ReportedDeadline,
    ReportedFrame,
    ReportedPatch,
    ReportedRun,
)
from splatbatch.report.outliers import outliers
from splatbatch.report.quality import quality_of
from splatbatch.report.scene import overview, scene_facts
from splatbatch.report.todo import todo
from splatbatch.report.workers import starts_of, workers_of
from splatbatch.tasks.counts import counted_tasks
from splatbatch.tasks.deadline import decision_in_words
from splatbatch.tasks.freshness import FreshnessChecker
from splatbatch.tasks.reconstruction import command_of
from splatbatch.tasks.reconstruction import facts_of as reconstructed
from splatbatch.tasks.shared_decisions.decisions import holds_out_frames
from splatbatch.tasks.shared_decisions.frame import note
from splatbatch.tasks.shared_decisions.holdout import frames_in_words
from splatbatch.tasks.status import STATES, PatchStatus, noun_of, read_status, summary
from splatbatch.tasks.task import patches_of
from splatbatch.text import clock, moment

SETUP = ("start", "load", "init")
OfAttempt = events.AttemptStarted | events.SlotNotReady | events.AttemptEnded | events.RetryScheduled | events.GaveUp
MOST_CONFIG_BYTES = 1 << 18
T = TypeVar("T")


def attempts_of(folder: PatchFolder, history: Sequence[OfAttempt]) -> tuple[ReportedAttempt, ...]:
    """Return the attempts at a patch, first to last, from the events of the ledger and the attempts' folders.

    Attempts whose folder was removed are included as far as the ledger tells of them.

    Args:
        folder: folder of the patch in the output folder.
        history: events of this patch, the oldest first.

    Raises:
        LaterFormatError: a later version of splatbatch wrote result.json of the accepted splat.
    """
    product = folder.read_result() or Result()
    attempts = {one.number: ReportedAttempt(one.number) for one in folder.attempts()}
    latest = 0
    for event in history:
        place = latest if isinstance(event, events.RetryScheduled | events.GaveUp) else event.attempt
        if place is None or place < 1:
            continue
        latest = place
        attempts[place] = _with(attempts.get(place, ReportedAttempt(place)), event)
    return tuple(
        _as_its_folder_says(attempts[place], AttemptFolder(folder.path / f"{ATTEMPT_PREFIX}{place:02d}"), product)
        for place in sorted(attempts)
    )


def _with(attempt: ReportedAttempt, event: OfAttempt) -> ReportedAttempt:
    match event:
        case events.AttemptStarted():
            return replace(attempt, slot=event.slot, started_at=event.t, changes=event.changes)
        case events.SlotNotReady():
            return replace(attempt, gate_s=event.waited_s, gate=event.reason)
        case events.AttemptEnded(exit=None) if attempt.outcome:
            return attempt  # the event is of a later attempt that could not be started
        case events.AttemptEnded():
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
        case events.RetryScheduled():
            return replace(
                attempt,
                next=NextStep("retry", event.wait_s, "", event.changes, event.trained_in_between, event.how or ""),
            )
        case events.GaveUp():
            between = event.trained_in_between or ()
            return replace(attempt, next=NextStep("gave_up", reason=event.in_words(), trained_in_between=between))


def _as_its_folder_says(attempt: ReportedAttempt, folder: AttemptFolder, product: Result) -> ReportedAttempt:
    """Return an attempt completed from its folder; times in the folder override those of a run that adopted it."""
    job, told, start = folder.read_job() or JobSpec(), folder.read_exit() or ExitFacts(), folder.read_start()
    metrics, lines = folder.read_metrics() or Metrics(), folder.read_progress()
    started_at = (folder.read_go() or Go()).at or start.started_at or attempt.started_at
    known = [(line.phase, line.t) for line in lines if line.t is not None]
    begun = next((at for phase, at in known if phase not in SETUP), None)
    is_kept = product.attempt == folder.path.name
    own = folder.read_result() or (product if is_kept else Result())
    measured = own.metrics if own.metrics.written else metrics
    ended_at = told.ended_at or attempt.ended_at
    return replace(
        attempt,
        outcome=attempt.outcome or ("trained" if is_kept else None),
        node=start.host,
        worker=job.claim.worker,
        slot=attempt.slot or job.slot,
        changes=attempt.changes or job.changes,
        started_at=started_at,
        ended_at=known[-1][1] if ended_at is None and known else ended_at,
        setup_s=None if begun is None or started_at is None else max(0.0, round(begun - started_at, 2)),
        seconds=own.seconds if attempt.seconds is None else attempt.seconds,
        pace_s=pace_s(lines),
        torch_peak_mib=metrics.torch_peak_mib,
        psnr_covered=measured.final.psnr_covered,
        covered_set=measured.covered.hash,
        psnr=measured.final.psnr,
        ssim=measured.final.ssim,
        num_gaussians=own.num_gaussians,
        is_kept=is_kept,
        has_splat=folder.splat.exists(),
        is_pictured=bool(folder.read_views()),
    )


def pace_s(lines: Sequence[ProgressLine]) -> float | None:
    """Return the mean seconds per step after the first recorded step.

    None if fewer than two steps have a time, or the last step is not above the first.

    Args:
        lines: progress lines of an attempt; only those with a loss, a step above 0 and a time count.
    """
    known = [(line.step, line.t) for line in lines if line.loss is not None and line.step and line.t is not None]
    steps = [(step, at) for step, at in known if step > 0]
    if len(steps) < 2 or steps[-1][0] <= steps[0][0]:
        return None
    return max(0.0, (steps[-1][1] - steps[0][1]) / (steps[-1][0] - steps[0][0]))


def gain_db(attempts: Sequence[ReportedAttempt], since: float) -> float | None:
    """Return the gain in PSNR, in dB, of the accepted splat of a patch over the one trained before it.

    PSNR is of covered pixels if both splats were measured on the same ones, else of all pixels. The result is None if
    an earlier run trained the accepted splat, no splat was trained before it, or a PSNR is unknown. Also None if no
    attempt has the accepted splat.

    Args:
        attempts: attempts at the patch, first to last.
        since: start of the latest run in seconds since 1970.
    """
    kept = next((one for one in attempts if one.is_kept), None)
    if kept is None or kept.psnr is None or (kept.started_at or 0.0) + 1 < since:
        return None
    before = [one for one in attempts if one.number < kept.number and one.outcome == "trained"]
    if not before:
        return None
    last, is_same_set = before[-1], before[-1].covered_set == kept.covered_set
    if is_same_set and kept.psnr_covered is not None and last.psnr_covered is not None:
        return kept.psnr_covered - last.psnr_covered
    return None if last.psnr is None else kept.psnr - last.psnr


def deadline_of(
    output: OutputFolder, history: Iterable[events.Event], standing: FreshnessChecker | None
) -> ReportedDeadline | None:
    """Return the facts about the deadline of a batch; None if no steps and photograph sizes were chosen for one.

    Also None if deadline.json cannot be read.

    Args:
        output: the output folder.
        history: events of all ledgers, for the end of the last attempt.
        standing: has the tasks, whose steps the words name; None: the words name no steps.

    Raises:
        LaterFormatError: a later version of splatbatch wrote deadline.json.
    """
    choice = DeadlineDecision.read(output.deadline)
    if choice is None:
        return None
    tasks = [standing.tasks[name] for name in choice.patches if standing and name in standing.tasks]
    ended = (event for event in history if isinstance(event, events.AttemptEnded) and event.patch in choice.patches)
    ended_at = max((one.t for one in ended if one.t is not None and one.t >= (choice.chosen_at or 0.0)), default=None)
    words = list(decision_in_words(choice, tasks))
    if ended_at is not None and choice.ends_at is not None:
        late_s = ended_at - choice.ends_at
        how = f"{clock(abs(late_s))} {'after it' if late_s > 0 else 'before it'}"
        words.append(f"the last attempt ended at {moment(ended_at)}, {how}")
    return ReportedDeadline(**vars(choice), words=tuple(words), ended_at=ended_at)


def build(
    output: OutputFolder,
    names: Sequence[str],
    variants: Sequence[Variant] = (),
    standing: FreshnessChecker | None = None,
    statuses: Sequence[PatchStatus] = (),
) -> Report:
    """Return the facts of a batch, for the reports. A patch whose files are damaged is reported without their facts.

    Args:
        output: the output folder.
        names: names of the tasks to report; without `standing`, tasks that the folder has are added.
        variants: variants of a sweep; empty: the batch is no sweep.
        standing: decides which products are up to date. None: every existing product counts as up to date. Facts
            that need the YAML (map, scene, hold-out of frames, path of the YAML) are then left out.
        statuses: statuses of the tasks if they are known already; empty: they are read.

    Raises:
        LaterFormatError: a later version of splatbatch wrote a record of the output folder.
    """
    statuses, said = statuses or read_status(output, names, standing=standing), _said(output)
    history = [event for record in said if (event := events.event_of(record))]
    runs = _runs(said)
    patches = _patches(output, statuses, history, max(starts_of(runs), default=0.0))
    audits = [record for record in said if record["event"] == events.PatchesAudited.name]
    counted = set(counted_tasks([one.patch for one in statuses]))
    scene = scene_facts(output, standing.config.scene.patches) if standing else None
    frame, places = Frame.read(output.frame), {TaskId.of_folder(one.patch).patch for one in statuses}
    tasks = [standing.tasks[name] for name in names if standing and name in standing.tasks]
    is_mapped = standing is not None and not (scene or standing.config.scene.scenes)  # models that share coordinates
    report = Report(
        output=str(output.path),
        summary=summary(statuses),
        counts={state: sum(one.state == state and one.patch in counted for one in statuses) for state in STATES},
        patches=patches,
        sweep=compare(patches, variants),
        runs=runs,
        workers=workers_of(output, patches),
        settled=() if holds_out_frames(output) is None else frames_in_words(tasks),
        frame=ReportedFrame(frame.offset, frame.scenes, note(frame, places)) if frame else None,
        colors=colors_of(output),
        scene=scene,
        map=overview(output, patches_of(standing.tasks.values())) if is_mapped and standing else None,
        reconstruction=reconstructed(output) if noun_of(statuses) == "stage" else None,
        deadline=deadline_of(output, history, standing),
        afterwards=output.read_afterwards(),
        audit=_audit(audits[-1], statuses) if audits else None,
        config=read_tail(output.config, MOST_CONFIG_BYTES),
        config_file=str(standing.config_file.absolute()) if standing else "",
        events=tuple(said),
        version=__version__,
        python=platform.python_version(),
        written_at=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    )
    again = command_of(output) if noun_of(statuses) == "stage" else ""
    return replace(report, todo=todo(report, is_at_work=holder(output) is not None, again=again))


def _said(output: OutputFolder) -> list[Record]:
    """Return all lines of the ledger; equal keys and strings are interned, since they take most of the memory."""
    return [
        {sys.intern(key): sys.intern(value) if type(value) is str else value for key, value in event.items()}
        for event in lines(output)
    ]


def _patches(
    output: OutputFolder, statuses: Sequence[PatchStatus], history: Sequence[events.Event], since: float
) -> tuple[ReportedPatch, ...]:
    by_patch = grouped((event.patch, event) for event in history if isinstance(event, OfAttempt))
    attempts: dict[str, tuple[ReportedAttempt, ...]] = {
        one.patch: _walled(partial(attempts_of, output.patch(one.patch), by_patch.get(one.patch, [])), ())
        for one in statuses
    }
    # without set-up and the first patch's compilation of kernels, which are no property of a patch
    odd = outliers(replace(one, seconds=_training_s(one, attempts[one.patch])) for one in statuses)
    return tuple(_patch(output, one, attempts[one.patch], odd[one.patch], since) for one in statuses)


def _patch(
    output: OutputFolder, status: PatchStatus, attempts: Sequence[ReportedAttempt], odd: tuple[str, ...], since: float
) -> ReportedPatch:
    task, folder = TaskId.of_folder(status.patch), output.patch(status.patch)
    result = _walled(folder.read_result, None) or Result()
    ours = {"splatbatch": result.version} if result.version else {}
    return ReportedPatch(
        **{one.name: _finite(getattr(status, one.name)) for one in fields(status)},
        outliers=odd,
        gain_db=gain_db(attempts, since),
        attempts=tuple(attempts),
        of_patch=task.patch,
        variant=task.variant,
        bytes=result.bytes,
        resolution=result.metrics.resolution,
        versions=ours | result.metrics.made_with,
        quality=_walled(partial(quality_of, folder, result.sha256), None),
    )


def _walled(look: Callable[[], T], nothing: T) -> T:
    """Return the result of `look`, or `nothing` after any error, so that other patches are still reported."""
    try:
        return look()
    except Exception:  # noqa: BLE001 - damaged files may raise any error; the status names the fault
        return nothing


def _training_s(status: PatchStatus, attempts: Sequence[ReportedAttempt]) -> float | None:
    """Return the seconds that the steps of the accepted splat took; without recorded steps its time less set-up."""
    kept = next((one for one in attempts if one.is_kept), None)
    if kept and kept.pace_s is not None:
        return kept.pace_s * status.step
    return None if status.seconds is None else status.seconds - ((kept and kept.setup_s) or 0.0)


def _runs(said: Sequence[Record]) -> tuple[ReportedRun, ...]:
    runs: list[ReportedRun] = []
    latest: dict[str, int] = {}
    for record in said:
        worker = str(record.get("worker", ""))
        match events.event_of(record):
            case events.BatchStarted() as event:
                latest[worker] = len(runs)
                runs.append(ReportedRun(event.t, None, event.slots, event.changes, worker))
            case events.BatchEnded() as event if worker in latest:
                runs[latest[worker]] = replace(runs[latest[worker]], ended_at=event.t)
            case _:
                pass
    return tuple(runs)


def _audit(said: Record, statuses: Sequence[PatchStatus]) -> Record:
    """Return the latest audit, with all patches that are refused now: that audit may have covered only some."""
    refused = {one.patch: one.advice for one in statuses if one.state == "refused"}
    event = events.PatchesAudited.from_record(said)
    return {**said, "verified": event.verified, "refused": refused, "warnings": list(event.warnings)}


def _finite(value: object) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
