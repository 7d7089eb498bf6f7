"""What a sweep makes of patches: each under each variant, a unit of work with a folder and a history of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from splatbatch.config import Config, unit_name
from splatbatch.errors import ConfigError
from splatbatch.scene.patches import Patch, spell

KINDS = ("variant", "patch")


def units_of(config: Config, patches: Iterable[Patch]) -> tuple[Patch, ...]:
    """Return the patches as they are or, in a sweep, each under each variant; a patch's variants stand together."""
    if not config.variants:
        return tuple(patches)
    return tuple(
        replace(patch, name=unit_name(patch.name, variant)) for patch in patches for variant in config.variants
    )


def originals(config: Config, units: Iterable[Patch]) -> tuple[Patch, ...]:
    """Return the patches behind units, each once, under their own names."""
    found = {name: replace(unit, name=name) for unit in units for name, _ in [config.split(unit.name)]}
    return tuple(found.values())


def named_units(config: Config, units: Sequence[Patch], names: Iterable[str]) -> list[str]:
    """Return names with that of a patch replaced by those of its variants."""
    of_patch: dict[str, list[str]] = {}
    for unit in units:
        of_patch.setdefault(config.split(unit.name)[0], []).append(unit.name)
    return [name for given in names for name in of_patch.get(given, [given])]


def only(config: Config, units: Sequence[Patch], conditions: Sequence[str]) -> tuple[Patch, ...]:
    """Return the units that fulfil conditions such as "variant=base", "variant=*default*" or "patch=p0".

    Of several conditions of a kind one must be fulfilled.

    Raises:
        ConfigError: a condition is none, or is fulfilled by nothing.
    """
    kept = list(units)
    for kind in KINDS:
        wanted = [value for condition in conditions for value in [_wanted(condition, kind)] if value is not None]
        known = list(dict.fromkeys(_part(config, unit, kind) for unit in units))
        for pattern in wanted:
            if not any(fnmatchcase(name, pattern) for name in known):
                there = spell([name for name in known if name]) or "none: the config has no sweep"
                raise ConfigError(f"--only {kind}={pattern}: there is none", f"There are: {there}.")
        if wanted:
            kept = [unit for unit in kept if any(fnmatchcase(_part(config, unit, kind), one) for one in wanted)]
    if not kept:
        raise ConfigError(f"--only {', '.join(conditions)}: no patch is like all of this")
    return tuple(kept)


def the_unit(units: Sequence[Patch], name: str) -> str:
    """Return the name of the one unit that is meant.

    Raises:
        ConfigError: it is a patch with several variants.
    """
    names = [unit.name for unit in units]
    if len(names) > 1:
        raise ConfigError(f"{name}: has {len(names)} variants", f"Name one of {spell(names)}.")
    return names[0]


def _wanted(condition: str, kind: str) -> str | None:
    """Return the value of a condition if it is of this kind."""
    found, equals, value = condition.partition("=")
    if not equals or found.strip() not in KINDS:
        raise ConfigError(f"--only {condition}: not of the form variant=NAME or patch=NAME", "* stands for anything.")
    return value.strip() if found.strip() == kind else None


def _part(config: Config, unit: Patch, kind: str) -> str:
    patch, variant = config.split(unit.name)
    return patch if kind == "patch" else variant.name if variant else ""
