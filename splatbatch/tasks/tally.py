"""How many patches there are, or are done, as one reads it: what was cut is counted, the backdrop is named."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from splatbatch.plain_text import counted
from splatbatch.store.folders import BACKDROP
from splatbatch.store.records.merge import Merge

STAGES = {"pairs", "mapping", "model"}
"""Tasks of every reconstruction; see `reconstruction.plan`."""


def is_reconstruction(names: Collection[str]) -> bool:
    """Return whether tasks are the stages of a reconstruction, not patches."""
    return STAGES.issubset(names)


def tally(done: Mapping[str, bool], what: str | None = None) -> str:
    """Return how many of some patches are done, as "3 of 4 patches", or "4 of 4 patches and the backdrop"."""
    every = counting(done)
    if what is None:
        what = "stages" if is_reconstruction(done) else "patches"
    counts = f"{sum(done[name] for name in every)} of {len(every)} {what}".rstrip()
    return counts + (" and the backdrop" if BACKDROP not in every and done.get(BACKDROP) else "")


def done_in_words(done: Mapping[str, bool], what: str | None = None) -> str:
    """Return how many are done, and how: "3 of 4 patches trained"; stages are made."""
    return f"{tally(done, what)} {'made' if is_reconstruction(done) else 'trained'}"


def verb_of(names: Collection[str]) -> str:
    """Return what is done with tasks: patches are trained, stages are made."""
    return "make" if is_reconstruction(names) else "train"


def left_in_words(num: int, names: Collection[str]) -> str:
    """Return how many are left, as "3 patches"."""
    return counted(num, "stage") if is_reconstruction(names) else counted(num, "patch", "es")


def how_many(names: Collection[str]) -> str:
    """Return how many patches there are, as "4 patches and the backdrop"."""
    every = counting(names)
    if is_reconstruction(names):
        return counted(len(every), "stage")
    return counted(len(every), "patch", "es") + (" and the backdrop" if len(every) < len(names) else "")


def behind_in_words(merged: Merge) -> str:
    """Say why a merged scene has nothing of its backdrop; empty where it has, or there is none."""
    behind = next((part for part in merged.parts if part.patch == BACKDROP and part.num_read), None)
    if behind is None or behind.num_outside < behind.num_read:
        return ""
    return (
        f"The merged scene has none of the backdrop's {counted(behind.num_read, 'Gaussian')}: all lie where patches "
        "reach, which draw that ground themselves. The backdrop stood behind them while they trained."
    )


def counting(names: Collection[str]) -> list[str]:
    """Return those that count; where nothing else is asked for, the backdrop does, too."""
    return [name for name in names if name != BACKDROP] or list(names)
