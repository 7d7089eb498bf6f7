"""Checks of the rungs of ladders; a rung changes settings, and "x0.6" multiplies the value in force."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from splatbatch.config.sections import LadderName, Rung
from splatbatch.config.sweep.checks import mistakes_in
from splatbatch.config.sweep.sweep import RecipeOf
from splatbatch.config.yaml.source import Mistake, nearest

SLOTS = "slots"
"""Key of a rung for the number of attempts that run at once on a machine; it is no setting of a patch."""
RESOLUTIONS = ("auto", "full", "1/2", "1/4", "1/8")
_FACTOR = re.compile(r"x(\d+(?:\.\d*)?|\.\d+)")
_MULTIPLE = re.compile(r"\d+(\.\d+)?x")


def factor_of(value: object) -> float | None:
    """Return the factor in a value such as "x0.6"; None for any other value."""
    found = _FACTOR.fullmatch(value) if isinstance(value, str) else None
    return float(found[1]) if found else None


def takes_factor(key: str, current: object) -> bool:
    """Return whether the value `current` of the setting `key` can be multiplied by a factor.

    It can be a number, a multiple such as "2x", a resolution, or `auto` of training.cap_max.
    """
    if isinstance(current, str):
        is_size = key == "training.resolution" and current in RESOLUTIONS
        return is_size or (key, current) == ("training.cap_max", "auto") or bool(_MULTIPLE.fullmatch(current))
    return isinstance(current, int | float) and not isinstance(current, bool)


def check_rungs(
    ladders: Mapping[LadderName, Sequence[Rung]], current: Mapping[str, object], recipe_of: RecipeOf
) -> Iterator[Mistake]:
    """Yield the mistakes in the rungs of `retry.ladders`, so that they are reported when the YAML is read.

    Args:
        ladders: the rungs of each ladder.
        current: every setting by its full name, as `Recipe.settings` returns them.
        recipe_of: returns the recipe under changed settings, to check their values.
    """
    places = [
        (("retry", "ladders", ladder, index, key), key, value)
        for ladder, rungs in ladders.items()
        for index, rung in enumerate(rungs)
        for key, value in rung.items()
    ]
    for place, key, value in places:
        if key != SLOTS and key not in current:
            yield place, f"unknown setting. {nearest(key, [*current, SLOTS])}"
        elif factor_of(value) is None:
            yield from ((place, words) for words in _why_no_value(key, value, recipe_of))
        elif key != SLOTS and not takes_factor(key, current[key]):
            yield place, no_factor(key, value, current[key])


def no_factor(key: str, value: object, current: object) -> str:
    """Return the message that the factor `value` cannot be used, since the setting's value `current` is no number."""
    return f"{value!r}: a factor multiplies a number, but {key} is {current!r}: write a value instead"


def _why_no_value(key: str, value: object, recipe_of: RecipeOf) -> list[str]:
    if key == SLOTS:
        is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
        return [] if is_count else [f"{value!r}: should be a number of attempts at once, or a factor such as x0.5"]
    return mistakes_in(key, value, recipe_of)
