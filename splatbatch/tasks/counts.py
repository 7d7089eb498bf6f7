"""Number of patches in words, for messages: the backdrop is not counted, but named."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from splatbatch.config import TaskId
from splatbatch.output.events import TaskUnit
from splatbatch.output.folders import BACKDROP
from splatbatch.output.records.merge import Merge
from splatbatch.text import plural


class CountWords(NamedTuple):
    """Words for tasks of one kind: noun, its plural ending, verb, and past participle."""

    one: str
    plural: str
    verb: str
    done: str


WORDS: Mapping[str, CountWords] = {
    "patch": CountWords("patch", "es", "train", "trained"),
    "stage": CountWords("stage", "s", "make", "done"),
    "splat": CountWords("splat", "s", "train", "trained"),
}
"""Words by noun; "splat" is used in a sweep, where several splats are trained of each patch."""


def count_patches(done: Mapping[str, bool], what: str) -> str:
    """Return the number of finished tasks in words: "3 of 4 patches", or "4 of 4 patches and the backdrop".

    The backdrop is named only once it is finished, and counted only if there is no other task.

    Args:
        done: for each task, by name, whether it is finished.
        what: noun in the plural; empty: only the numbers.
    """
    every = counted_tasks(done)
    counts = f"{sum(done[name] for name in every)} of {len(every)} {what}".rstrip()
    return counts + (" and the backdrop" if BACKDROP not in every and done.get(BACKDROP) else "")


def words_for(names: Iterable[str], noun: TaskUnit = "patch") -> CountWords:
    """Return the words for tasks with these names: those of "splat" if one is of a sweep, else those of the noun."""
    return WORDS["splat" if any(TaskId.of_folder(name).variant for name in names) else noun]


def how_many(names: Collection[str], noun: TaskUnit = "patch") -> str:
    """Return the number of tasks in words: "4 patches and the backdrop", or in a sweep "2 patches x 3 settings".

    A sweep of which only some combinations are named gives "5 splats"; stages of a reconstruction give "3 stages".
    """
    every, words = counted_tasks(names), words_for(names, noun)
    told, ids = plural(len(every), words.one, words.plural), [TaskId.of_folder(name) for name in every]
    num, variants = len({one.patch for one in ids}), len({one.variant for one in ids})
    if variants > 1 and num * variants == len(ids):
        told = f"{plural(num, 'patch', 'es')} x {variants} settings"
    return told + (" and the backdrop" if len(every) < len(names) else "")


def behind_in_words(merged: Merge) -> str:
    """Return a note if every Gaussian of the backdrop was left out of a merged scene; else empty.

    Empty also without a backdrop, or if nothing was read of it.
    """
    behind = next((part for part in merged.parts if part.patch == BACKDROP and part.num_read), None)
    if behind is None or behind.num_outside < behind.num_read:
        return ""
    return (
        f"All {plural(behind.num_read, 'Gaussian')} of the backdrop lie inside patches and were left out of the merged "
        "scene. This is normal: patches that cover the whole scene need no backdrop."
    )


def counted_tasks(names: Collection[str]) -> list[str]:
    """Return the names that are counted, in their order: all except the backdrop, unless it is the only one."""
    return [name for name in names if name != BACKDROP] or list(names)
