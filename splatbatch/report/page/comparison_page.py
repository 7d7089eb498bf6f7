"""The section of the page that compares the variants of a sweep: tables, and figures drawn against settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from splatbatch.files import MIB
from splatbatch.report.charts.setting_charts import setting_charts
from splatbatch.report.comparison import spelt
from splatbatch.report.facts import Sweep, VariantRow
from splatbatch.report.page.html import Html, join, table, tag
from splatbatch.report.units import duration

HEADINGS = {"psnr": "PSNR dB", "ssim": "SSIM", "num_gaussians": "Gaussians", "bytes": "MiB", "seconds": "time"}


def comparison(sweep: Sweep | None) -> Html:
    """Return the comparison of a sweep; nothing without one."""
    if not sweep:
        return join([])
    charts = [join([tag("h3", key), tag("div", *drawn, class_="curves")]) for key, drawn in setting_charts(sweep)]
    return join([_means(sweep), *_notes(sweep), *charts, tag("h3", "PSNR by patch, dB"), _by_patch(sweep)])


def shown(key: str, value: float | None) -> str:
    """Return a figure as people read it."""
    if value is None:
        return ""
    match key:
        case "psnr":
            return f"{value:.2f}"
        case "ssim":
            return f"{value:.3f}"
        case "bytes":
            return f"{value / MIB:.1f}"
        case "seconds":
            return duration(value)
        case _:
            return f"{value:,.0f}"


def is_best(sweep: Sweep, row: VariantRow, key: str) -> bool:
    """Return whether a variant's mean is the best one, or reads like it: one of two equals is no better."""
    best = next((one.mean.of(key) for one in sweep.variants if one.variant == sweep.best[key]), None)
    return best is not None and row.is_comparable and shown(key, row.mean.of(key)) == shown(key, best)


def short(setting: str) -> str:
    """Return the heading of a setting: its last name."""
    return setting.rpartition(".")[2]


def _is_best_of(sweep: Sweep, patch: str, psnr: float | None) -> bool:
    best = next((one for one in sweep.variants if one.variant == sweep.best_of_patch[patch]), None)
    return best is not None and shown("psnr", psnr) == shown("psnr", best.patches[patch].psnr)


def _means(sweep: Sweep) -> Html:
    heads = ["variant", *map(short, sweep.settings), "trained", *HEADINGS.values()]
    rows = []
    for row in sweep.variants:
        cells = [tag("td", row.variant)]
        cells += [_cell(row.settings[key], spelt(row.settings[key])) for key in sweep.settings]
        cells.append(_cell(row.trained, f"{row.trained} of {row.of}"))
        for key in HEADINGS:
            cells.append(_cell(row.mean.of(key), shown(key, row.mean.of(key)), is_best=is_best(sweep, row, key)))
        rows.append(tag("tr", *cells, class_=None if row.is_comparable else "quiet"))
    return table(heads, rows, ("variant",), "table compared", name="Variants")


def _notes(sweep: Sweep) -> Iterator[Html]:
    words = "Means over the trained patches. Marked: the most of PSNR and SSIM, the least of the rest."
    yield tag("p", words, class_="quiet")
    if any(not row.is_comparable for row in sweep.variants):
        words = "Variants in grey have trained fewer or other patches: their means are not compared."
        yield tag("p", words, class_="quiet")
    changed = [
        f"{patch} under {row.variant}"
        for row in sweep.variants
        for patch, figures in row.patches.items()
        if figures.changes
    ]
    if changed:
        words = f"Trained with other settings than the variant's, after failures: {', '.join(changed)}."
        yield tag("p", words, class_="mark")


def _by_patch(sweep: Sweep) -> Html:
    rows = []
    for row in sweep.variants:
        cells = [tag("td", row.variant)]
        for patch in sweep.patches:
            figures = row.patches[patch]
            words = shown("psnr", figures.psnr) or figures.state
            cells.append(
                _cell(
                    figures.psnr,
                    f"{words}*" if figures.changes else words,
                    is_best=_is_best_of(sweep, patch, figures.psnr),
                )
            )
        rows.append(tag("tr", *cells))
    return table(["variant", *sweep.patches], rows, ("variant",), "table compared", name="PSNR by patch")


def _cell(value: Any, words: str, *, is_best: bool = False) -> Html:
    sortable = value if isinstance(value, int | float) else None
    inner = tag("b", words, title="the best of this column") if is_best else words
    return tag("td", inner, class_="number best" if is_best else "number", data_value=sortable)
