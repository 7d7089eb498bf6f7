"""The table of patches, with a box that filters it: what failed stands first."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from splatbatch.files import MIB
from splatbatch.plain_text import assignments
from splatbatch.report.facts import ReportedPatch
from splatbatch.report.page.html import Html, join, table, tag
from splatbatch.report.units import SIGNS, duration, photographs
from splatbatch.report.workers import nodes_of

FIRST = ("patch", "state", "node", "photographs", "PSNR dB", "change", "evened", "before", "SSIM")
HEADINGS = (*FIRST, "Gaussians", "MiB", "time", "GPU peak", "attempts", "notes")
EVENED = "evened"
"""Column of the PSNR in the evened space, beside that on the photographs as they are; only where there is one."""
NODE = "node"
"""Column of the host that trained a patch; only where there is more than one."""
CHANGE = "change"
"""Column of what the latest run has changed of the PSNR; only where it has."""
WORDS = ("patch", "state", "node", "photographs", "notes")
URGENT = ("failed", "refused", "stopped", "stale", "running", "waiting", "trained")
"""States, the most urgent first."""


def patch_table(patches: Sequence[ReportedPatch], links: dict[str, str]) -> Html:
    """Return the table with its filter; nothing without patches."""
    if not patches:
        return Html("")
    left_out = set() if any(patch.psnr_even is not None for patch in patches) else {EVENED}
    left_out |= set() if len(nodes_of(patches)) > 1 else {NODE}
    left_out |= set() if any(patch.gain_db is not None for patch in patches) else {CHANGE}
    headings = [heading for heading in HEADINGS if heading not in left_out]
    rows = [_row(patch, links[patch.patch], left_out) for patch in failures_first(patches)]
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
        "PSNR dB": _cell(patch.psnr, ".2f"),
        CHANGE: _cell(patch.gain_db, "+.2f"),
        EVENED: _cell(patch.psnr_even, ".2f"),
        "before": _cell(patch.initial_psnr, ".2f"),
        "SSIM": _cell(patch.ssim, ".3f"),
        "Gaussians": _cell(patch.num_gaussians, ",d"),
        "MiB": _cell(patch.bytes / MIB if patch.bytes else None, ".1f"),
        "time": tag("td", duration(patch.seconds), class_="number", data_value=patch.seconds),
        "GPU peak": _cell(peak, ",.0f", " MiB"),
        "attempts": _cell(len(patch.attempts) or None, "d"),
        "notes": tag("td", *_notes(patch)),
    }
    return tag("tr", *(cell for heading, cell in cells.items() if heading not in left_out), class_=state)


def _notes(patch: ReportedPatch) -> list[Html]:
    notes = [tag("span", mark, class_="mark") for mark in patch.outliers]
    notes += [tag("span", patch.cause, class_=f"cause {patch.state}")] if patch.cause else []
    notes += [tag("span", f"changed: {assignments(patch.changes)}", class_="mark")] if patch.changes else []
    return notes + [tag("span", warning, class_="mark") for warning in patch.warnings[:2]]


def _cell(value: Any, form: str, unit: str = "") -> Html:
    shown = f"{value:{form}}{unit}" if value is not None else ""
    return tag("td", shown, class_="number", data_value=value)
