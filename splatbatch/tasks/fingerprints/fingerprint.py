"""What results depend on: hashes of settings and inputs, with what they were made from, so that a change has a name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splatbatch.config import Recipe
from splatbatch.files import Record
from splatbatch.scene.patches import Patch
from splatbatch.store.hashes import short_hash
from splatbatch.tasks.fingerprints.inputs import Files, files_to_record, inputs_of


@dataclass(frozen=True)
class Fingerprint:
    """What a result depends on; if any of it changes the result is stale."""

    recipe: str
    """Hash of all settings that decide what is computed, before changes by --set or by a rung."""
    inputs: str
    """Hash of the model, the choice of hold-out, and of names and sizes of its photographs and masks."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that `recipe` stands for; values of environment variables left out, since they are secrets."""
    files: Files = field(default_factory=dict)
    """What `inputs` stands for: each file with its size, time and, as far as known, content."""

    def to_record(self) -> Record:
        """Return it as job.json and result.json hold it."""
        files = files_to_record(self.files)
        return {"recipe": self.recipe, "inputs": self.inputs, "settings": dict(self.settings), "files": files}


def fingerprint(patch: Patch, recipe: Recipe) -> Fingerprint:
    """Return what a result of this patch under this recipe depends on."""
    inputs = inputs_of(patch, recipe)
    return Fingerprint(recipe_hash(recipe), inputs.hash, settings_of(recipe), inputs.files)


def recipe_hash(recipe: Recipe) -> str:
    """Return the hash of everything in a recipe that decides what is computed."""
    return short_hash(json.dumps(recipe.decisive(), sort_keys=True))


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """Return what decides what is computed, as it may be written down: of environment variables the names alone."""
    tree = recipe.decisive()
    if "program" in tree:
        tree["program"] = tree["program"] | {"env": sorted(tree["program"].get("env") or {})}
    return tree
