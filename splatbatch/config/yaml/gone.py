"""Settings that this version no longer has: named and left out for one version, a mistake in the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from splatbatch.config.yaml.source import Source

GONE: Mapping[tuple[str, str], str] = {
    ("executor", "kind"): "Delete the line: `train` always uses the machine that it is started on.",
}
"""What to do instead, by section and setting. A line is taken out in the version after the one that brought it."""


def without_gone(source: Source) -> tuple[Source, tuple[str, ...]]:
    """Return a source without the settings that are gone, and a warning for each."""
    tree, warnings = source.tree, []
    for (section, setting), remedy in GONE.items():
        settings = tree.get(section)
        if isinstance(settings, dict) and setting in settings:
            tree = {**tree, section: {key: value for key, value in settings.items() if key != setting}}
            place = f"{source.name}:{source.line((section, setting))}"
            warnings.append(f"{place}: {section}.{setting}: gone, and left out. {remedy}")
    return replace(source, tree=tree), tuple(warnings)
