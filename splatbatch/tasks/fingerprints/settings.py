"""What differs between the settings that a splat was trained by and those of today. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

PLACES = (("evaluation", "holdout_list"), ("program", "working_folder"))
"""Settings that say where something lies: a copy of it elsewhere is the same."""


def changed_settings(then: Mapping[str, Any], now: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what differs between two trees of settings, as "training.max_steps 7000 -> 1000".

    A setting that one of them does not know yet, or no longer, counts as its default: a new version alone changes
    nothing.
    """
    before, after, standard = leaves(then), leaves(now), leaves(defaults)
    pairs = {key: (before.get(key, standard.get(key)), after.get(key, standard.get(key))) for key in before | after}
    known = {key: _named(key, pair) for key, pair in pairs.items() if key in after}
    return tuple(f"{key} {_shown(old)} -> {_shown(new)}" for key, (old, new) in sorted(known.items()) if old != new)


def _named(key: str, pair: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return two values; of places their names alone."""
    if tuple(key.split(".")) not in PLACES:
        return pair
    old, new = (value and PurePath(str(value)).name for value in pair)
    return old, new


def leaves(tree: Any, above: str = "") -> dict[str, Any]:
    """Return what a tree of settings holds by its full name, as "training.max_steps"."""
    if not isinstance(tree, Mapping) or (above and not tree):
        return {above: tree}
    return {
        key: value for name, one in tree.items() for key, value in leaves(one, f"{above}.{name}".strip(".")).items()
    }


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)
