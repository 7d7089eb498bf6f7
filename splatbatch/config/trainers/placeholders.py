"""Placeholders in a program's command: {name} is filled in, {{ and }} are braces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_TOKEN = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w.]*)\}")

ANYWHERE = ("patch", "steps", "seed")
"""Names that are known wherever placeholders are; besides them setting.NAME."""
IN_WORDS = (*ANYWHERE, "scene", "images", "sparse", "output", "gpu")
"""Names that are known in a command and in an environment."""


def names_in(templates: Iterable[str]) -> set[str]:
    """Return the names of all placeholders."""
    return {match[1] for template in templates for match in _TOKEN.finditer(template) if match[1]}


def fill(template: str, values: Mapping[str, object]) -> str:
    """Return a template with its placeholders filled in; true and false as YAML and most programs write them.

    Raises:
        KeyError: a name has no value.
    """
    return _TOKEN.sub(lambda match: in_words(values[match[1]]) if match[1] else match[0][0], template)


def in_words(value: object) -> str:
    """Return a value as it stands in a command."""
    return str(value).lower() if isinstance(value, bool) else str(value)
