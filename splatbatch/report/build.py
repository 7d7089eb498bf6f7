"""The facts of a batch, gathered from its files."""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypeVar

from splatbatch import __version__
from splatbatch.config import TaskId, Variant
from splatbatch.files import Record, read_tail
from splatbatch.report.attempts import OfAttempt, attempts_of, gain_db
from splatbatch.report.colors import colors_of
from splatbatch.report.comparison import compare
from splatbatch.report.deadline import deadline_of
from splatbatch.report.facts import Attempt, Report, ReportedFrame, ReportedPatch, Run
from splatbatch.report.outliers import outliers
from splatbatch.report.quality import quality_of
from splatbatch.report.scene import overview, scene_facts
from splatbatch.report.todo import todo
from splatbatch.report.workers import starts_of, workers_of
from splatbatch.store.events import Audited, BatchEnded, BatchStarted, Event, event_of
from splatbatch.store.layout import OutputFolder
from splatbatch.store.ledger import lines
from splatbatch.store.records.result import Result
from splatbatch.tasks.settled.every import words_of_report
from splatbatch.tasks.settled.frame import FRAME, note
from splatbatch.tasks.standing import Standing
from splatbatch.tasks.status import STATES, PatchStatus, read_status, summary

MOST_CONFIG_BYTES = 1 << 18


def build(
    output: OutputFolder, names: Sequence[str], variants: Sequence[Variant] = (), standing: Standing | None = None
) -> Report:
    """Return the facts of a batch."""
    statuses, said = read_status(output, names, standing=standing), _said(output)
    history = [event for record in said if (event := event_of(record))]
    runs = _runs(said)
    patches = _patches(output, statuses, history, max(starts_of(runs), default=0.0))
    audits = [record for record in said if record["event"] == Audited.name]
    scene = scene_facts(output, standing.patches_folder) if standing else None
    report = Report(
        output=str(output.path),
        summary=summary(statuses),
        counts={state: sum(status.state == state for status in statuses) for state in STATES},
        patches=patches,
        sweep=compare(patches, variants),
        runs=runs,
        workers=workers_of(output, patches),
        settled=_settled(output, names, standing),
        frame=_frame(output, statuses),
        colors=colors_of(output),
        scene=scene,
        map=overview(output, standing.patches_in_one_world()) if standing and not scene else None,
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
    return replace(report, todo=todo(report))


T = TypeVar("T")


def _said(output: OutputFolder) -> list[Record]:
    """Return all lines of the ledger; they share their keys and words, which weigh more than all else that they say."""
    return [
        {sys.intern(key): sys.intern(value) if type(value) is str else value for key, value in event.items()}
        for event in lines(output)
    ]


def _patches(
    output: OutputFolder, statuses: Sequence[PatchStatus], history: Sequence[Event], since: float
) -> tuple[ReportedPatch, ...]:
    by_patch = _by_patch(history)
    attempts: dict[str, tuple[Attempt, ...]] = {}
    for one in statuses:
        look = partial(attempts_of, output.patch(one.patch), by_patch.get(one.patch, []))
        attempts[one.patch] = _walled(look, ())
    odd = outliers(statuses, {one.patch: _training_s(one, attempts[one.patch]) for one in statuses})
    return tuple(_patch(output, one, attempts[one.patch], odd[one.patch], since) for one in statuses)


def _patch(
    output: OutputFolder, status: PatchStatus, attempts: Sequence[Attempt], odd: tuple[str, ...], since: float
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
    """Return what the files of one patch say; nothing of those that cannot be read: the others are reported."""
    try:
        return look()
    except Exception:  # noqa: BLE001 - they may be whatever they are; its status names the fault
        return nothing


def _training_s(status: PatchStatus, attempts: Sequence[Attempt]) -> float | None:
    """Return what the steps of a product took; where nobody has told of steps, its whole time but for its set-up."""
    kept = next((one for one in attempts if one.is_kept), None)
    if kept and kept.pace_s is not None:
        return kept.pace_s * status.step
    return None if status.seconds is None else status.seconds - ((kept and kept.setup_s) or 0.0)


def _by_patch(history: Sequence[Event]) -> dict[str, list[OfAttempt]]:
    found: dict[str, list[OfAttempt]] = {}
    for event in history:
        if isinstance(event, OfAttempt):
            found.setdefault(event.patch, []).append(event)
    return found


def _runs(said: Sequence[Record]) -> tuple[Run, ...]:
    runs: list[Run] = []
    latest: dict[str, int] = {}
    for record in said:
        worker = str(record.get("worker", ""))
        match event_of(record):
            case BatchStarted() as event:
                latest[worker] = len(runs)
                runs.append(Run(event.t, None, event.slots, event.changes, worker))
            case BatchEnded() as event if worker in latest:
                runs[latest[worker]] = replace(runs[latest[worker]], ended_at=event.t)
            case _:
                pass
    return tuple(runs)


def _frame(output: OutputFolder, statuses: Sequence[PatchStatus]) -> ReportedFrame | None:
    frame = FRAME.recorded(output)
    names = {TaskId.of_folder(status.patch)[0] for status in statuses}
    return ReportedFrame(frame.offset, frame.scenes, note(frame, names)) if frame else None


def _settled(output: OutputFolder, names: Sequence[str], standing: Standing | None) -> tuple[str, ...]:
    tasks = [standing.current(name) for name in names if standing and standing.knows(name)]
    return tuple(words_of_report(output, tasks))


def _audit(said: Record, statuses: Sequence[PatchStatus]) -> Record:
    """Return the latest audit with every patch that is refused now: it may have been about some patches alone."""
    refused = {one.patch: one.advice for one in statuses if one.state == "refused"}
    event = Audited.from_record(said)
    return {**said, "verified": event.verified, "refused": refused, "warnings": list(event.warnings)}


def _finite(value: object) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
