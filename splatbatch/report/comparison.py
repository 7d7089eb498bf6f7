"""A sweep's variants side by side: what they set, how they did in the mean and patch by patch, and which did best."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from splatbatch.config import Variant
from splatbatch.report.facts import ReportedPatch, SweepFacts, SweepFigures, VariantPatch, VariantRow

FIGURES = ("psnr_covered", "psnr", "ssim", "num_gaussians", "bytes", "seconds")
HIGHER = ("psnr_covered", "psnr", "ssim")
"""Figures of which more is better; of the others, less."""


def compare(patches: Sequence[ReportedPatch], variants: Sequence[Variant]) -> SweepFacts | None:
    """Return the comparison of a sweep; None without one."""
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
        best={key: _best({row.variant: row.mean.of(key) for row in comparable}, key) for key in FIGURES},
        best_of_patch={
            patch: _best({row.variant: row.patches[patch].of(by) for row in rows}, by)
            for patch in of_patches
            for by in [deciding_of([row.patches[patch] for row in rows])]
        },
    )


def deciding_of(figures: Iterable[SweepFigures]) -> str:
    """Return by which PSNR splats are compared: the covered one, unless one has only the other."""
    known = [one for one in figures if one.psnr is not None]
    return "psnr_covered" if known and all(one.psnr_covered is not None for one in known) else "psnr"


def spelt(value: Any) -> str:
    """Return the value of a setting as people write it."""
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
    means = SweepFigures(*(_mean([one.of(key) for one in trained]) for key in FIGURES))
    return VariantRow(variant.name, settings, len(trained), len(figures), means, figures)


def _figures(task: ReportedPatch | None) -> VariantPatch:
    """Return what is compared of a patch under a variant."""
    if task is None:
        return VariantPatch()
    if task.state != "trained":
        return VariantPatch(state=task.state, changes=task.changes)
    figures = (task.psnr_covered, task.psnr, task.ssim, task.num_gaussians, task.bytes, task.seconds)
    return VariantPatch(*figures, task.state, task.changes)


def _trained(row: VariantRow) -> frozenset[str]:
    return frozenset(patch for patch, figures in row.patches.items() if figures.state == "trained")


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None if a figure is missing, since a mean of the others would flatter."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _best(values: Mapping[str, float | None], key: str) -> str | None:
    """Return who has the best value; None with fewer than two to choose from, or if all are alike."""
    known = {name: value for name, value in values.items() if value is not None}
    if len(set(known.values())) < 2:
        return None
    choose = max if key in HIGHER else min
    return choose(known, key=lambda name: known[name])
