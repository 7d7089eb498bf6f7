"""What of a YAML is meant for us: not the writer's own anchors under x-…, nor a section in which nothing stands."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from splatbatch.config.yaml.source import Source

OWN = "x-"


def meant(source: Source, sections: Collection[str]) -> Source:
    """Return a source without keys that begin with x-, and without known sections and patches that are empty."""
    tree = {key: value for key, value in source.tree.items() if not str(key).startswith(OWN)}
    tree = _without_empty(tree, sections)
    if isinstance(patches := tree.get("patches"), dict):
        own = {name: {} if value is None else value for name, value in patches.items()}
        tree["patches"] = {
            name: _without_empty(value, sections) if isinstance(value, dict) else value for name, value in own.items()
        }
    return replace(source, tree=tree)


def _without_empty(tree: dict[Any, Any], sections: Collection[str]) -> dict[Any, Any]:
    return {key: value for key, value in tree.items() if value is not None or key not in sections}
