"""What is to be inspected of a patch's accepted splat: its file, and what it was trained from; or why it cannot be."""

from __future__ import annotations

import json

from splatbatch.errors import SceneError
from splatbatch.store.folders.patch import PatchFolder
from splatbatch.store.hashes import short_hash
from splatbatch.store.records.quality.inspection import Inspection, InspectionSettings
from splatbatch.store.records.result import Result
from splatbatch.store.results import why_not_the_splat
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.task import Task
from splatbatch.trainers.builtin import settings_for

VERSION = 2
"""Raise it when a figure is made otherwise: splats are then inspected again."""


def accepted(folder: PatchFolder) -> Result:
    """Return the manifest of a patch's product.

    Raises:
        SceneError: there is none, or the splat is not the one that it speaks of.
    """
    result = folder.read_result()
    why = "not trained yet" if result is None else why_not_the_splat(folder, result, "content")
    if why or result is None:
        raise SceneError(f"{folder.path.name}: {why}: there is no splat to inspect", "Train it: splatbatch train.")
    return result


def order(batch: Batch, task: Task) -> InspectionSettings:
    """Return what the process is told that inspects a patch's splat.

    Raises:
        SceneError: there is no accepted splat, or the model cannot be read.
    """
    folder = batch.output.patch(task.name)
    result = accepted(folder)
    told = settings_for(task.recipe, task.patch, task.name)
    depends = [VERSION, result.sha256, result.trained_from.inputs, told.to_record()]
    return InspectionSettings(
        **{**vars(told), "recipe": task.recipe.model_dump(mode="json", exclude={"program"})},
        splat=str(folder.splat_of(result)),
        sha256=result.sha256,
        inputs=short_hash(json.dumps(depends, sort_keys=True, default=str)),
    )


def known(folder: PatchFolder, settings: InspectionSettings) -> Inspection | None:
    """Return the inspection that there is, if it is of this splat and nothing that it depends on has changed."""
    found = folder.read_inspection()
    return found if found is not None and found.inputs == settings.inputs and found.grade else None
