"""Settings that this version no longer has: named and left out for one version, a mistake in the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from splatbatch.config.yaml.source import Keys, Source

GONE: Mapping[Keys, str] = {
    ("executor", "kind"): "Delete the line: `train` always uses the machine that it is started on.",
}
"""What to do instead, by key. A line is taken out in the version after the one that brought it."""


def without_gone(source: Source) -> tuple[Source, tuple[str, ...]]:
    """Return a source without the settings that are gone, and a warning for each."""
    found = [keys for keys in GONE if _section(source.tree, keys) is not None]
    tree = source.tree
    for keys in found:
        tree = _without(tree, keys)
    return Source(source.name, tree, source.lines), tuple(_warnings(source, found))


def _section(tree: Any, keys: Keys) -> Any:
    """Return the section in which a setting stands; None if it stands nowhere."""
    for key in keys[:-1]:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) and keys[-1] in tree else None


def _without(tree: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    key, *below = keys
    kept = {name: value for name, value in tree.items() if below or name != key}
    return {**kept, key: _without(tree[key], tuple(below))} if below else kept


def _warnings(source: Source, found: list[Keys]) -> Iterator[str]:
    for keys in found:
        place = f"{source.name}:{source.line(keys)}"
        yield f"{place}: {'.'.join(keys)}: gone, and left out. {GONE[keys]}"
