"""report.html: one file that needs nothing else, loads nothing and runs nothing but its own few lines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Container, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from splatbatch.files import MIB, Record
from splatbatch.plain_text import assignments, counted
from splatbatch.report.charts.timeline import timelines
from splatbatch.report.page.color_strip import Folders, color_strip
from splatbatch.report.page.comparison_page import comparison
from splatbatch.report.page.html import Html, document, join, table, tag
from splatbatch.report.page.patch_section import SIGNS, patch_section
from splatbatch.report.page.pictures import Budget
from splatbatch.report.page.scene_section import scene_section
from splatbatch.report.page.workers_section import workers_section
from splatbatch.report.units import duration, photographs
from splatbatch.report.viewer.viewer import Previews, viewer_script, what_is_missing
from splatbatch.report.workers import nodes_of
from splatbatch.store.layout import OutputFolder
from splatbatch.tasks.status import STATES

PICTURE_BYTES = 16 << 20
STRIP_BYTES = 1 << 20
MOST_WARNINGS = 200
MOST_PATCHES = 500
"""No browser and nobody takes in thousands of sections; report.json has them all."""
FIRST = ("patch", "state", "node", "photographs", "PSNR dB", "evened", "before", "SSIM")
HEADINGS = (*FIRST, "Gaussians", "MiB", "time", "GPU peak", "attempts", "notes")
EVENED = "evened"
"""Column of the PSNR in the evened space, beside that on the photographs as they are; only where there is one."""
NODE = "node"
"""Column of the host that trained a patch; only where there is more than one."""
WORDS = ("patch", "state", "node", "photographs", "notes")


def to_html(report: Record, output: OutputFolder, previews_mib: int, folders: Folders) -> str:
    """Return the page of a report; curves and pictures come from the output folder, few from the photographs."""
    shown = most_telling(report["patches"])
    links = {patch["patch"]: f"patch-{index}" for index, patch in enumerate(shown)}
    budget = Budget(PICTURE_BYTES)
    # the poorest patch takes of the budget first
    by_psnr = sorted(shown, key=_psnr)
    previews = Previews(output, Budget(previews_mib * MIB))
    sections = {patch["patch"]: patch_section(patch, links[patch["patch"]], budget, previews) for patch in by_psnr}
    body = [
        _header(report),
        *_section("Timeline", join(timelines(report, links))),
        *_section("Workers", workers_section(report["workers"])),
        *_section("Comparison", comparison(report["sweep"])),
        *_section("Scene", scene_section(report, links)),
        *_section("Patches", _table(shown, links)),
        *_left_out(len(report["patches"]) - len(shown)),
        *(tag("p", lack, class_="quiet") for lack in _lacks(report, previews)),
        *(sections[name] for name in links),
        *_section("Colours", color_strip(report["colors"], folders, Budget(STRIP_BYTES))),
        *_section("Audit", join(_audit(report["audit"]))),
        *_section("Settings", join(_settings(report))),
    ]
    title = f"{report['summary']} - splatbatch"
    scripts = [_asset("page.js"), *([viewer_script()] if previews.num_shown else [])]
    return document(title, join([tag("main", *body), previews.packed_viewer()]), _asset("page.css"), scripts)


def most_telling(patches: list[Record]) -> list[Record]:
    """Return the patches that a page has room for, in their order: what went wrong or is odd, then the poorest."""
    ranked = sorted(patches, key=lambda patch: (patch["state"] == "trained" and not patch["outliers"], _psnr(patch)))
    chosen = {patch["patch"] for patch in ranked[:MOST_PATCHES]}
    return [patch for patch in patches if patch["patch"] in chosen]


def _psnr(patch: Record) -> float:
    return math.inf if patch["psnr"] is None else float(patch["psnr"])


def _left_out(number: int) -> Iterator[Html]:
    if number:
        words = f"{number:,} more patches were trained without anything odd, or are like these: report.json has all."
        yield tag("p", words, class_="quiet")


def _lacks(report: Record, previews: Previews) -> Iterator[str]:
    """Yield what is missing for the 3D view, where there is something to see."""
    if previews.are_wanted and any(patch["splat"] for patch in report["patches"]) and (lack := what_is_missing()):
        yield lack


@cache
def _asset(name: str) -> str:
    return files("splatbatch.report.page").joinpath(name).read_text(encoding="utf-8")


def _section(heading: str, body: Html) -> Iterator[Html]:
    if body:
        yield tag("h2", heading)
        yield body


def _header(report: Record) -> Html:
    tiles = [tag("li", tag("b", value), f" {name}") for name, value in _totals(report)]
    share = [
        tag("span", class_=state, data_grow=report["counts"][state], title=f"{state}: {report['counts'][state]}")
        for state in STATES
        if report["counts"][state]
    ]
    return tag(
        "header",
        tag("h1", report["summary"]),
        tag("div", *share, class_="share", aria_hidden="true"),
        tag("ul", *tiles, class_="totals"),
        tag("p", f"{report['output']}, {report['written_at']}", class_="quiet"),
        *(tag("p", f"Frame: {told}.") for told in [(report["frame"] or {}).get("note")] if told),
    )


def _totals(report: Record) -> Iterator[tuple[str, str]]:
    patches = report["patches"]
    if known := [patch["psnr"] for patch in patches if patch["psnr"] is not None]:
        yield "dB mean hold-out PSNR", f"{statistics.fmean(known):.2f}"
        yield "dB in the worst patch", f"{min(known):.2f}"
    if gaussians := sum(patch["num_gaussians"] or 0 for patch in patches):
        yield "Gaussians", f"{gaussians:,}"
    attempts = [attempt for patch in patches for attempt in patch["attempts"]]
    yield "attempts", str(len(attempts))
    spent = sum(attempt["seconds"] or 0 for attempt in attempts)
    yield "in training processes", duration(spent)


def _table(patches: list[Record], links: dict[str, str]) -> Html:
    left_out = set() if any(patch["psnr_even"] is not None for patch in patches) else {EVENED}
    left_out |= set() if len(nodes_of(patches)) > 1 else {NODE}
    headings = [heading for heading in HEADINGS if heading not in left_out]
    return table(headings, [_row(patch, links[patch["patch"]], left_out) for patch in patches], WORDS)


def _row(patch: Record, link: str, left_out: Container[str]) -> Html:
    peaks = (one["gpu_peak_mib"] for one in patch["attempts"] if one["gpu_peak_mib"] is not None)
    state, peak = patch["state"], max(peaks, default=None)
    notes = [tag("span", mark, class_="mark") for mark in patch["outliers"]]
    notes += [tag("span", patch["cause"], class_=f"cause {state}")] if patch["cause"] else []
    notes += [tag("span", f"changed: {assignments(patch['changes'])}", class_="mark")] if patch["changes"] else []
    notes += [tag("span", warning, class_="mark") for warning in patch["warnings"][:2]]
    cells = [
        tag("td", tag("a", patch["patch"], href=f"#{link}", title=patch["patch"])),
        tag("td", tag("span", SIGNS[state], class_=f"sign {state}"), f" {state}"),
        *([] if NODE in left_out else [tag("td", patch["node"])]),
        tag("td", photographs(patch["resolution"])),
        _cell(patch["psnr"], ".2f"),
        *([] if EVENED in left_out else [_cell(patch["psnr_even"], ".2f")]),
        _cell(patch["initial_psnr"], ".2f"),
        _cell(patch["ssim"], ".3f"),
        _cell(patch["num_gaussians"], ",d"),
        _cell(patch["bytes"] / MIB if patch["bytes"] else None, ".1f"),
        tag("td", duration(patch["seconds"]), class_="number", data_value=patch["seconds"]),
        _cell(peak, ",.0f", " MiB"),
        _cell(len(patch["attempts"]) or None, "d"),
        tag("td", *notes),
    ]
    return tag("tr", *cells, class_=state)


def _cell(value: Any, form: str, unit: str = "") -> Html:
    shown = f"{value:{form}}{unit}" if value is not None else ""
    return tag("td", shown, class_="number", data_value=value)


def _audit(audit: Record | None) -> Iterator[Html]:
    if audit and not audit["verified"]:
        yield tag("p", "Sizes of photographs were not verified (--no-verify).", class_="mark")
    elif audit:
        warnings = audit["warnings"]
        yield tag("p", f"{counted(len(audit['refused']), 'patch', 'es')} refused, {counted(len(warnings), 'warning')}.")
        yield tag("ul", *(tag("li", warning) for warning in warnings[:MOST_WARNINGS]))


def _settings(report: Record) -> Iterator[Html]:
    if report["config"]:
        yield tag("details", tag("summary", "batch.yaml, as resolved"), tag("pre", report["config"]), class_="config")
    yield tag("p", f"Written by splatbatch {report['version']} on Python {report['python']}.", class_="quiet")
