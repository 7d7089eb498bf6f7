"""Which tones hold for a task: as its recipe asks, by what colors.json says. Loads no numpy: `status` asks, too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from splatbatch.config import Recipe, Scene
from splatbatch.plain_text import counted
from splatbatch.scene.colors.tone import NEUTRAL, Tone
from splatbatch.store.records.colors import Colors, SceneColors

if TYPE_CHECKING:
    from splatbatch.tasks.task import Task

MOST_MOVED = 0.01
"""Share by which a gain, or the falloff in a corner, may move before what was trained with it is stale."""
MOST_NAMED = 3


def wants_tones(recipe: Recipe, scene: Scene) -> bool:
    """Return whether tones may have a say in a training; an external trainer knows them as evened copies alone."""
    return recipe.training.colors != "as_is" and (recipe.program is None or scene.evened_copies)


def tones_of(colors: Colors | None, patch: str, recipe: Recipe, scene: Scene) -> Mapping[str, Tone]:
    """Return the tones in which a patch is trained, by image name; none: as its photographs are."""
    if colors is None or not wants_tones(recipe, scene):
        return {}
    solved = colors.of(patch)
    is_asked_for = recipe.training.colors == "even" or recipe.program is not None
    return solved.tones if is_asked_for or solved.is_even else {}


def in_tones(tasks: Iterable[Task], colors: Colors | None, scene: Scene) -> tuple[Task, ...]:
    """Return tasks whose patches have the tones that hold for them."""
    return tuple(_in_tones(task, tones_of(colors, task.patch.name, task.asked.recipe, scene)) for task in tasks)


def _in_tones(task: Task, tones: Mapping[str, Tone]) -> Task:
    return task if task.patch.tones == tones else replace(task, patch=replace(task.patch, tones=tones))


def why_moved(then: Mapping[str, Sequence[float]], now: Mapping[str, Sequence[float]], names: Iterable[str]) -> str:
    """Say which photographs have other tones than before, each given as gains and vignetting; empty if none has."""
    moved = {name: by for name in names if (by := _moved(then.get(name, ()), now.get(name, ()))) > MOST_MOVED}
    if not moved:
        return ""
    worst = max(moved, key=lambda name: moved[name])
    more = f" and {len(moved) - 1} more" if moved.keys() - {worst} else ""
    return f"the tones of photographs have changed: {worst} by {100 * moved[worst]:.2g} %{more}"


def _moved(then: Sequence[float], now: Sequence[float]) -> float:
    """Return by which share a photograph is rendered otherwise, in a channel or in its corners."""
    before, after = (Tone.of([*one, *NEUTRAL.gain[len(one) :]]) for one in (then, now))
    gains = [abs(math.log(b / a)) for a, b in zip(before.gain, after.gain, strict=True) if a > 0 and b > 0]
    slopes = sum(abs(b - a) for a, b in zip(before.tilt, after.tilt, strict=True))
    return math.expm1(max([*gains, abs(sum(after.vignetting) - sum(before.vignetting)) + slopes]))


def in_words(solved: SceneColors) -> list[str]:
    """Return what was found, a line for each matter: the first has the figures."""
    if solved.problem:
        return [f"photographs are left as they are: {solved.problem}"]
    spread = [[tone.gain[channel] for tone in solved.tones.values()] for channel in range(3)]
    ranges = ", ".join(f"{name} {min(one):.2f} to {max(one):.2f}" for name, one in zip("RGB", spread, strict=True))
    before, after = solved.residual_before or 0, solved.residual_after or 0
    told = f"a track's colours differ by {before:.1f} %, evened by {after:.1f} %"
    verdict = "evening pays" if solved.is_even else "they are alike as they are"
    lines = [f"{counted(len(solved.tones), 'photograph')}, gains {ranges}; {told}: {verdict}"]
    lines += [
        f"camera {name}: {100 * (1 - math.exp(min(sum(one), 1))):.0f} % darker in the corners"
        for name, one in solved.vignetting.items()
    ]
    lines += _some([one.in_words() for one in solved.outliers], "photographs as unlike")
    alone = [f"{name} is left as it is: {reason}" for name, reason in solved.left_alone.items()]
    return [*lines, *_some(alone, "photographs left as they are"), *solved.notes]


def _some(lines: Sequence[str], what: str) -> list[str]:
    more = [f"and {len(lines) - MOST_NAMED} more {what}"] if len(lines) > MOST_NAMED else []
    return [*lines[:MOST_NAMED], *more]
