"""What one sees first: how it went, what to do, the map; a picture of every patch; the table with its filter."""

from __future__ import annotations

import statistics
from collections.abc import Container, Iterator, Mapping, Sequence

from splatbatch.failures.causes import in_words, title
from splatbatch.files import MIB
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.metrics import deciding, spell_figures
from splatbatch.output.records.run import TodoItem
from splatbatch.report.facts import Overview, Report, ReportedPartition, ReportedPatch
from splatbatch.report.page.html import Html, join, number, table, tag
from splatbatch.report.page.pictures import PictureBudget, attempt_folder, small_render
from splatbatch.report.page.scene_section import draw_map
from splatbatch.report.todo import verdict
from splatbatch.report.units import SIGNS, duration, photographs
from splatbatch.report.workers import nodes_of
from splatbatch.tasks.counts import counting, how_many
from splatbatch.tasks.status import MADE, STATES, noun_of
from splatbatch.text import assignments, one_line, plural

LEAST_GAIN_DB = 0.005
"""Less reads as nothing."""
FIRST = ("patch", "state", "node", "photographs", "covered dB", "PSNR dB", "change", "evened", "before", "SSIM")
HEADINGS = (*FIRST, "Gaussians", "MiB", "time", "GPU peak", "attempts", "notes")
EVENED = "evened"
"""Column of the PSNR in the evened space, beside that on the photographs as they are; only where there is one."""
COVERED = "covered dB"
"""Column of the PSNR on covered pixels, which decides; only where there is one."""
NODE = "node"
"""Column of the host that trained a patch; only where there is more than one."""
CHANGE = "change"
"""Column of what the latest run has changed of the PSNR; only where it has."""
WORDS = ("patch", "state", "node", "photographs", "notes")
URGENT = ("failed", "refused", "stopped", "stale", "running", "waiting", *MADE)
"""States, the most urgent first."""
MOST_ITEMS = 40
MOST_LINKED = 8
"""Patches that an item names as links; of the others it says how many there are."""
KINDS = {"do": "To do", "look": "Worth a look"}


def contact_sheet(
    output: OutputFolder, patches: Sequence[ReportedPatch], links: Mapping[str, str], budget: PictureBudget
) -> Html:
    """Return the sheet; nothing where nobody has left a picture."""
    tiles = [_tile(output, patch, links[patch.patch], budget) for patch in worst_first(alone(patches))]
    return tag("ol", *tiles, class_="sheet") if any("<img" in tile for tile in tiles) else Html("")


def alone(patches: Sequence[ReportedPatch]) -> list[ReportedPatch]:
    """Return the patches without the backdrop, which counts as none of them."""
    named = set(counting([patch.patch for patch in patches]))
    return [patch for patch in patches if patch.patch in named]


def worst_first(patches: Sequence[ReportedPatch]) -> list[ReportedPatch]:
    """Return the patches as one looks at them: what is not trained, then by PSNR."""
    return sorted(patches, key=lambda one: (one.is_made, deciding(one) is not None, deciding(one) or 0.0))


def _tile(output: OutputFolder, patch: ReportedPatch, link: str, budget: PictureBudget) -> Html:
    folder = attempt_folder(output, patch)
    source = small_render(folder, budget) if folder else ""
    words = f"rendering of {patch.patch}"
    picture = (
        tag("img", src=source, alt=words, decoding="async") if source else tag("span", _instead(patch), class_="none")
    )
    return tag("li", tag("a", picture, tag("span", *_caption(patch), class_="caption"), href=f"#{link}"))


def _instead(patch: ReportedPatch) -> str:
    return "no picture" if patch.state in ("trained", "stale") else in_words(patch.cause) or patch.state


def _caption(patch: ReportedPatch) -> Iterator[Html]:
    state, gain = patch.state, patch.gain_db
    yield tag("span", SIGNS[state], class_=f"sign {state}", aria_hidden="true")
    yield tag("b", patch.patch)
    if (psnr := deciding(patch)) is not None:
        yield tag("span", f"{psnr:.2f} dB", title=spell_figures(patch))
    if gain is not None and abs(gain) >= LEAST_GAIN_DB:
        said = f"{gain:+.2f} dB".replace("-", "−")
        yield tag("span", said, class_="better" if gain > 0 else "worse", title="since the run before")
    if not patch.is_made:
        yield tag("span", state, class_=f"badge {state}")


def patch_table(patches: Sequence[ReportedPatch], links: dict[str, str]) -> Html:
    """Return the table with its filter; nothing without patches."""
    if not patches:
        return Html("")
    left_out = set() if any(patch.psnr_even is not None for patch in patches) else {EVENED}
    left_out |= set() if any(patch.psnr_covered is not None for patch in patches) else {COVERED}
    left_out |= set() if len(nodes_of(patches)) > 1 else {NODE}
    left_out |= set() if any(patch.gain_db is not None for patch in patches) else {CHANGE}
    headings = [heading for heading in HEADINGS if heading not in left_out]
    rows = [_row(patch, links[patch.patch], left_out) for patch in failures_first(alone(patches))]
    box = tag("input", type="search", id="filter", placeholder="p3, failed, cuda…", autocomplete="off")
    words = tag("label", "Filter ", box, for_="filter")
    said = tag("span", class_="quiet", id="filtered", role="status")
    return join([tag("p", words, said, class_="filter", hidden=True), table(headings, rows, WORDS, name="Patches")])


def failures_first(patches: Sequence[ReportedPatch]) -> list[ReportedPatch]:
    """Return the patches in their order, the most urgent states first."""
    return sorted(patches, key=lambda patch: URGENT.index(patch.state))


