"""Computes the fingerprint of a patch under a recipe: hashes of settings, inputs, border and backdrop.

A fingerprint is recorded with each accepted splat; a splat whose fingerprint differs from the present one is stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from splatbatch.config import Recipe
from splatbatch.config.recipe import LEAST_GAIN_DB, Refinement
from splatbatch.hashing import hash_of
from splatbatch.output.folders import PatchFolder
from splatbatch.output.records.colors import tones_to_record
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.scene.patches import Patch
from splatbatch.tasks.input_files import InputFiles

PLACES = (("evaluation", "holdout_list"), ("program", "working_folder"))
"""Settings that are paths, as section and key; only their last part is compared, so a copied folder changes nothing."""


def changed_settings(
    then: Mapping[str, object], now: Mapping[str, object], defaults: Mapping[str, object]
) -> tuple[str, ...]:
    """Return the differences between two trees of settings, sorted, as "training.max_steps 7000 -> 1000"; empty: none.

    A setting that is missing in one tree counts as its default, so that another version alone changes nothing. Settings
    that only `then` has are left out.
    """
    before, after, standard = leaves(then), leaves(now), leaves(defaults)
    pairs = {key: (before.get(key, standard.get(key)), after.get(key, standard.get(key))) for key in before | after}
    for key in pairs.keys() & {".".join(place) for place in PLACES}:  # of places the names alone
        old, new = pairs[key]
        pairs[key] = old and PurePath(str(old)).name, new and PurePath(str(new)).name
    return tuple(
        f"{key} {_shown(old)} -> {_shown(new)}"
        for key, (old, new) in sorted(pairs.items())
        if key in after and old != new
    )


def leaves(tree: object, above: str = "") -> dict[str, Any]:
    """Return the values of a tree of settings by full name, as "training.max_steps".

    An empty section is a value of its own.

    Args:
        tree: nested mappings, or a single value.
        above: name of the section that holds the tree; empty: the tree is the outermost.
    """
    if not isinstance(tree, Mapping) or (above and not tree):
        return {above: tree}
    return {
        key: value for name, one in tree.items() for key, value in leaves(one, f"{above}.{name}".strip(".")).items()
    }


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


NEWER = (
    ("training", "colors", "auto"),
    ("training", "border", "auto"),
    ("evaluation", "holdout", "every"),
    ("refinement", "prune_loss_db", Refinement().prune_loss_db),
)
"""Settings unknown to earlier versions: section, key and default.

A setting at its default is left out of the hash, so that splats of earlier versions stay up to date.
"""

LEAST_GAIN_BEFORE = 0.02
"""Default of `evaluation.least_gain_db` up to 0.2.0, in dB.

Where no training ends early, the setting has no effect, and this value is hashed instead of the present default.
"""

GONE_FROM_TRAINING = {"exposure": False, "packed": False}
"""Settings of earlier versions only; their defaults are hashed, so that splats of then stay up to date."""


def fingerprint(patch: Patch, recipe: Recipe) -> Fingerprint:
    """Return the fingerprint of a patch under a recipe, by its files now; the model is read and hashed.

    Missing files are recorded as missing, except those of the model. A broken model is left to the audit.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the manifest of the backdrop.
    """
    known = InputFiles(patch, recipe).now()
    return replace(
        known,
        recipe=recipe_hash(recipe),
        settings=settings_of(recipe),
        border=border_hash(patch, recipe),
        backdrop=backdrop_hash(patch, recipe),
        tones=tones_to_record({name: patch.tones[name] for name in known.photographs if name in patch.tones}),
        offset=patch.offset,
        holdout="" if patch.by_name else "frames",
    )


def border_hash(patch: Patch, recipe: Recipe) -> str:
    """Return the hash of the boxes (core and border) of a patch of a cut scene.

    Empty if the patch has none, or if its trainer does not use them.
    """
    if patch.border is None or recipe.program is not None or not recipe.training.keeps_to_core:
        return ""
    return hash_of(patch.border.to_record())


def backdrop_hash(patch: Patch, recipe: Recipe) -> str:
    """Return the SHA-256 of the accepted backdrop, if a backdrop is drawn behind the patch.

    Empty if none is drawn, or if the backdrop is not trained yet.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the manifest of the backdrop.
    """
    if patch.behind is None or not is_drawn_behind(patch, recipe):
        return ""
    return PatchFolder(patch.behind).accepted_splat()[1]


def is_drawn_behind(patch: Patch, recipe: Recipe) -> bool:
    """Return whether the backdrop, once it is trained, is drawn behind a patch under this recipe."""
    return patch.behind is not None and recipe.program is None and recipe.training.draws_behind


def recipe_hash(recipe: Recipe) -> str:
    """Return the hash of all settings of a recipe that decide the result, as `Fingerprint.recipe` records it."""
    unset = recipe.training.model_copy(update={"coarse_to_fine": "auto"})
    # where it is not set, it is hashed as the false of earlier versions; a false that changes something is not
    is_against = recipe.training.coarse_to_fine is False and unset.resolved().coarse_to_fine
    return _hash(recipe, "no" if is_against else recipe.training.coarse_to_fine is True)


def earlier_hashes(recipe: Recipe) -> tuple[str, ...]:
    """Return the hashes that earlier versions gave a recipe: with whole paths, or coarse_to_fine off by default.

    A splat recorded with such a hash is up to date.
    """
    is_coarse = recipe.training.coarse_to_fine is True
    return tuple(_hash(recipe, is_coarse, has_paths=has_paths) for has_paths in (False, True))


def _hash(recipe: Recipe, coarse_to_fine: bool | str, *, has_paths: bool = False) -> str:
    tree = recipe.decisive()
    for name, setting in () if has_paths else PLACES:  # a list is an input, and a folder may be copied elsewhere
        if (section := tree.get(name)) and section.get(setting) is not None:
            tree = tree | {name: section | {setting: PurePath(section[setting]).name}}
    if "program" not in tree and not recipe.stops_after():
        tree["evaluation"] |= {"stop_after": 0}  # `auto` in a short run: all its steps, as earlier versions made them
        if recipe.evaluation.least_gain_db == LEAST_GAIN_DB:
            tree["evaluation"] |= {"least_gain_db": LEAST_GAIN_BEFORE}
    for section, setting, default in NEWER:
        if tree.get(section, {}).get(setting) == default:
            del tree[section][setting]
    if "program" not in tree:
        tree["training"] |= GONE_FROM_TRAINING | {"coarse_to_fine": coarse_to_fine}
    return hash_of(tree)


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """Return all settings that decide the result, by section; of environment variables only the names."""
    tree = recipe.decisive()
    if "program" in tree:
        tree["program"] = tree["program"] | {"env": sorted(tree["program"].get("env") or {})}
    return tree
