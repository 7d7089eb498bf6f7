"""The attempts at a patch compared: what was changed for each, how good it became, what it took, which is kept."""

from __future__ import annotations

from collections.abc import Iterator

from splatbatch.plain_text import assignments
from splatbatch.report.facts import Attempt, ReportedPatch
from splatbatch.report.page.html import Html, table, tag
from splatbatch.report.units import SIGNS, duration

HEADINGS = ("attempt", "outcome", "what was changed", "PSNR dB", "SSIM", "Gaussians", "time", "splat")
WORDS = ("outcome", "what was changed", "splat")


def attempts_section(patch: ReportedPatch) -> Iterator[Html]:
    """Yield the comparison; nothing where there is nothing to compare."""
    if len(patch.attempts) < 2:
        return
    yield tag("h3", "Attempts")
    rows = [_row(attempt) for attempt in patch.attempts]
    yield table(HEADINGS, rows, WORDS, "table attempts", name=f"Attempts at {patch.patch}")
    chosen = next((one.choice for one in reversed(patch.attempts) if one.choice), "")
    if chosen:
        yield tag("p", f"The latest choice: {chosen}.", class_="quiet")


def _row(attempt: Attempt) -> Html:
    outcome = attempt.outcome or "running"
    said = f" {outcome}: {attempt.cause}" if attempt.cause else f" {outcome}"
    changed = assignments(attempt.changes) or "nothing"
    cells = [
        tag("td", str(attempt.number), class_="number", data_value=attempt.number),
        tag("td", tag("span", SIGNS.get(outcome, "…"), class_=f"sign {outcome}", aria_hidden="true"), said),
        tag("td", changed, class_=None if attempt.changes else "quiet"),
        _cell(attempt.psnr, ".2f"),
        _cell(attempt.ssim, ".4f"),
        _cell(attempt.num_gaussians, ",d"),
        tag("td", duration(attempt.seconds), class_="number", data_value=attempt.seconds),
        tag("td", _splat(attempt)),
    ]
    return tag("tr", *cells, class_="kept" if attempt.is_kept else None)


def _splat(attempt: Attempt) -> str:
    if attempt.is_kept:
        return "kept: it is the product"
    if attempt.has_splat:
        return "there still"
    return "removed" if attempt.outcome == "trained" else ""


def _cell(value: float | None, form: str) -> Html:
    return tag("td", "" if value is None else f"{value:{form}}", class_="number", data_value=value)
