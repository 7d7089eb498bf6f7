"""By which recipe splats were trained: as their records say, not as the YAML does now."""

from __future__ import annotations

import contextlib

from pydantic import ValidationError

from splatbatch.config import Recipe
from splatbatch.errors import ConfigError
from splatbatch.output.records.result import Result
from splatbatch.tasks.task import Task


def recipe_of(task: Task, result: Result) -> Recipe:
    """Return the recipe that a splat was trained by: recorded settings, and those of today that change no splat.

    Settings that only another version can read are taken as they are today, under the recorded changes.
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
