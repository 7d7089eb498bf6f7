"""A sweep's variants side by side: what they set, how they did in the mean and patch by patch, and which did best."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from splatbatch.config import Variant
from splatbatch.files import Record

FIGURES = ("psnr", "ssim", "num_gaussians", "bytes", "seconds")
HIGHER = ("psnr", "ssim")
"""Figures of which more is better; of the others, less."""


def compare(patches: Sequence[Record], variants: Sequence[Variant]) -> Record | None:
    """Return the comparison of a sweep; None without one.

    Keys: settings (full names of those that are compared), patches (names), variants (one object each, in the order of
    the YAML: variant, settings, trained, of, is_comparable, mean, patches), best (variant by figure), best_of_patch
    (variant by patch, after its PSNR). The figures are those of `FIGURES`; a mean is over the trained patches.

    Means over different patches say nothing: those of the largest set of patches that a variant has trained are
    compared, and `is_comparable` says which these are.
    """
    if not variants:
        return None
    names = {variant.name for variant in variants}
    tasks = {(one["of_patch"], one["variant"]): one for one in patches if one["variant"] in names}
    of_patches = list(dict.fromkeys(patch for patch, _ in tasks))
    rows = [_row(variant, {patch: tasks.get((patch, variant.name)) for patch in of_patches}) for variant in variants]
    fullest = max((_trained(row) for row in rows), key=len)
    for row in rows:
        row["is_comparable"] = bool(fullest) and _trained(row) == fullest
    comparable = [row for row in rows if row["is_comparable"]]
    return {
        "settings": list(variants[0].compared),
        "patches": of_patches,
        "variants": rows,
        "best": {key: _best({row["variant"]: row["mean"][key] for row in comparable}, key) for key in FIGURES},
        "best_of_patch": {
            patch: _best({row["variant"]: row["patches"][patch]["psnr"] for row in rows}, "psnr")
            for patch in of_patches
        },
    }


def spelt(value: Any) -> str:
    """Return the value of a setting as people write it."""
    if value is None or isinstance(value, str | PurePath):
        return "" if value is None else str(value)
    short = f"{value:g}" if isinstance(value, float) else ""
    return short if short and float(short) == value else json.dumps(value, default=str)


def _row(variant: Variant, tasks: Mapping[str, Record | None]) -> Record:
    figures = {patch: _figures(task) for patch, task in tasks.items()}
    means = {key: _mean([one[key] for one in figures.values() if one["state"] == "trained"]) for key in FIGURES}
    return {
        "variant": variant.name,
        "settings": {
            key: value if isinstance(value, bool | int | float) else spelt(value)
            for key, value in variant.compared.items()
        },
        "trained": sum(one["state"] == "trained" for one in figures.values()),
        "of": len(figures),
        "mean": means,
        "patches": figures,
    }


def _figures(task: Record | None) -> Record:
    """Return what is compared of a patch under a variant; `changes` are settings that a failure made it change."""
    if task is None:
        return {"state": "waiting", "changes": {}, **dict.fromkeys(FIGURES)}
    is_trained = task["state"] == "trained"
    return {
        "state": task["state"],
        "changes": task["changes"],
        **{key: task[key] if is_trained else None for key in FIGURES},
    }


def _trained(row: Record) -> frozenset[str]:
    return frozenset(patch for patch, figures in row["patches"].items() if figures["state"] == "trained")


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
