"""A sweep: the same patches under several variants; the name of a variant depends only on its settings."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import PurePath
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from splatbatch.config.recipe import Recipe
from splatbatch.config.section import Section
from splatbatch.config.yaml.source import Keys, Mistake
from splatbatch.fields import mapping

SEPARATOR = "@"
BASE = "base"
"""Name of the variant that changes no setting."""
MOST_COMBINATIONS = 1000
LONGEST_SLUG = 60
HASH_DIGITS = 6
Settings = dict[str, Any]
"""Values by the full names of their settings, as {"training.seed": 1}."""
RecipeOf = Callable[[Mapping[str, Any]], Recipe]
"""Type of a function that returns the recipe of a patch under changed settings.

It raises ConfigError if a setting is unknown or a value wrong."""


def _checked_name(value: object) -> object:
    if value and isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,63}", value, re.ASCII):
        raise ValueError("should be at most 64 letters, digits or . _ + -, and begin with a letter or digit")
    return value


class Combination(Section):
    """A combination of settings to compare, optionally with a name of your own."""

    name: Annotated[str, BeforeValidator(_checked_name)] = ""
    """Name of the variant, which becomes a part of folder names: letters, digits, . _ + and -. Left out: made from the
    settings."""
    set: Settings = {}
    """Settings by full name, as {training.seed: 1}; {}: the config as it stands."""


class Sweep(Section):
    """Settings to compare: every patch is trained under each combination."""

    matrix: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = {}
    """Settings by full name, as training.strategy, each with a list of values; all combinations are trained."""
    exclude: tuple[Annotated[Settings, Field(min_length=1)], ...] = ()
    """Combinations of the matrix to leave out: each entry drops those that have all of its values."""
    variants: tuple[Combination, ...] = ()
    """Further combinations, one by one: {name: coarse, set: {training.resolution: 1/2}}; the name may be left out."""

    def with_values(self, turn: Callable[[str, Any], Any]) -> Sweep:
        """Return a copy of the sweep with every value replaced by turn(setting, value); `setting` is a full name."""

        def turned(settings: Settings) -> Settings:
            return {key: turn(key, value) for key, value in settings.items()}

        return Sweep(
            matrix={key: tuple(turn(key, value) for value in values) for key, values in self.matrix.items()},
            exclude=tuple(map(turned, self.exclude)),
            variants=tuple(one.model_copy(update={"set": turned(one.set)}) for one in self.variants),
        )


def assignments(tree: object) -> Iterator[tuple[Keys, str, Any]]:
    """Yield place, setting and value of every assignment in a section `sweep` as it was written, valid or not.

    Places are keys and list indices below `sweep`. Parts that have not the expected form are left out.
    """
    tree = mapping(tree)
    for key, values in mapping(tree.get("matrix")).items():
        yield from ((("matrix", key, index), key, value) for index, value in enumerate(_list(values)))
    for index, entry in enumerate(_list(tree.get("exclude"))):
        yield from ((("exclude", index, key), key, value) for key, value in mapping(entry).items())
    for index, variant in enumerate(_list(tree.get("variants"))):
        settings = mapping(mapping(variant).get("set"))
        yield from ((("variants", index, "set", key), key, value) for key, value in settings.items())


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


@dataclass(frozen=True)
class Variant:
    """A combination of settings of a sweep, under which every patch is trained."""

    name: str
    settings: Mapping[str, Any]
    """The settings that the variant sets, by full name; they win over the overrides of a patch."""
    compared: Mapping[str, Any]
    """The value of every setting that any variant of the sweep sets, by full name, for comparison.

    Where this variant does not set one, the value is that of the config; None: its trainer has no such setting."""
    recipe: Recipe
    """The recipe of a patch without overrides under this variant."""


class TaskId(NamedTuple):
    """The name of a task: a patch and, in a sweep, a variant.

    As text it is the name of the task's folder, "p0@base", or "p0" without a sweep.
    """

    patch: str
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.patch}{SEPARATOR}{self.variant}" if self.variant else self.patch

    @classmethod
    def of_folder(cls, name: str) -> TaskId:
        """Return the task of a folder's name, for output folders whose config was not read; "p0" has the variant ""."""
        patch, _, variant = name.rpartition(SEPARATOR)
        return cls(patch, variant) if patch else cls(name)


