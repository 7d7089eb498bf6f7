"""The first screen: how it went, what to do with the command for each, and beside it the map of the patches."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from splatbatch.plain_text import counted, one_line
from splatbatch.report.charts.scene_map import draw_map
from splatbatch.report.facts import CutScene, Item, Overview, Report
from splatbatch.report.page.html import Html, join, tag
from splatbatch.report.todo import verdict
from splatbatch.report.units import duration
from splatbatch.tasks.status import STATES

MOST_ITEMS = 40
MOST_LINKED = 8
"""Patches that an item names as links; of the others it says how many there are."""
HEADINGS = {"do": "To do", "look": "Worth a look"}


def first_screen(report: Report, links: Mapping[str, str]) -> Html:
    """Return the head of the page."""
    beside = _map(report, links)
    parts = [tag("section", *_todo(report.todo, links), class_="todo", aria_label="What to do")]
    parts += [tag("section", *beside, aria_label="From above")] if beside else []
    return join([_header(report), tag("div", *parts, class_="first")])


def _header(report: Report) -> Html:
    tiles = [tag("li", tag("b", value), f" {name}") for name, value in _totals(report)]
    share = [
        tag("span", class_=state, data_grow=report.counts[state], title=f"{state}: {report.counts[state]}")
        for state in STATES
        if report.counts[state]
    ]
    return tag(
        "header",
        tag("h1", verdict(report)),
        tag("div", *share, class_="share", aria_hidden="true"),
        tag("ul", *tiles, class_="totals"),
        tag("p", f"{report.output}, {report.written_at}", class_="quiet"),
        *(tag("p", f"Frame: {told}.") for told in [report.frame.note if report.frame else ""] if told),
    )


def _totals(report: Report) -> Iterator[tuple[str, str]]:
    patches = report.patches
    if known := [patch.psnr for patch in patches if patch.psnr is not None]:
        yield "dB mean hold-out PSNR", f"{statistics.fmean(known):.2f}"
        yield "dB in the worst patch", f"{min(known):.2f}"
    if gaussians := sum(patch.num_gaussians or 0 for patch in patches):
        yield "Gaussians", f"{gaussians:,}"
    attempts = [attempt for patch in patches for attempt in patch.attempts]
    yield "attempt" if len(attempts) == 1 else "attempts", str(len(attempts))
    spent = sum(attempt.seconds or 0 for attempt in attempts)
    yield "in training processes", duration(spent)


def _todo(items: Sequence[Item], links: Mapping[str, str]) -> Iterator[Html]:
    for kind, heading in HEADINGS.items():
        of_kind = [item for item in items if item.kind == kind]
        if of_kind:
            yield tag("h2", heading)
            yield tag("ol", *(_item(item, links) for item in of_kind[:MOST_ITEMS]), class_=f"items {kind}")
        if len(of_kind) > MOST_ITEMS:
            yield tag("p", f"{len(of_kind) - MOST_ITEMS} more are in report.json.", class_="quiet")
    if not items:
        yield tag("p", "Every patch is as it should be; nothing is odd.", class_="fine")


def _item(item: Item, links: Mapping[str, str]) -> Html:
    names = item.patches
    linked = [_name(name, links) for name in names[:MOST_LINKED]]
    who = [part for name in linked for part in (name, Html(", "))][:-1]
    if len(names) > MOST_LINKED:
        who.append(tag("span", f" and {counted(len(names) - MOST_LINKED, 'other')}"))
    said = tag("p", *who, ": " if who else "", item.what)
    # a name may hold anything: what a shell would take for the end of a line is not offered for copying
    words = one_line(item.command)
    copy = tag(
        "button", "Copy", type="button", class_="copy", data_copy=words, aria_label=f"Copy: {words}", hidden=True
    )
    return tag("li", said, tag("div", tag("code", words), copy, class_="command"))


def _name(name: str, links: Mapping[str, str]) -> Html:
    return tag("a", name, href=f"#{links[name]}") if name in links else tag("b", name)


def _map(report: Report, links: Mapping[str, str]) -> list[Html]:
    seen: Overview | CutScene | None = report.map or report.scene
    if not seen or not seen.cores:
        return []
    parts = [tag("h2", "From above"), draw_map(seen, report.patches, links)]
    if isinstance(seen, Overview) and (lacking := seen.lacking):
        parts.append(
            tag("p", f"Not on the map, for their models cannot be read: {', '.join(lacking)}.", class_="quiet")
        )
    return parts
