"""Tells which photographs were held out of a splat, by its record, and of a whole scene, for evaluation and merge.

A photograph that any patch was trained on is not held out of the scene. `scene.holdout.choose_holdout` alone chooses
photographs, from the recipe and the partition, or the model of source or patch. The choice is recorded only with
attempts (settings.json) and splats (result.json). Whether frames or single photographs are held out,
`decide.decide_holdout` decides for all patches.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from splatbatch.config import Evaluation, Recipe
from splatbatch.errors import ConfigError, SceneError
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import MergedFiles
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.result import Result, UsedPhotographs
from splatbatch.scene.patches import list_names
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.task import Task, TrainTask

DIFFERS = "its hold-out differs"
"""Begin of the reason why a patch with a contradicting hold-out cannot be merged."""
FEW = 3
"""Most names in a message; others are counted."""


def frames_in_words(tasks: Iterable[Task]) -> tuple[str, ...]:
    """Return lines with the number of held-out photographs and frames, for at most `FEW` scenes.

    Empty for scenes whose photographs were taken one by one, or whose model cannot be read.
    """
    from splatbatch.scene.holdout import scene_in_words

    evaluations = {
        task.patch: task.requested_settings.recipe.evaluation for task in tasks if isinstance(task, TrainTask)
    }
    scenes = {patch.partition or patch.source or patch.sparse: patch for patch in evaluations}
    said = (scene_in_words(patch, evaluations[patch]) for patch in islice(scenes.values(), FEW))
    return tuple(filter(None, dict.fromkeys(said)))


def photographs_of(task: Task, result: Result) -> UsedPhotographs:
    """Return the photographs that a splat was trained on, and those held out, as its result.json records them.

    Versions up to 0.2.0 recorded neither. Then settings.json of the attempt counts, else the measured photographs, else
    the choice by its recorded settings.

    Raises:
        SceneError: result.json does not record them, and the model cannot be read.
    """
    if result.photographs is not None:
        return result.photographs
    told = AttemptFolder(task.home.path / result.attempt).read_settings()
    measured = result.metrics.photos()
    if told.sparse:  # ours: an external program is told by its argv instead
        held_out = frozenset(told.holdout)
    else:
        held_out = frozenset(measured) or _chosen(task, recipe_of(task, result).evaluation)
    names = result.trained_from.photographs or _in_model(task)
    return UsedPhotographs.of(names, held_out, is_assumed=not measured and task.recipe.program is not None)


def recipe_of(task: Task, result: Result) -> Recipe:
    """Return the recipe that a splat was trained by: its recorded settings, and for all others those of now.

    With an external trainer, or if this version cannot read the recorded settings, the settings of now with the
    recorded changes are returned; if these do not fit either, the settings of now.
    """
    recorded, tree = result.trained_from.settings, task.recipe.model_dump()
    if task.recipe.program is None and "training" in recorded and "program" not in recorded:
        for section, values in recorded.items():
            if isinstance(values, dict) and isinstance(tree.get(section), dict):
                tree[section] |= values
        for key, value in result.changes.items():
            section, _, setting = key.partition(".")
            if setting and isinstance(tree.get(section), dict):
                tree[section][setting] = value
        with contextlib.suppress(ValidationError):
            return Recipe.model_validate(tree)
    with contextlib.suppress(ConfigError):
        return task.yaml_settings.changed(result.changes).recipe
    return task.recipe


def _chosen(task: Task, evaluation: Evaluation) -> frozenset[str]:
    from splatbatch.scene.holdout import choose_holdout

    return frozenset(choose_holdout(task.patch, evaluation))


def _in_model(task: Task) -> tuple[str, ...]:
    from splatbatch.scene.colmap.reconstruction import read_images

    return tuple(image.name for image in read_images(task.patch.sparse))


def held_out(batch: Batch, splat: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the photographs held out of a splat of the scene, sorted, and notes on that hold-out.

    The names are read from the splat's merge record, else from the manifests (result.json) of all patches. If no patch
    is trained yet, the names follow from the settings. Notes are empty if nothing is odd.

    Raises:
        SceneError: no photograph is held out, or a model cannot be read.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    scene = batch.output.scene
    files = scene.merged if splat.resolve() == scene.splat.resolve() else MergedFiles.at(splat)
    known = ((task, task.home.read_result()) for task in batch.every)
    merged, parts = files.read(), [(task, photographs_of(task, result)) for task, result in known if result]
    if merged is not None and merged.held_out is not None:
        names = merged.held_out
    else:
        today = (UsedPhotographs.of(_in_model(task), _chosen(task, task.recipe.evaluation)) for task in batch.every)
        names = never_trained_on([one for _, one in parts] or [*today])
    if not names:
        message = "evaluation.holdout_every: no photograph is held out by all patches, so nothing can be measured"
        raise SceneError(message, "Hold photographs out, for example with holdout_every: 8, and train again.")
    own = [(task, one) for task, one in parts if not task.patch.is_whole]
    notes = (describe_holdout_change(own), assumptions({task.name: one for task, one in own}))
    return names, tuple(filter(None, notes))


def recorded_holdout(output: OutputFolder, patches: Iterable[str]) -> tuple[str, ...]:
    """Return the names of photographs held out of a scene, by merge.json, else by the result.json of its patches.

    Empty if neither records any.

    Raises:
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    merged = output.scene.merged.read()
    if merged is not None and merged.held_out is not None:
        return merged.held_out
    results = (output.patch(name).read_result() for name in patches)
    return never_trained_on(result.photographs for result in results if result and result.photographs)