def expand(sweep: Sweep, recipe_of: RecipeOf) -> tuple[Variant, ...]:
    """Return the variants of a sweep, in the order of the YAML: the matrix, then `variants`; () without a sweep.

    The sweep must have passed `faults`.

    Raises:
        ConfigError: `recipe_of` finds a setting unknown or a value wrong.
    """
    found = list(combinations(sweep))
    mentioned = dict.fromkeys(key for _, settings in found for key in settings)
    base = recipe_of({}).as_given()
    variants = []
    for place, settings in found:
        recipe = recipe_of(settings)
        values = recipe.as_given()
        compared = {key: values.get(key) for key in mentioned}
        variants.append(Variant(_name(sweep, place, settings, base), settings, compared, recipe))
    return tuple(variants)


def faults(sweep: Sweep, base: Mapping[str, object]) -> Iterator[Mistake]:
    """Yield the mistakes in a sweep whose settings are all known: repetitions, vain `exclude`, too many combinations.

    Values, names and the settings of a whole variant can be repeated. `base` has the settings of the config without the
    sweep, by full name.
    """
    matrix: dict[str, tuple[Any, ...]] = {}
    for key, values in sweep.matrix.items():
        twice = [index for index, value in enumerate(values) if value in values[:index]]
        yield from (
            (("matrix", key, index), f"{values[index]!r}: is listed twice: remove one of the two") for index in twice
        )
        matrix[key] = tuple(value for index, value in enumerate(values) if index not in twice)
    sweep = sweep.model_copy(update={"matrix": matrix})
    num = math.prod(len(values) for values in sweep.matrix.values())
    if num > MOST_COMBINATIONS:
        yield ("matrix",), f"{num} combinations: remove values, at most {MOST_COMBINATIONS} can be compared"
        return
    yield from _vain_excludes(sweep)
    yield from _repeated(sweep, base)


def _vain_excludes(sweep: Sweep) -> Iterator[Mistake]:
    products = list(_products(sweep.matrix))
    for index, entry in enumerate(sweep.exclude):
        if not any(_matches(settings, entry) for settings in products):
            yield (
                ("exclude", index),
                f"{entry!r}: no combination of the matrix has these values: correct or remove this entry",
            )
    if sweep.exclude and not list(combinations(sweep)):
        yield ("exclude",), "excludes every combination of the matrix: remove an entry"


def _repeated(sweep: Sweep, base: Mapping[str, object]) -> Iterator[Mistake]:
    """Yield the mistakes of names used twice, and of variants with the same settings as an earlier one."""
    names: set[str] = set()
    seen: dict[str, str] = {}
    for place, settings in combinations(sweep):
        name, own = _name(sweep, place, settings, base), _digest(_own(settings, base))
        if own in seen and place[0] != "matrix":
            yield place, f"has the same settings as {seen[own]}: remove one of the two"
        elif name in names:
            yield place, f"{name}: another variant has this name: choose a new one"
        names.add(name)
        seen.setdefault(own, name)


def combinations(sweep: Sweep) -> Iterator[tuple[Keys, Settings]]:
    """Yield the settings of every combination that is not excluded, with its place in the YAML below `sweep`."""
    for settings in _products(sweep.matrix):
        if not any(_matches(settings, entry) for entry in sweep.exclude):
            yield ("matrix",), settings
    for index, variant in enumerate(sweep.variants):
        yield ("variants", index), variant.set


def _products(matrix: Mapping[str, tuple[Any, ...]]) -> Iterator[Settings]:
    return (dict(zip(matrix, values, strict=True)) for values in product(*matrix.values()) if matrix)


def _matches(settings: Settings, entry: Settings) -> bool:
    return all(key in settings and settings[key] == value for key, value in entry.items())


def _own(settings: Mapping[str, object], base: Mapping[str, object]) -> list[tuple[str, Any]]:
    """Return the settings that differ from the config without the sweep, sorted by name."""
    return sorted((key, value) for key, value in settings.items() if key not in base or base[key] != value)


def _digest(own: list[tuple[str, Any]]) -> str:
    return hashlib.sha256(json.dumps(own, default=str).encode()).hexdigest()[:HASH_DIGITS] if own else BASE


def _name(sweep: Sweep, place: Keys, settings: Settings, base: Mapping[str, object]) -> str:
    """Return the name that the YAML gives, else one from the settings: "cap_max-400000_strategy-default_5f3a1c".

    The hash of the settings at its end makes it unique.
    """
    if place[0] == "variants" and (name := sweep.variants[place[1]].name):
        return name
    own = _own(settings, base)
    slug = "_".join(f"{key.rpartition('.')[2]}-{_spelt(value)}" for key, value in own)
    return f"{slug[:LONGEST_SLUG]}_{_digest(own)}" if own else BASE


def _spelt(value: object) -> str:
    """Return a value as text that is safe in the name of a folder."""
    text = value.name if isinstance(value, PurePath) else json.dumps(value, default=str)
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", text).strip("-.")
