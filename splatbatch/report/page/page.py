"""report.html: one file that needs nothing else, loads nothing and runs nothing but its own few lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from splatbatch.files import MIB
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.metrics import deciding
from splatbatch.report.charts.timeline import timelines
from splatbatch.report.facts import Report, ReportedPatch
from splatbatch.report.page.color_strip import Folders, color_strip
from splatbatch.report.page.comparison_page import comparison
from splatbatch.report.page.first import contact_sheet, first_screen, patch_table
from splatbatch.report.page.html import Html, document, join, table, tag
from splatbatch.report.page.inspection import quality_section
from splatbatch.report.page.patch_section import patch_section, variants_side_by_side
from splatbatch.report.page.pictures import PictureBudget
from splatbatch.report.page.reconstruction import reconstruction_section
from splatbatch.report.page.scene_section import merged_scene, scene_section, workers_section
from splatbatch.report.viewer.viewer import Previews, viewer_script, what_is_missing
from splatbatch.text import plural

PICTURE_BYTES = 16 << 20
SMALL_BYTES = 3 << 20
"""Of the contact sheet, and of variants side by side."""
STRIP_BYTES = 1 << 20
RUNNING = ("patch", "phase", "", "step", "loss", "covered dB", "PSNR dB", "steps/s", "to go", "GPU", "node")
"""Columns of what is in training, which live.js fills."""
MOST_WARNINGS = 200
FEW = 12
"""Patches; of more a telephone shows those sections alone that are open."""
MOST_PATCHES = 500
"""No browser and nobody takes in thousands of sections; report.json has them all."""


def to_html(report: Report, output: OutputFolder, previews_mib: int, folders: Folders) -> str:
    """Return the page of a report; curves and pictures come from the output folder, few from the photographs."""
    previews = Previews(output, PictureBudget(previews_mib * MIB))
    main = tag("main", *_parts(report, previews, folders))
    title = f"{report.summary} - splatbatch"
    scripts = [_asset("page.js"), *([viewer_script()] if previews.num_shown else [])]
    return document(title, join([main, previews.packed_viewer()]), _asset("page.css"), scripts)


def to_live_html(report: Report, output: OutputFolder, version: str) -> str:
    """Return the page that `serve` shows: it follows the batch, and leaves out what takes long to make.

    Args:
        report: its facts.
        output: where curves and pictures come from.
        version: by which the page knows that its report is no longer the latest.
    """
    previews = Previews(output, PictureBudget(0))
    main = tag("main", _live_panel(version), *_parts(report, previews, lambda _: ()))
    scripts = [_asset("page.js") + _asset("live.js")]
    return document(f"{report.summary} - splatbatch", main, _asset("page.css"), scripts, follows=True)


def _live_panel(version: str) -> Html:
    running = table(RUNNING, (), ("patch", "phase", "node", "GPU"), "table running", name="In training")
    return tag("section", tag("p", "…", role="status"), running, id="live", data_version=version, aria_label="Now")


def _parts(report: Report, previews: Previews, folders: Folders) -> Iterator[Html]:
    """Yield the parts of the page: what one sees first, then what it rests on."""
    output, shown = previews.output, most_telling(report.patches)
    links = {patch.patch: f"patch-{index}" for index, patch in enumerate(shown)}
    budget, small = PictureBudget(PICTURE_BYTES), PictureBudget(SMALL_BYTES)
    # the poorest patch takes of the budget first
    by_psnr = sorted(shown, key=_psnr)
    sections = {patch.patch: patch_section(patch, links[patch.patch], budget, previews) for patch in by_psnr}
    yield first_screen(report, links, merged_scene(report, previews, budget))
    yield from _section("Reconstruction", reconstruction_section(report.reconstruction))
    yield from _section(
        "Deadline", join(tag("p", words) for words in (report.deadline.words if report.deadline else ()))
    )
    yield from _section("After the training", join(tag("p", one.words) for one in report.afterwards))
    yield from _section("Comparison", comparison(report.sweep))
    views = {name: f"{link}-views" if f'id="{link}-views"' in sections[name] else link for name, link in links.items()}
    yield from _section("Pictures", contact_sheet(output, shown, views, small))
    yield from _section("Patches", patch_table(shown, links))
    yield from _left_out(len(report.patches) - len(shown))
    yield from (tag("p", lack, class_="quiet") for lack in _lacks(report, previews))
    yield from _section("Timeline", join(timelines(report, links)))
    yield from _section("Workers", workers_section(report.workers))
    yield from _section(
        "Seams", join([scene_section(report), *quality_section(report.scene.quality if report.scene else None, budget)])
    )
    if report.sweep:
        yield from _section("Variants side by side", join(variants_side_by_side(output, shown, small)))
    many = "many" if len(links) > FEW else None
    yield from _section(
        "Patch by patch", tag("div", *(sections[name] for name in links), class_=many) if links else Html("")
    )
    yield from _section("Colours", color_strip(report.colors, folders, PictureBudget(STRIP_BYTES)))
    yield from _section("Audit", join(_audit(report.audit)))
    yield from _section("Settings", join(_settings(report)))


def most_telling(patches: Sequence[ReportedPatch]) -> list[ReportedPatch]:
    """Return the patches that a page has room for, in their order: what went wrong or is odd, then the poorest."""
    ranked = sorted(patches, key=lambda patch: (patch.is_made and not patch.outliers, _psnr(patch)))
    chosen = {patch.patch for patch in ranked[:MOST_PATCHES]}
    return [patch for patch in patches if patch.patch in chosen]


def _psnr(patch: ReportedPatch) -> float:
    psnr = deciding(patch)
    return math.inf if psnr is None else psnr


def _left_out(number: int) -> Iterator[Html]:
    if number:
        words = f"{number:,} more patches were trained without anything odd, or are like these: report.json has all."
        yield tag("p", words, class_="quiet")


def _lacks(report: Report, previews: Previews) -> Iterator[str]:
    """Yield what is missing for the 3D view, where there is something to see."""
    if previews.are_wanted and any(patch.splat for patch in report.patches) and (lack := what_is_missing()):
        yield lack


@cache
def _asset(name: str) -> str:
    return files("splatbatch.report.page").joinpath(name).read_text(encoding="utf-8")


def _section(heading: str, body: Html) -> Iterator[Html]:
    if body:
        yield tag("h2", heading)
        yield body


def _audit(audit: Mapping[str, Any] | None) -> Iterator[Html]:
    if audit and not audit["verified"]:
        yield tag("p", "Sizes of photographs were not verified (--no-verify).", class_="mark")
    elif audit:
        warnings = audit["warnings"]
        refused = plural(len(audit["refused"]), "patch", "es")
        yield tag("p", f"{refused} refused, {plural(len(warnings), 'warning')}.")
        yield tag("ul", *(tag("li", warning) for warning in warnings[:MOST_WARNINGS]))


def _settings(report: Report) -> Iterator[Html]:
    if report.config:
        yield tag("details", tag("summary", "batch.yaml, as resolved"), tag("pre", report.config), class_="config")
    yield tag("p", f"Written by splatbatch {report.version} on Python {report.python}.", class_="quiet")
