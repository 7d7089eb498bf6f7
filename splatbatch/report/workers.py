"""Facts for the report about workers and hosts: who trained which patches, where and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.run import WorkerRecord
from splatbatch.output.workers import LOCAL, Watcher
from splatbatch.report.facts import Report, ReportedAttempt, ReportedPatch, ReportedRun, ReportedWorker
from splatbatch.text import moment

RUN_GAP_S = 7200.0
"""Pause between two runs, in seconds, from which on they are shown as separate runs."""


def workers_of(output: OutputFolder, patches: Sequence[ReportedPatch]) -> tuple[ReportedWorker, ...]:
    """Return the workers that made attempts or are running, in order of host and name; `train` is named "local".

    A worker of another host, boot or container counts as running until its file says that it has ended.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the file of a worker.
    """
    watcher = Watcher(output)
    living = {one.worker for one in watcher.living()}
    made: dict[str, list[tuple[str, ReportedAttempt]]] = {name: [] for name in living}
    for patch in patches:
        for attempt in patch.attempts:
            made.setdefault(attempt.worker or LOCAL, []).append((patch.patch, attempt))
    found = [_worker(watcher.read(name) or WorkerRecord(worker=name), made[name], name in living) for name in made]
    return tuple(sorted(found, key=lambda one: (one.node, one.worker)))


def _worker(record: WorkerRecord, attempts: Sequence[tuple[str, ReportedAttempt]], lives: bool) -> ReportedWorker:
    nodes = [one.node for _, one in attempts if one.node]
    trained = [patch for patch, one in attempts if one.outcome == "trained"]
    return ReportedWorker(
        worker=record.worker,
        node=nodes[-1] if nodes else record.host,
        job=record.job,
        since=record.since,
        attempts=len(attempts),
        trained=len(trained),
        seconds=sum(one.seconds or 0.0 for _, one in attempts),
        patches=tuple(dict.fromkeys(trained)),
        running=tuple(patch for patch, one in attempts if one.outcome is None) if lives else (),
        has_ended=not lives,
    )


def nodes_of(patches: Iterable[ReportedPatch]) -> list[str]:
    """Return the names of the hosts that attempts ran on, each once, sorted; unknown hosts are left out.

    Pages name hosts only if there are several.
    """
    return sorted({attempt.node for patch in patches for attempt in patch.attempts if attempt.node})


def ran_in_words(report: Report) -> str:
    """Return start and end of the latest run in local time, as "ran 06:10-21:30 on 2026-05-01"; empty if unknown.

    If the run ended on another day, both have their date: "ran … to …". While patches are in training: "running
    since …". Earlier runs with shorter pauses than RUN_GAP_S count as part.
    """
    starts = starts_of(report.runs, RUN_GAP_S)
    if not starts:
        return ""
    ends = [run.ended_at for run in report.runs] + [one.ended_at for patch in report.patches for one in patch.attempts]
    start, end = moment(starts[-1])[:16], moment(max((at for at in ends if at), default=starts[-1]))[:16]
    if report.counts.get("running"):
        return f"running since {start}"
    return f"ran {start[11:]}-{end[11:]} on {start[:10]}" if start[:10] == end[:10] else f"ran {start} to {end}"


def starts_of(runs: Sequence[ReportedRun], gap_s: float = 0.0) -> list[float]:
    """Return the starts of runs in seconds since 1970, ascending; empty if none is known.

    A run that starts less than `gap_s` seconds after the end of all earlier runs continues these and is left out. A run
    without an end was killed at an unknown time, and counts as ended at its start.
    """
    known = sorted((run.started_at, run.ended_at or 0.0) for run in runs if run.started_at is not None)
    starts: list[float] = []
    until = 0.0
    for start, end in known:
        starts += [start] if not starts or start >= until + gap_s else []
        until = max(until, start, end)
    return starts
