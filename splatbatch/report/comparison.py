"""Compares the variants of a sweep: their settings, their figures in the mean and per patch, and the best ones."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from splatbatch.config import Variant
from splatbatch.config.sweep.sweep import BASE, HASH_DIGITS
from splatbatch.report.facts import ReportedPatch, SweepFacts, SweepFigures, VariantPatch, VariantRow
from splatbatch.report.units import amount

TITLES = {
    "psnr_covered": "PSNR on covered pixels, dB",
    "psnr": "PSNR on held-out photographs, dB",
    "num_gaussians": "Gaussians",
    "seconds": "time, s",
}
"""Titles of the charts in which a figure is drawn against a setting, by field of `SweepFigures`."""
MADE = re.compile(rf"_[0-9a-f]{{{HASH_DIGITS}}}$")
"""Ending of a generated name of a variant: "_" and a hash in hexadecimal digits; names in the YAML lack it."""
HEADINGS = {
    "psnr_covered": "covered dB",
    "psnr": "PSNR dB",
    "ssim": "SSIM",
    "num_gaussians": "Gaussians",
    "bytes": "MiB",
    "seconds": "time",
}
HIGHER = ("psnr_covered", "psnr", "ssim")
"""Figures of which a higher value is better; of Gaussians, bytes and seconds a lower value is better."""


@dataclass(frozen=True)
class SettingChart:
    """Chart of a sweep: a figure drawn against a setting, with a line for each combination of the other settings."""

    title: str
    values: tuple[str, ...]
    """Values of the setting as text: numbers ascending, other values in the order of the YAML."""
    lines: Mapping[str, Sequence[tuple[int, float, str]]]
    """Points of each line, by the other settings as text; empty text: there is no other setting.

    A point is the index in `values`, the figure, and the label of the variant.
    """

    @property
    def low(self) -> float:
        """Return the least figure of all lines, the lower end of the y axis.

        Raises:
            ValueError: the chart has no points.
        """
        return min(one for points in self.lines.values() for _, one, _ in points)

    @property
    def high(self) -> float:
        """Return the greatest figure of all lines, the upper end of the y axis.

        Raises:
            ValueError: the chart has no points.
        """
        return max(one for points in self.lines.values() for _, one, _ in points)

    def height(self, value: float) -> float:
        """Return the position of a figure on the y axis, from 0 (least) to 1 (greatest); 0.5 if all are equal.

        Raises:
            ValueError: the chart has no points.
        """
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5


def compare(patches: Sequence[ReportedPatch], variants: Sequence[Variant]) -> SweepFacts | None:
    """Return the comparison of the variants of a sweep, in the order of `variants`; None if there are none.

    Args:
        patches: all patches of the batch; a patch under an unknown variant is left out.
        variants: variants of the sweep.
    """
    if not variants:
        return None
    names = {variant.name for variant in variants}
    tasks = {(one.of_patch, one.variant): one for one in patches if one.variant in names}
    of_patches = tuple(dict.fromkeys(patch for patch, _ in tasks))
    rows = [_row(variant, {patch: tasks.get((patch, variant.name)) for patch in of_patches}) for variant in variants]
    fullest = max((_trained(row) for row in rows), key=len)
    rows = [replace(row, is_comparable=bool(fullest) and _trained(row) == fullest) for row in rows]
    comparable = [row for row in rows if row.is_comparable]
    return SweepFacts(
        settings=tuple(variants[0].compared),
        patches=of_patches,
        variants=tuple(rows),
        best={key: _best({row.variant: row.mean.of(key) for row in comparable}, key) for key in HEADINGS},
        best_of_patch={
            patch: _best({row.variant: row.patches[patch].of(by) for row in rows}, by)
            for patch in of_patches
            for by in [deciding_of([row.patches[patch] for row in rows])]
        },
    )


def deciding_of(figures: Iterable[SweepFigures]) -> str:
    """Return the name of the PSNR by which these splats are compared: "psnr_covered" or "psnr".

    The name is "psnr_covered" if every splat with a PSNR has both; "psnr" also if no splat was measured.
    """
    known = [one for one in figures if one.psnr is not None]
    return "psnr_covered" if known and all(one.psnr_covered is not None for one in known) else "psnr"


def spelt(value: object) -> str:
    """Return the value of a setting as text: strings and paths as they are, others as in JSON; empty for None."""
    if value is None or isinstance(value, str | PurePath):
        return "" if value is None else str(value)
    short = f"{value:g}" if isinstance(value, float) else ""
    return short if short and float(short) == value else json.dumps(value, default=str)


def _row(variant: Variant, tasks: Mapping[str, ReportedPatch | None]) -> VariantRow:
    figures = {patch: _figures(task) for patch, task in tasks.items()}
    trained = [one for one in figures.values() if one.state == "trained"]
    settings = {
        key: value if isinstance(value, bool | int | float) else spelt(value) for key, value in variant.compared.items()
    }
    means = SweepFigures(*(_mean([one.of(key) for one in trained]) for key in HEADINGS))
    return VariantRow(variant.name, settings, len(trained), len(figures), means, figures, label_of(variant))


def label_of(variant: Variant) -> str:
    """Return the label of a variant for people: its name in the YAML, else its compared values, such as "mcmc, 4".

    A value None, a setting that does not apply, is "none".
    """
    has_name = variant.name != BASE and not MADE.search(variant.name)
    return variant.name if has_name else ", ".join(spelt(value) or "none" for value in variant.compared.values())


def _figures(task: ReportedPatch | None) -> VariantPatch:
    """Return the figures of a patch under a variant; only state and changes unless it is trained."""
    if task is None:
        return VariantPatch()
    if task.state != "trained":
        return VariantPatch(state=task.state, changes=task.changes)
    return VariantPatch(**{key: getattr(task, key) for key in HEADINGS}, state=task.state, changes=task.changes)


def _trained(row: VariantRow) -> frozenset[str]:
    return frozenset(patch for patch, figures in row.patches.items() if figures.state == "trained")


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None if a figure is missing, since a mean of the others would flatter."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _best(values: Mapping[str, float | None], key: str) -> str | None:
    """Return the variant with the best value; None if there are fewer than two different values."""
    known = {name: value for name, value in values.items() if value is not None}
    if len(set(known.values())) < 2:
        return None
    choose = max if key in HIGHER else min
    return choose(known, key=lambda name: known[name])


def setting_charts(sweep: SweepFacts) -> Iterator[tuple[str, list[SettingChart]]]:
    """Yield full name and charts of each setting that has at least two values among the comparable variants.

    Settings are in the order of the YAML. There is a chart for each figure of TITLES that some comparable
    variant has; a setting without any is left out.
    """
    rows = [row for row in sweep.variants if row.is_comparable]
    for key in sweep.settings:
        known = list(dict.fromkeys(row.settings[key] for row in rows))
        if all(isinstance(value, int | float) for value in known):
            known.sort()  # other values stay in the order of the YAML
        values = tuple(map(spelt, known))
        charts = [SettingChart(title, values, _lines(rows, key, name, values)) for name, title in TITLES.items()]
        if len(values) > 1 and (drawn := [chart for chart in charts if chart.lines]):
            yield key, drawn


def _lines(
    rows: Sequence[VariantRow], key: str, name: str, values: Sequence[str]
) -> Mapping[str, list[tuple[int, float, str]]]:
    lines: dict[str, list[tuple[int, float, str]]] = {}
    for row in rows:
        others = ", ".join(f"{other}={spelt(value)}" for other, value in row.settings.items() if other != key)
        if (mean := row.mean.of(name)) is not None:
            lines.setdefault(others, []).append((values.index(spelt(row.settings[key])), mean, row.label))
    return {others: sorted(points) for others, points in lines.items()}


def headings_of(sweep: SweepFacts) -> dict[str, str]:
    """Return the headings of the columns of figures, by field of `SweepFigures`, in their order.

    The PSNR of covered pixels is left out if no variant has a mean of it.
    """
    has_covered = any(row.mean.psnr_covered is not None for row in sweep.variants)
    return {key: words for key, words in HEADINGS.items() if has_covered or key != "psnr_covered"}


def is_best(sweep: SweepFacts, row: VariantRow, key: str) -> bool:
    """Return whether the report marks a variant's mean as best: it is the best one, or reads the same when printed.

    False if the variant is not comparable, or there is no best one.

    Args:
        sweep: the comparison.
        row: the variant.
        key: field of `SweepFigures`.
    """
    best = next((one for one in sweep.variants if one.variant == sweep.best[key]), None)
    return bool(best and row.is_comparable) and _reads_alike(key, row.mean, best.mean if best else None)


def is_best_of(sweep: SweepFacts, patch: str, row: VariantRow) -> bool:
    """Return whether the report marks a variant's PSNR of a patch: it is the best one, or reads the same when printed.

    False if there is no best one.
    """
    best = next((one for one in sweep.variants if one.variant == sweep.best_of_patch[patch]), None)
    return _reads_alike(deciding_in(sweep, patch), row.patches[patch], best.patches[patch] if best else None)


def _reads_alike(key: str, one: SweepFigures, best: SweepFigures | None) -> bool:
    return best is not None and amount(key, one.of(key)) == amount(key, best.of(key))


def deciding_in(sweep: SweepFacts, patch: str) -> str:
    """Return the name of the PSNR by which a patch's splats are compared: "psnr_covered" or "psnr".

    The name is "psnr_covered" if every measured splat of the patch has it.
    """
    return deciding_of([row.patches[patch] for row in sweep.variants])


def changed_in(sweep: SweepFacts) -> list[str]:
    """Return the patches whose splat has settings changed by `--set` or a retry, as texts "p0 under b"; empty: none."""
    rows = ((patch, row) for row in sweep.variants for patch in row.patches)
    return [f"{patch} under {row.label}" for patch, row in rows if row.patches[patch].changes]
