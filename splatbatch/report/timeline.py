"""The timeline of a run for the page: every attempt as a bar on its slot, with gate, set-up, outcome and cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from splatbatch.failures.causes import in_words, title
from splatbatch.report.curves import Ticks, axis_label, time_ticks
from splatbatch.report.facts import Report, ReportedAttempt
from splatbatch.report.units import SIGNS, duration
from splatbatch.report.workers import RUN_GAP_S, starts_of
from splatbatch.text import assignments, moment, plural

MOST_RUNS = 6
"""Most runs that are drawn, the latest ones."""
MOST_BARS = 2000
"""Most attempts of a run that are drawn, the latest ones; bars of more would be too narrow."""
Seat = tuple[str, str, str]
"""Place of an attempt: host, slot, worker."""
Lane = tuple[str, str, int]
"""A row of the drawing: host, slot, and a number, since several workers may have slots of the same name."""


@dataclass(frozen=True)
class Bar:
    """An attempt with known times, and its position in the drawing in percent of the run's time span."""

    patch: str
    link: str
    attempt: ReportedAttempt
    start: float
    end: float
    lane: int = 0
    """Index of its row."""
    left: float = 0.0
    """Its start in percent."""
    width: float = 0.0
    """Its length in percent."""
    waited: float = 0.0
    """Time at the gate before it, in percent."""

    @property
    def seat(self) -> Seat:
        """Return the host, slot and worker of the attempt."""
        return self.attempt.node, self.attempt.slot or "?", self.attempt.worker

    @property
    def kind(self) -> str:
        """Return the outcome that decides its colour; "running" if it has none."""
        return self.attempt.outcome if self.attempt.outcome in SIGNS else "running"

    @property
    def setup(self) -> float:
        """Return the share of its time before the first step, 0 to 1."""
        long_s = self.end - self.start
        return min(1.0, (self.attempt.setup_s or 0.0) / long_s) if long_s else 0.0

    @property
    def words(self) -> str:
        """Return the text on the bar: patch, attempt, sign of the outcome, cause."""
        attempt = self.attempt
        again = f" ↻{attempt.number}" if attempt.number > 1 else ""
        return f"{self.patch}{again} {SIGNS[self.kind]}{f' {in_words(attempt.cause)}' if attempt.cause else ''}"

    @property
    def told(self) -> str:
        """Return the tooltip: outcome, cause, times, gate and changed settings, in lines."""
        attempt, where = self.attempt, " of ".join(filter(None, self.seat[1::-1]))
        lines = [f"{self.patch}, attempt {attempt.number} on {where}: {self.kind}"]
        if attempt.cause:
            lines[0] += f": {title(attempt.cause)} in phase {attempt.phase or 'start'}, step {attempt.step or 0}"
        took, setup = duration(self.end - self.start), duration(attempt.setup_s)
        lines.append(f"{moment(self.start)}, {took}, of it {setup} set-up")
        if attempt.gate_s:
            lines.append(f"waited {duration(attempt.gate_s)} at the gate: {attempt.gate}")
        if attempt.changes:
            lines.append(f"with {assignments(attempt.changes)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class RunTimeline:
    """The drawing of one run, or of several runs with little time between them."""

    words: str
    """Heading: times, number of attempts and slots."""
    span: float
    """Time span of the drawing in seconds."""
    is_latest: bool
    labels: tuple[str, ...]
    """Labels of the rows."""
    bars: tuple[Bar, ...]
    gaps: tuple[tuple[int, float, float, str], ...]
    """Gaps between attempts: row, start and end in percent, reason of the wait."""
    ticks: Ticks


def timelines(report: Report, links: dict[str, str]) -> list[RunTimeline]:
    """Return the timelines of the MOST_RUNS latest runs with attempts, the latest first.

    Workers whose times overlap count as one run. `links` are the ids of the patches' sections in the page.
    """
    bars = [
        Bar(patch.patch, links.get(patch.patch, ""), one, one.started_at, max(one.started_at, one.ended_at or 0.0))
        for patch in report.patches
        for one in patch.attempts
        if one.started_at is not None
    ]
    runs, starts = starts_of(report.runs), starts_of(report.runs, RUN_GAP_S)
    groups: dict[float, list[Bar]] = {}
    for bar in bars:
        # start.json has the clock of the attempt's machine, the ledger ours: up to a second apart is the same run
        groups.setdefault(max((at for at in starts if at <= bar.start + 1), default=0.0), []).append(bar)
    latest = sorted(groups, reverse=True)[:MOST_RUNS]
    return [_timeline(groups[at], runs, is_latest=at == latest[0]) for at in latest]


def _timeline(bars: Sequence[Bar], runs: Sequence[float], *, is_latest: bool) -> RunTimeline:
    begin, end = min(bar.start for bar in bars), max(bar.end for bar in bars)
    span = max(end - begin, 1e-3)
    lane_of = _lanes(bars)
    lanes, nodes = sorted(set(lane_of.values())), {bar.attempt.node for bar in bars}
    drawn = [
        replace(
            bar,
            lane=lanes.index(lane_of[bar.seat]),
            left=100 * (bar.start - begin) / span,
            width=100 * (bar.end - bar.start) / span,
            waited=100 * min(bar.attempt.gate_s or 0.0, bar.start - begin) / span,
        )
        for bar in sorted(bars, key=lambda bar: bar.start)[-MOST_BARS:]
    ]
    words = f"{moment(begin)} to {moment(end)}, {duration(span)}"
    words += f", {plural(len(bars), 'attempt')} on {plural(len(lanes), 'slot')}"
    words += f" of {plural(len(nodes), 'node')}" if len(nodes) > 1 else ""
    words += f", the last {len(drawn)} drawn" if len(drawn) < len(bars) else ""
    return RunTimeline(
        words,
        span,
        is_latest,
        tuple(f"{node} {slot}" if len(nodes) > 1 else slot for node, slot, _ in lanes),
        tuple(drawn),
        tuple(
            (lane, before.left + before.width, after.left, _gap(before, after, runs))
            for lane in range(len(lanes))
            for before, after in pairwise(bar for bar in drawn if bar.lane == lane)
            if after.start > before.end
        ),
        [(at / span, axis_label(at, span, "s")) for at in time_ticks(0, span)],
    )


def _lanes(bars: Sequence[Bar]) -> dict[Seat, Lane]:
    """Return the row of each seat; workers with the same host and slot share a row if their times do not overlap."""
    spans: dict[Seat, tuple[float, float]] = {}
    for bar in bars:
        start, end = spans.get(bar.seat, (bar.start, bar.end))
        spans[bar.seat] = (min(start, bar.start), max(end, bar.end))
    ends: dict[tuple[str, str], list[float]] = {}
    lanes: dict[Seat, Lane] = {}
    for seat, (start, end) in sorted(spans.items(), key=lambda one: one[1]):
        taken = ends.setdefault(seat[:2], [])
        number = next((number for number, until in enumerate(taken) if until <= start), len(taken))
        taken[number : number + 1] = [end]
        lanes[seat] = (seat[0], seat[1], number)
    return lanes


def _gap(before: Bar, after: Bar, runs: Sequence[float]) -> str:
    """Return the length of the gap between two attempts on one row and what ended it, as text."""
    is_between_runs = any(before.end <= start <= after.start + 1 for start in runs)
    why = "the next run" if is_between_runs else "the GPU was fit, or a patch was due again"
    return f"{duration(after.start - before.end)} until {why}"