def never_trained_on(parts: Iterable[UsedPhotographs]) -> tuple[str, ...]:
    """Return the names of photographs that some parts hold out and no part was trained on, sorted; empty: none."""
    known = [*parts]
    held_out = {name for one in known for name in one.held_out}
    return tuple(sorted(held_out.difference(*(one.trained for one in known))))


def conflicting_holdout(parts: Mapping[str, UsedPhotographs]) -> dict[str, str]:
    """Return the patches whose hold-out contradicts that of other patches, each with the reason; they cannot be merged.

    A contradiction is a photograph held out in one patch and trained on in another. Of the two sides, the side with
    fewer patches is returned; if both have as many, the patches trained on the photograph.
    """
    trainers, holders = (
        Counter(name for one in parts.values() for name in getattr(one, side)) for side in ("trained", "held_out")
    )
    both = trainers.keys() & holders.keys()
    leaked = {name for name in both if trainers[name] <= holders[name]}
    found = {}
    for patch, one in parts.items():
        if names := sorted(leaked.intersection(one.trained)):
            found[patch] = (
                f"{DIFFERS}: other patches hold out photographs that it was trained on: {list_names(names, FEW)}"
            )
        elif names := sorted((both - leaked).intersection(one.held_out)):
            found[patch] = f"{DIFFERS}: it holds out photographs that others were trained on: {list_names(names, FEW)}"
    return found


def describe_holdout_change(parts: Iterable[tuple[Task, UsedPhotographs]]) -> str:
    """Return a note if the hold-out by the settings of now differs from the recorded one, which counts; else empty.

    Args:
        parts: tasks, each with the photographs of its splat; a task whose model cannot be read is skipped.
    """
    trained, no_longer = set[str](), set[str]()
    for task, one in parts:
        with contextlib.suppress(SceneError):  # a model that cannot be read today chooses nothing
            now = _chosen(task, task.recipe.evaluation)
            trained |= now.intersection(one.trained)
            no_longer |= {*one.held_out} - now
    said = []
    if trained:
        names = list_names(sorted(trained), FEW)
        said += [f"partition.json and YAML now hold out {names}, but the splat was trained on it"]
    if no_longer:
        names = list_names(sorted(no_longer), FEW)
        said += [f"partition.json and YAML no longer hold out {names}; figures still hold it out, as recorded"]
    return f"hold-out: {'; '.join(said)}" if said else ""


def assumptions(parts: Mapping[str, UsedPhotographs]) -> str:
    """Return a note that names patches whose external trainer may have trained on held-out photographs; else empty."""
    who = list_names([name for name, one in parts.items() if one.is_assumed])
    return f"the hold-out of {who} is not certain: an external trainer may have used it for training" if who else ""
