"""All attempts of a run on all slots, as SVG: gate, set-up, training, failure with its cause, retries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from splatbatch.failures.causes import in_words, title
from splatbatch.report.charts.curves import axis_label, time_ticks
from splatbatch.report.facts import Report, ReportedAttempt, ReportedPatch
from splatbatch.report.page.html import Attribute, Html, tag
from splatbatch.report.units import SIGNS, duration
from splatbatch.report.workers import starts_of
from splatbatch.text import assignments, moment, plural

LANE_PX = 30
BAR_PX = 22
NIGHTS_SHOWN = 6
NIGHT_GAP_S = 7200.0
"""Between two runs of a night: who restarts what has ended early goes on with it."""
MOST_BARS = 2000
"""Of a night; more would be narrower than a hair."""
Lane = tuple[str, str, int]
"""Of the drawing: node, slot, and a number, for several workers may each call a slot of theirs the same."""


class AttemptSeat(NamedTuple):
    """Where an attempt ran."""

    node: str
    slot: str
    worker: str


@dataclass(frozen=True, slots=True)
class Bar:
    """An attempt with times that are known."""

    patch: str
    link: str
    place: AttemptSeat
    start: float
    end: float
    attempt: ReportedAttempt


def timelines(report: Report, links: dict[str, str]) -> list[Html]:
    """Return a timeline per night in which attempts were started, the latest first.

    A night is one run, or several with little time in between: more would only be empty. Workers that were at work at
    the same time are one run.
    """
    bars = [bar for patch in report.patches for bar in _bars(patch, links.get(patch.patch, ""))]
    runs, starts = starts_of(report.runs), starts_of(report.runs, NIGHT_GAP_S)
    groups: dict[float, list[Bar]] = {}
    for bar in bars:
        # start.json carries the clock of the attempt's machine, the ledger ours: a second apart is the same run
        groups.setdefault(max((at for at in starts if at <= bar.start + 1), default=0.0), []).append(bar)
    latest = sorted(groups, reverse=True)[:NIGHTS_SHOWN]
    return [_night(groups[at], runs, is_latest=at == latest[0]) for at in latest]


def _bars(patch: ReportedPatch, link: str) -> list[Bar]:
    bars = []
    for attempt in patch.attempts:
        start, end = attempt.started_at, attempt.ended_at
        if start is not None:
            place = AttemptSeat(attempt.node, attempt.slot or "?", attempt.worker)
            bars.append(Bar(patch.patch, link, place, start, max(start, end if end is not None else start), attempt))
    return bars


def _night(bars: Sequence[Bar], runs: Sequence[float], *, is_latest: bool) -> Html:
    """Return the timeline of a night, folded in unless it is the latest."""
    begin, end = min(bar.start for bar in bars), max(bar.end for bar in bars)
    span = max(end - begin, 1e-3)
    lane_of = _lanes(bars)
    lanes, nodes = sorted(set(lane_of.values())), {bar.place.node for bar in bars}
    labels = [tag("span", f"{node} {slot}" if len(nodes) > 1 else slot) for node, slot, _ in lanes]
    ordered = sorted(bars, key=lambda bar: bar.start)[-MOST_BARS:]
    drawn = [_draw(bar, lanes.index(lane_of[bar.place]), begin, span) for bar in ordered]
    for lane, place in enumerate(lanes):
        following = pairwise(bar for bar in ordered if lane_of[bar.place] == place)
        gaps = [(before, after) for before, after in following if after.start > before.end]
        drawn += [_gap(pair, lane, (begin, span), runs) for pair in gaps]
    height = LANE_PX * len(lanes)
    rules = [tag("line", class_="grid", x2="100%", y1=y, y2=y) for y in range(LANE_PX, height + 1, LANE_PX)]
    ticks = [_tick(at, span, height) for at in time_ticks(0, span)]
    inner = tag("svg", *drawn, class_="plot", x="0%", width="100%", height=height)
    labelled = tag("g", *ticks, class_="x-ticks", data_y=height + 14)
    drawing = tag("svg", *rules, inner, labelled, width="100%", height=height + 18)
    frame = tag("div", tag("div", *labels, class_="slots"), drawing, class_="timeline", data_span=f"{span:.6g}")
    words = f"{moment(begin)} to {moment(end)}, {duration(span)}"
    words += f", {plural(len(bars), 'attempt')} on {plural(len(lanes), 'slot')}"
    words += f" of {plural(len(nodes), 'node')}" if len(nodes) > 1 else ""
    words += f", the last {len(ordered)} drawn" if len(ordered) < len(bars) else ""
    return tag("details", tag("summary", words), frame, class_="run", open=is_latest)


def _lanes(bars: Sequence[Bar]) -> dict[AttemptSeat, Lane]:
    """Return where to draw what: workers that share a node and the name of a slot share a lane if never at once."""
    spans: dict[AttemptSeat, tuple[float, float]] = {}
    for bar in bars:
        start, end = spans.get(bar.place, (bar.start, bar.end))
        spans[bar.place] = (min(start, bar.start), max(end, bar.end))
    ends: dict[tuple[str, str], list[float]] = {}
    lanes: dict[AttemptSeat, Lane] = {}
    for place, (start, end) in sorted(spans.items(), key=lambda one: one[1]):
        taken = ends.setdefault(place[:2], [])
        number = next((number for number, until in enumerate(taken) if until <= start), len(taken))
        taken[number : number + 1] = [end]
        lanes[place] = (place.node, place.slot, number)
    return lanes


def _gap(pair: tuple[Bar, Bar], lane: int, scale: tuple[float, float], runs: Sequence[float]) -> Html:
    (before, after), (begin, span) = pair, scale
    is_between_runs = any(before.end <= start <= after.start + 1 for start in runs)
    why = "the next run" if is_between_runs else "the GPU was fit, or a patch was due again"
    words = f"{duration(after.start - before.end)} until {why}"
    left, width = 100 * (before.end - begin) / span, 100 * (after.start - before.end) / span
    y = lane * LANE_PX + LANE_PX / 2
    ends = {"x1": f"{left:.3f}%", "x2": f"{left + width:.3f}%"}
    return tag("line", tag("title", words), class_="gate", y1=y, y2=y, **ends)


def _tick(at: float, span: float, height: int) -> Html:
    share = at / span
    anchor = "start" if share < 0.02 else "end" if share > 0.98 else "middle"
    return tag("text", axis_label(at, span, "s"), class_="tick x", text_anchor=anchor, x=f"{share:.2%}", y=height + 14)


def _draw(bar: Bar, lane: int, begin: float, span: float) -> Html:
    attempt, long_s = bar.attempt, bar.end - bar.start
    outcome = attempt.outcome or "running"
    kind = outcome if outcome in SIGNS else "running"
    left, width, top = 100 * (bar.start - begin) / span, 100 * long_s / span, lane * LANE_PX + (LANE_PX - BAR_PX) // 2
    setup = min(1.0, (attempt.setup_s or 0.0) / long_s) if long_s else 0.0
    waited = 100 * min(attempt.gate_s or 0.0, bar.start - begin) / span
    again = f" ↻{attempt.number}" if attempt.number > 1 else ""
    cause = f" {in_words(attempt.cause)}" if attempt.cause else ""
    words = f"{bar.patch}{again} {SIGNS.get(kind, '…')}{cause}"
    body = tag(
        "svg",
        tag("rect", class_="body", width="100%", height="100%"),
        tag("rect", class_="setup", width=f"{setup:.1%}", height="100%"),
        tag("text", words, x=6, y=15),
        x=f"{left:.3f}%",
        y=top,
        width=f"{width:.3f}%",
        height=BAR_PX,
    )
    # a line at the start: an attempt of a second in a night of ten hours is still seen
    mark = tag("line", class_="mark", x1=f"{left:.3f}%", x2=f"{left:.3f}%", y1=top, y2=top + BAR_PX)
    place: dict[str, Attribute] = {
        "x": f"{left - waited:.3f}%",
        "width": f"{waited:.3f}%",
        "y": top + BAR_PX / 4,
        "height": BAR_PX / 2,
    }
    gate = tag("rect", class_="wait", **place) if waited > 0 else Html("")
    link = f"#{bar.link}" if bar.link else None
    return tag("a", tag("title", _told(bar, kind)), gate, body, mark, class_=f"bar {kind}", href=link)


def _told(bar: Bar, kind: str) -> str:
    attempt, where = bar.attempt, " of ".join(filter(None, (bar.place.slot, bar.place.node)))
    lines = [f"{bar.patch}, attempt {attempt.number} on {where}: {kind}"]
    if attempt.cause:
        lines[0] += f": {title(attempt.cause)} in phase {attempt.phase or 'start'}, step {attempt.step or 0}"
    lines.append(f"{moment(bar.start)}, {duration(bar.end - bar.start)}, of it {duration(attempt.setup_s)} set-up")
    if attempt.gate_s:
        lines.append(f"waited {duration(attempt.gate_s)} at the gate: {attempt.gate}")
    if attempt.changes:
        lines.append(f"with {assignments(attempt.changes)}")
    return "\n".join(lines)
