"""By which recipe and on which photographs splats were trained: as their records say, not as partition and YAML do now.

Whoever measures a splat, merges it or vouches for it asks here: what was held out of a training is what its record
says, and a photograph that any patch was trained on is held out of no scene.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from splatbatch.config import Evaluation, Recipe
from splatbatch.errors import ConfigError, SceneError
from splatbatch.scene.patches import spell
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.folders import PatchFolder
from splatbatch.store.records.result import Photographs, Result
from splatbatch.tasks.task import Task

FEW = 3
"""Names that a message holds."""


def recipe_of(task: Task, result: Result) -> Recipe:
    """Return the recipe that a splat was trained by: recorded settings, and those of today that change no splat.

    Settings that only another version can read are taken as they are today, under the recorded changes.
    """
    recorded, tree = result.trained_from.settings, task.recipe.model_dump()
    if task.recipe.program is None and "training" in recorded and "program" not in recorded:
        for section, values in recorded.items():
            if isinstance(values, dict) and isinstance(tree.get(section), dict):
                tree[section] |= values
        with contextlib.suppress(ValidationError):
            return Recipe.model_validate(_changed(tree, result.changes))
    with contextlib.suppress(ConfigError):
        return task.today.changed(result.changes).recipe
    return task.recipe


def _changed(tree: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in changes.items():
        section, _, setting = key.partition(".")
        if setting and isinstance(tree.get(section), dict):
            tree[section][setting] = value
    return tree


def photographs_of(task: Task, folder: PatchFolder, result: Result) -> Photographs:
    """Return what a patch's splat was trained on, and what was held out of that.

    Versions up to 0.2.0 did not record it. Then what the attempt was told counts, else which photographs it measured,
    else which ones its recorded settings choose.

    Raises:
        SceneError: its record does not say, and the model cannot be read.
    """
    if result.photographs is not None:
        return result.photographs
    told = AttemptFolder(folder.path / result.attempt).read_settings()
    measured = result.metrics.photos()
    if told.sparse:  # ours: an external program is told by its argv instead
        held_out = frozenset(told.holdout)
    else:
        held_out = frozenset(measured) or _chosen(task, recipe_of(task, result).evaluation)
    names = result.trained_from.photographs or _in_model(task)
    return Photographs.of(names, held_out, is_assumed=not measured and task.recipe.program is not None)


def as_today(task: Task) -> Photographs:
    """Return what a patch would be trained on today.

    Raises:
        SceneError: its model cannot be read.
    """
    return Photographs.of(_in_model(task), _chosen(task, task.recipe.evaluation))


def _chosen(task: Task, evaluation: Evaluation) -> frozenset[str]:
    from splatbatch.scene.holdout import choose_holdout

    return frozenset(choose_holdout(task.patch, evaluation))


def _in_model(task: Task) -> tuple[str, ...]:
    from splatbatch.scene.colmap.reconstruction import read_images

    return tuple(image.name for image in read_images(task.patch.sparse))


def never_trained_on(parts: Iterable[Photographs]) -> tuple[str, ...]:
    """Return what is held out of a scene: what some of its parts hold out and none was trained on, sorted."""
    known = [*parts]
    held_out = {name for one in known for name in one.held_out}
    return tuple(sorted(held_out.difference(*(one.trained for one in known))))


def disputed(parts: Mapping[str, Photographs]) -> dict[str, str]:
    """Return which patches hold out what others were trained on, or the other way round; of both sides the fewer.

    Such a photograph is test in one patch and trained on in another. Where both sides are as many, those that were
    trained on it are named.
    """
    trainers, holders = (
        Counter(name for one in parts.values() for name in getattr(one, side)) for side in ("trained", "held_out")
    )
    both = trainers.keys() & holders.keys()
    leaked = {name for name in both if trainers[name] <= holders[name]}
    found = {}
    for patch, one in parts.items():
        if names := sorted(leaked.intersection(one.trained)):
            found[patch] = f"its hold-out is another: of what the others hold out it was trained on {spell(names, FEW)}"
        elif names := sorted((both - leaked).intersection(one.held_out)):
            found[patch] = (
                f"its hold-out is another: of what the others were trained on it holds out {spell(names, FEW)}"
            )
    return found


def unlike_today(parts: Iterable[tuple[Task, Photographs]]) -> str:
    """Say in what today's choice of a hold-out contradicts the records, which count; empty where it does not."""
    trained, no_longer = set[str](), set[str]()
    for task, one in parts:
        with contextlib.suppress(SceneError):  # a model that cannot be read today chooses nothing
            now = _chosen(task, task.recipe.evaluation)
            trained |= now.intersection(one.trained)
            no_longer |= {*one.held_out} - now
    said = []
    if trained:
        names = spell(sorted(trained), FEW)
        said += [f"partition.json and YAML now hold out {names}, which was trained on: as recorded it is not"]
    if no_longer:
        names = spell(sorted(no_longer), FEW)
        said += [f"partition.json and YAML no longer hold out {names}: as recorded it is held out"]
    return f"hold-out: {'; '.join(said)}" if said else ""


def assumptions(parts: Mapping[str, Photographs]) -> str:
    """Say of which patches external programs chose their own hold-out, which no record tells; empty of none."""
    names = [name for name, one in parts.items() if one.is_assumed]
    if not names:
        return ""
    return f"hold-out: {spell(names, FEW)}: an external program may have been trained on what the settings hold out"
