"""How many patches there are, or are done, as one reads it: what was cut is counted, the backdrop is named."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from splatbatch.config import TaskId
from splatbatch.output.events import TaskUnit
from splatbatch.output.folders import BACKDROP
from splatbatch.output.records.merge import Merge
from splatbatch.text import plural


class CountWords(NamedTuple):
    """What is said of tasks."""

    one: str
    plural: str
    verb: str
    done: str


WORDS: Mapping[str, CountWords] = {
    "patch": CountWords("patch", "es", "train", "trained"),
    "stage": CountWords("stage", "s", "make", "done"),
    "splat": CountWords("splat", "s", "train", "trained"),
}
"""By noun; "splat" of patches that a sweep trains under several settings."""


def count_patches(done: Mapping[str, bool], what: str) -> str:
    """Return how many of some patches are done, as "3 of 4 patches", or "4 of 4 patches and the backdrop"."""
    every = counted_tasks(done)
    counts = f"{sum(done[name] for name in every)} of {len(every)} {what}".rstrip()
    return counts + (" and the backdrop" if BACKDROP not in every and done.get(BACKDROP) else "")


def words_for(names: Iterable[str], noun: TaskUnit = "patch") -> CountWords:
    """Return what is said of tasks with these names."""
    return WORDS["splat" if any(TaskId.of_folder(name).variant for name in names) else noun]


def how_many(names: Collection[str], noun: TaskUnit = "patch") -> str:
    """Return how many patches there are, as "4 patches and the backdrop", in a sweep as "2 patches x 3 settings".

    Of other tasks, as "3 stages"; of a sweep's splats that are not all, as "5 splats".
    """
    every, words = counted_tasks(names), words_for(names, noun)
    told, ids = plural(len(every), words.one, words.plural), [TaskId.of_folder(name) for name in every]
    num, variants = len({one.patch for one in ids}), len({one.variant for one in ids})
    if variants > 1 and num * variants == len(ids):
        told = f"{plural(num, 'patch', 'es')} x {variants} settings"
    return told + (" and the backdrop" if len(every) < len(names) else "")


def behind_in_words(merged: Merge) -> str:
    """Say why a merged scene has nothing of its backdrop; empty where it has, or there is none."""
    behind = next((part for part in merged.parts if part.patch == BACKDROP and part.num_read), None)
    if behind is None or behind.num_outside < behind.num_read:
        return ""
    return (
        f"All {plural(behind.num_read, 'Gaussian')} of the backdrop lie inside patches and were left out of the merged "
        "scene. This is normal: patches that cover the whole scene need no backdrop."
    )


def counted_tasks(names: Collection[str]) -> list[str]:
    """Return those that count; where nothing else is asked for, the backdrop does, too."""
    return [name for name in names if name != BACKDROP] or list(names)
