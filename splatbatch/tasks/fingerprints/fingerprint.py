"""What results depend on: hashes of settings and inputs, with what they were made from, so that a change has a name."""

from __future__ import annotations

import json
from typing import Any

from splatbatch.config import Recipe
from splatbatch.scene.patches import Patch
from splatbatch.store.hashes import short_hash
from splatbatch.store.records.fingerprint import Fingerprint
from splatbatch.tasks.fingerprints.inputs import inputs_of


def fingerprint(patch: Patch, recipe: Recipe) -> Fingerprint:
    """Return what a result of this patch under this recipe depends on."""
    inputs = inputs_of(patch, recipe)
    return Fingerprint(recipe_hash(recipe), inputs.hash, settings_of(recipe), inputs.files, offset=patch.offset)


def recipe_hash(recipe: Recipe) -> str:
    """Return the hash of everything in a recipe that decides what is computed."""
    return short_hash(json.dumps(recipe.decisive(), sort_keys=True))


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """Return what decides what is computed, as it may be written down: of environment variables the names alone."""
    tree = recipe.decisive()
    if "program" in tree:
        tree["program"] = tree["program"] | {"env": sorted(tree["program"].get("env") or {})}
    return tree
