"""Checks of a sweep beyond the types of its values: unknown settings, wrong values, impossible combinations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from pydantic import ValidationError

from splatbatch.config.sweep.sweep import (
    MOST_COMBINATIONS,
    RecipeOf,
    Settings,
    Sweep,
    assignments,
    combinations,
    faults,
)
from splatbatch.config.yaml.mistakes import InvalidSettings, spelt
from splatbatch.config.yaml.source import Keys, Mistake
from splatbatch.errors import ConfigError

TRAINER = "training.trainer"
MOST_VALUES = 2500
"""Largest number of values in a sweep; each is checked, which takes a second for some thousand."""


def check_sweep(tree: dict[str, Any], trainers: Iterable[str], recipe_of: RecipeOf) -> Iterator[Mistake]:
    """Yield the mistakes in the sweep of a YAML; none without a section `sweep`.

    Args:
        tree: the whole YAML as it was read.
        trainers: the names of the external trainers in the YAML.
        recipe_of: returns the recipe under changed settings, to check their values.
    """
    written = tree.get("sweep") or {}
    found: dict[tuple[str, str], Keys] = {}  # an unknown setting is one mistake, whatever its values
    trainers = tuple(trainers)
    are_unknown = bool(tree.get("trainers")) and not trainers  # they have mistakes of their own
    if next(islice(assignments(written), MOST_VALUES, None), None):
        yield (
            ("sweep",),
            f"more than {MOST_VALUES} values: remove some, at most {MOST_COMBINATIONS} combinations can be compared",
        )
        return
    for place, key, value in assignments(written):
        if are_unknown and (key == TRAINER or key.startswith("setting.")):
            continue
        for words in mistakes_in(key, value, recipe_of, _contexts(key, trainers)):
            found.setdefault((key, words), place)
    yield from ((("sweep", *place), words) for (_, words), place in found.items())
    with contextlib.suppress(ValidationError, ConfigError):  # of the section, listed already; of the config by itself
        sweep = Sweep.model_validate(written)
        if written and not found and not are_unknown:
            sweep = sweep.with_values(lambda key, value: normal(key, value, trainers, recipe_of))
            yield from ((("sweep", *place), words) for place, words in _faults(sweep, recipe_of))


def normal(key: str, value: object, trainers: Iterable[str], recipe_of: RecipeOf) -> object:
    """Return a value of the setting `key` as a recipe holds it, such as a number for "1e-4", which YAML reads as text.

    A value that does not fit is returned unchanged.
    """
    for context in _contexts(key, trainers):
        with contextlib.suppress(ConfigError):
            return recipe_of({**context, key: value}).as_given()[key]
    return value


def _contexts(key: str, trainers: Iterable[str]) -> list[Settings]:
    """Return further settings under which a setting may be known: none, or another trainer."""
    return [{}, *({TRAINER: name} for name in trainers if key != TRAINER)]


def mistakes_in(key: str, value: object, recipe_of: RecipeOf, contexts: Iterable[Settings] = ({},)) -> list[str]:
    """Return the messages about one value of a setting; none if the value is valid in at least one of the contexts.

    `contexts` are further settings that hold with it, such as another trainer. A mistake that concerns several settings
    together gives no message.
    """
    words: list[str] = []
    for context in contexts:
        try:
            recipe_of({**context, key: value})
        except InvalidSettings as error:
            # what concerns several settings together is checked where they are together
            words = words or [what for where, what in error.mistakes if spelt(where) == key]
            if words:
                continue
        return []
    return words


def _faults(sweep: Sweep, recipe_of: RecipeOf) -> Iterator[Mistake]:
    """Yield the mistakes in the combinations of a sweep whose single values are valid."""
    found = list(faults(sweep, recipe_of({}).as_given()))
    yield from found
    if found:
        return
    for place, settings in combinations(sweep):
        try:
            recipe_of(settings)
        except InvalidSettings as error:
            yield place, f"{settings}: {'; '.join(words for _, words in error.mistakes)}"
