"""The timeline of a run for the page: attempts as bars in the rows of their slots, with waits, outcome and cause."""

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
"""Most attempts of a run that are drawn, the latest ones; with more, bars would be too narrow."""
Seat = tuple[str, str, str]
"""Where an attempt ran: host, slot (name of the GPU or CPU place, as "gpu0"), and worker."""
Lane = tuple[str, str, int]
"""A row of the drawing: host, slot (name of the GPU or CPU place), and a number from 0.

The number differs for workers that used slots of the same name at the same time.
"""


@dataclass(frozen=True)
class Bar:
    """Bar of an attempt in the drawing of a run; `start` and `end` are in seconds since 1970.

    An unknown end counts as the start. `link` is the id of the patch's section in the page; empty: the page has none.
    """

    patch: str
    link: str
    attempt: ReportedAttempt
    start: float
    end: float
    lane: int = 0
    """Index of the bar's row in the drawing, from 0 at the top."""
    left: float = 0.0
    """Start of the attempt in percent of the time span of the run."""
    width: float = 0.0
    """Duration of the attempt in percent of the time span of the run."""
    waited: float = 0.0
    """Time for which the attempt waited for its GPU before its start, in percent of the time span of the run.

    Waits before the start of the drawing are cut off.
    """

    @property
    def seat(self) -> Seat:
        """Return host, slot and worker of the attempt; an unknown slot is "?", an unknown host or worker empty."""
        return self.attempt.node, self.attempt.slot or "?", self.attempt.worker

    @property
    def kind(self) -> str:
        """Return the outcome that decides the bar's colour: "trained", "done" (made), "failed" or "stopped".

        For an attempt without an outcome it is "running".
        """
        return "done" if self.attempt.outcome == "made" else self.attempt.outcome or "running"

    @property
    def setup(self) -> float:
        """Return the share of the attempt's duration that was set-up, before the first step: 0 to 1; unknown: 0."""
        long_s = self.end - self.start
        return min(1.0, (self.attempt.setup_s or 0.0) / long_s) if long_s else 0.0

    @property
    def words(self) -> str:
        """Return the text on the bar: patch, number of the attempt if above 1, sign of the outcome, cause if any."""
        attempt = self.attempt
        again = f" ↻{attempt.number}" if attempt.number > 1 else ""
        return f"{self.patch}{again} {SIGNS[self.kind]}{f' {in_words(attempt.cause)}' if attempt.cause else ''}"

    @property
    def told(self) -> str:
        """Return the text of the tooltip, in lines: outcome and cause, times, wait for the GPU, changed settings.

        Waits and settings are left out if there were none.
        """
        attempt, where = self.attempt, " of ".join(filter(None, self.seat[1::-1]))
        lines = [f"{self.patch}, attempt {attempt.number} on {where}: {self.kind}"]
        if attempt.cause:
            lines[0] += f": {title(attempt.cause)} in phase {attempt.phase or 'start'}, step {attempt.step or 0}"
        took, setup = duration(self.end - self.start), duration(attempt.setup_s)
        lines.append(f"{moment(self.start)}, took {took}{f', of which {setup} for set-up' if setup else ''}")
        if attempt.gate_s:
            lines.append(f"waited {duration(attempt.gate_s)} until its GPU was ready: {attempt.gate}")
        if attempt.changes:
            lines.append(f"with changed settings: {assignments(attempt.changes)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class RunTimeline:
    """The drawing of one run, or of several runs with less than RUN_GAP_S seconds between them."""

    words: str
    """Heading: start and end, number of attempts and of slots, which are places on a GPU or CPU."""
    span: float
    """Time span of the drawing in seconds, at least a millisecond."""
    is_latest: bool
    labels: tuple[str, ...]
    """Labels of the rows, from the top: the slot (GPU or CPU place), before it the host if there are several."""
    bars: tuple[Bar, ...]
    gaps: tuple[tuple[int, float, float, str], ...]
    """Gaps between attempts: index of the row, start and end in percent of the time span, length and reason in words.

    Empty: attempts followed each other at once.
    """
    ticks: Ticks


def timelines(report: Report, links: dict[str, str]) -> list[RunTimeline]:
    """Return the timelines of the MOST_RUNS latest runs with attempts, the latest first; empty without attempts.

    Runs that overlap, or with less than RUN_GAP_S seconds between them, count as one. Attempts of unknown start are
    left out.

    Args:
        report: the facts.
        links: ids of the patches' sections in the page, by patch; a patch without one gets no link.
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
    words += f", {plural(len(bars), 'attempt')} on {plural(len(lanes), 'GPU or CPU slot')}"
    words += f" of {plural(len(nodes), 'machine')}" if len(nodes) > 1 else ""
    words += f", of which the last {len(drawn)} are drawn" if len(drawn) < len(bars) else ""
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
    why = "the next run" if is_between_runs else "the GPU was free and cool, or a patch was to be tried again"
    return f"{duration(after.start - before.end)} until {why}"