def _row(patch: ReportedPatch, link: str, left_out: Container[str]) -> Html:
    peaks = (one.gpu_peak_mib for one in patch.attempts if one.gpu_peak_mib is not None)
    state, peak = patch.state, max(peaks, default=None)
    cells = {
        "patch": tag("td", tag("a", patch.patch, href=f"#{link}", title=patch.patch)),
        "state": tag("td", tag("span", SIGNS[state], class_=f"sign {state}", aria_hidden="true"), f" {state}"),
        NODE: tag("td", patch.node),
        "photographs": tag("td", photographs(patch.resolution)),
        COVERED: number(patch.psnr_covered, ".2f"),
        "PSNR dB": number(patch.psnr, ".2f"),
        CHANGE: number(patch.gain_db, "+.2f"),
        EVENED: number(patch.psnr_even, ".2f"),
        "before": number(patch.initial_psnr, ".2f"),
        "SSIM": number(patch.ssim, ".3f"),
        "Gaussians": number(patch.num_gaussians, ",d"),
        "MiB": number(patch.bytes / MIB if patch.bytes else None, ".1f"),
        "time": tag("td", duration(patch.seconds), class_="number", data_value=patch.seconds),
        "GPU peak": number(peak, ",.0f", " MiB"),
        "attempts": number(len(patch.attempts) or None, "d"),
        "notes": tag("td", *_notes(patch)),
    }
    return tag("tr", *(cell for heading, cell in cells.items() if heading not in left_out), class_=state)


def _notes(patch: ReportedPatch) -> list[Html]:
    notes = [tag("span", mark, class_="mark") for mark in patch.outliers]
    notes += [tag("span", title(patch.cause), class_=f"cause {patch.state}")] if patch.cause else []
    notes += [tag("span", f"changed: {assignments(patch.changes)}", class_="mark")] if patch.changes else []
    return notes + [tag("span", warning, class_="mark") for warning in patch.warnings[:2]]


def first_screen(report: Report, links: Mapping[str, str], scene: Html) -> Html:
    """Return the head of the page; `scene` is the merged one, if there is one."""
    beside = _map(report, links)
    parts = [tag("section", *_todo(report, links), class_="todo", aria_label="What to do")]
    parts += [tag("section", *beside, aria_label="From above")] if beside else []
    return join([_header(report), scene, tag("div", *parts, class_="first")])


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
    patches = alone(report.patches)
    if covered := [patch.psnr_covered for patch in patches if patch.psnr_covered is not None]:
        yield "dB mean PSNR on covered pixels", f"{statistics.fmean(covered):.2f}"
        yield "dB in the worst patch", f"{min(covered):.2f}"
    if known := [patch.psnr for patch in patches if patch.psnr is not None]:
        yield f"dB mean hold-out PSNR{' on all' if covered else ''}", f"{statistics.fmean(known):.2f}"
        if not covered:
            yield "dB in the worst patch", f"{min(known):.2f}"
    if gaussians := sum(patch.num_gaussians or 0 for patch in patches):
        yield "Gaussians", f"{gaussians:,}"
    attempts = [attempt for patch in patches for attempt in patch.attempts]
    yield "attempt" if len(attempts) == 1 else "attempts", str(len(attempts))
    spent = sum(attempt.seconds or 0 for attempt in attempts)
    yield f"in {'processes' if report.reconstruction else 'training processes'}", duration(spent)


def _todo(report: Report, links: Mapping[str, str]) -> Iterator[Html]:
    items = report.todo
    for kind, heading in KINDS.items():
        of_kind = [item for item in items if item.kind == kind]
        if of_kind:
            yield tag("h2", heading)
            yield tag("ol", *(_item(item, links) for item in of_kind[:MOST_ITEMS]), class_=f"items {kind}")
        if len(of_kind) > MOST_ITEMS:
            yield tag("p", f"{len(of_kind) - MOST_ITEMS} more are in report.json.", class_="quiet")
    if not items:
        noun, left = noun_of(report.patches), [patch.patch for patch in report.patches if not patch.is_made]
        whole = f"Every {noun} is as it should be; nothing is odd."
        yield tag("p", f"Nothing is odd; {how_many(left, noun)} still to be made." if left else whole, class_="fine")


def _item(item: TodoItem, links: Mapping[str, str]) -> Html:
    names = item.patches
    linked = [
        (tag("a", name, href=f"#{links[name]}") if name in links else tag("b", name)) for name in names[:MOST_LINKED]
    ]
    who = [part for name in linked for part in (name, Html(", "))][:-1]
    if len(names) > MOST_LINKED:
        who.append(tag("span", f" and {plural(len(names) - MOST_LINKED, 'other')}"))
    said = tag("p", *who, ": " if who else "", item.what)
    # a name may hold anything: what a shell would take for the end of a line is not offered for copying
    words = one_line(item.command)
    copy = tag(
        "button", "Copy", type="button", class_="copy", data_copy=words, aria_label=f"Copy: {words}", hidden=True
    )
    return tag("li", said, tag("div", tag("code", words), copy, class_="command"))


def _map(report: Report, links: Mapping[str, str]) -> list[Html]:
    seen: Overview | ReportedPartition | None = report.map or report.scene
    if not seen or not seen.cores:
        return []
    parts = [tag("h2", "From above"), draw_map(seen, report.patches, links)]
    if isinstance(seen, Overview) and (lacking := seen.lacking):
        parts.append(
            tag("p", f"Not on the map, for their models cannot be read: {', '.join(lacking)}.", class_="quiet")
        )
    return parts
