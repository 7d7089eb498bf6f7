"""The section of the page that compares the variants of a sweep: tables, and figures drawn against settings.

A figure has one line per combination of the other settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from splatbatch.files import MIB
from splatbatch.report.comparison import deciding_of, spelt
from splatbatch.report.facts import SweepFacts, VariantRow
from splatbatch.report.page.html import Html, join, table, tag
from splatbatch.report.units import duration, figure

FIGURES = {
    "psnr_covered": "PSNR on covered pixels, dB",
    "psnr": "hold-out PSNR, dB",
    "num_gaussians": "Gaussians",
    "seconds": "time, s",
}
WIDTH, HEIGHT = 360, 176
LEFT, TOP, RIGHT, BOTTOM = 46, 26, 14, 24
INNER_WIDTH, INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
MARGIN = 0.08
"""Share of the height left free above and below the values."""
COLOURS = 6
LONGEST_LABEL = 14
_FIRST = {"psnr_covered": "covered dB", "psnr": "PSNR dB", "ssim": "SSIM"}
HEADINGS = {**_FIRST, "num_gaussians": "Gaussians", "bytes": "MiB", "seconds": "time"}


@dataclass(frozen=True)
class VariantSeries:
    """The variants that differ in one setting only."""

    others: str
    """What they have in common, in words; empty if nothing else is compared."""
    points: tuple[tuple[str, float, str], ...]
    """Value of the setting, figure, name of the variant."""


def setting_charts(sweep: SweepFacts) -> Iterator[tuple[str, list[Html]]]:
    """Yield every setting with at least two values, with a chart per figure that is known."""
    rows = [row for row in sweep.variants if row.is_comparable]
    for key in sweep.settings:
        known = list(dict.fromkeys(row.settings[key] for row in rows))
        if all(isinstance(value, int | float) for value in known):
            known.sort()  # the rest stand as they came
        values = [spelt(value) for value in known]
        if len(values) < 2:
            continue
        drawn = [_chart(title, values, lines) for name, title in FIGURES.items() if (lines := _lines(rows, key, name))]
        if drawn:
            yield key, drawn


def _lines(rows: Sequence[VariantRow], key: str, name: str) -> list[VariantSeries]:
    lines: dict[str, list[tuple[str, float, str]]] = {}
    for row in rows:
        others = ", ".join(f"{other}={spelt(value)}" for other, value in row.settings.items() if other != key)
        if (mean := row.mean.of(name)) is not None:
            lines.setdefault(others, []).append((spelt(row.settings[key]), mean, row.variant))
    return [VariantSeries(others, tuple(points)) for others, points in lines.items()]


def _chart(title: str, values: Sequence[str], lines: Sequence[VariantSeries]) -> Html:
    figures = [value for line in lines for _, value, _ in line.points]
    low, high = min(figures), max(figures)
    drawn = [_draw(line, values, (low, high), f"s{number % COLOURS}") for number, line in enumerate(lines)]
    words = tag("text", title, class_="title", x=LEFT, y=14)
    label = f"{title} for {', '.join(values)}: {figure(low)} to {figure(high)}"
    box = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria_label": label}
    svg = tag("svg", words, *_frame(values, low, high), *drawn, **box)
    legend = [tag("li", line.others, class_=f"s{number % COLOURS}") for number, line in enumerate(lines) if line.others]
    return tag("figure", svg, tag("ul", *legend, class_="legend") if legend else "", class_="against")


def _frame(values: Sequence[str], low: float, high: float) -> Iterator[Html]:
    for value in (low, high):
        y = _y(value, low, high)
        yield tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)
        yield tag("text", figure(value), class_="tick y", x=LEFT - 5, y=y + 3.5)
    for index, name in enumerate(values):
        label = name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"
        yield tag("text", label, class_="tick x", text_anchor="middle", x=f"{_x(index, len(values)):.1f}", y=HEIGHT - 6)


def _draw(line: VariantSeries, values: Sequence[str], span: tuple[float, float], colour: str) -> Html:
    placed = sorted((values.index(value), number, name) for value, number, name in line.points)
    places = [(_x(index, len(values)), _y(number, *span)) for index, number, _ in placed]
    path = tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places))
    dots = [
        tag("circle", tag("title", f"{name}: {figure(number)}"), cx=f"{x:.1f}", cy=f"{y:.1f}", r=3.5)
        for (x, y), (_, number, name) in zip(places, placed, strict=True)
    ]
    return tag("g", path, *dots, class_=colour)


def _x(index: int, count: int) -> float:
    """Return where a value lies: all at the same distance, as they are settings and no measurements."""
    return LEFT + INNER_WIDTH * (index + 0.5) / count


def _y(value: float, low: float, high: float) -> float:
    share = (value - low) / (high - low) if high > low else 0.5
    return round(TOP + INNER_HEIGHT * (1 - MARGIN - (1 - 2 * MARGIN) * share), 1)


def comparison(sweep: SweepFacts | None) -> Html:
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
        case "psnr" | "psnr_covered":
            return f"{value:.2f}"
        case "ssim":
            return f"{value:.3f}"
        case "bytes":
            return f"{value / MIB:.1f}"
        case "seconds":
            return duration(value)
        case _:
            return f"{value:,.0f}"


def headings_of(sweep: SweepFacts) -> dict[str, str]:
    """Return the figures that are shown of variants, each with its heading; covered ones only where there are such."""
    has_covered = any(row.mean.psnr_covered is not None for row in sweep.variants)
    return {key: words for key, words in HEADINGS.items() if has_covered or key != "psnr_covered"}


def is_best(sweep: SweepFacts, row: VariantRow, key: str) -> bool:
    """Return whether a variant's mean is the best one, or reads like it: one of two equals is no better."""
    best = next((one.mean.of(key) for one in sweep.variants if one.variant == sweep.best[key]), None)
    return best is not None and row.is_comparable and shown(key, row.mean.of(key)) == shown(key, best)


def short(setting: str) -> str:
    """Return the heading of a setting: its last name."""
    return setting.rpartition(".")[2]


def _is_best_of(sweep: SweepFacts, patch: str, psnr: float | None, by: str) -> bool:
    best = next((one for one in sweep.variants if one.variant == sweep.best_of_patch[patch]), None)
    return best is not None and shown(by, psnr) == shown(by, best.patches[patch].of(by))


def _means(sweep: SweepFacts) -> Html:
    heads = ["variant", *map(short, sweep.settings), "trained", *headings_of(sweep).values()]
    rows = []
    for row in sweep.variants:
        cells = [tag("td", row.variant)]
        cells += [_cell(row.settings[key], spelt(row.settings[key])) for key in sweep.settings]
        cells.append(_cell(row.trained, f"{row.trained} of {row.of}"))
        for key in headings_of(sweep):
            cells.append(_cell(row.mean.of(key), shown(key, row.mean.of(key)), is_best=is_best(sweep, row, key)))
        rows.append(tag("tr", *cells, class_=None if row.is_comparable else "quiet"))
    return table(heads, rows, ("variant",), "table compared", name="Variants")


def _notes(sweep: SweepFacts) -> Iterator[Html]:
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


def _by_patch(sweep: SweepFacts) -> Html:
    rows = []
    for row in sweep.variants:
        cells = [tag("td", row.variant)]
        for patch in sweep.patches:
            figures = row.patches[patch]
            by = deciding_of([one.patches[patch] for one in sweep.variants])
            words = shown(by, figures.of(by)) or figures.state
            cells.append(
                _cell(
                    figures.of(by),
                    f"{words}*" if figures.changes else words,
                    is_best=_is_best_of(sweep, patch, figures.of(by), by),
                )
            )
        rows.append(tag("tr", *cells))
    return table(["variant", *sweep.patches], rows, ("variant",), "table compared", name="PSNR by patch")


def _cell(value: Any, words: str, *, is_best: bool = False) -> Html:
    sortable = value if isinstance(value, int | float) else None
    inner = tag("b", words, title="the best of this column") if is_best else words
    return tag("td", inner, class_="number best" if is_best else "number", data_value=sortable)
