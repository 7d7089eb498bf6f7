"""Settings that this version no longer has: named and left out for one version, a mistake in the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from splatbatch.config.yaml.source import YamlSource

FIXED = "Delete the line: it is no setting any more, but always {value}."
GONE: Mapping[tuple[str, str], str] = {
    ("evaluation", "colors_from"): FIXED.format(value="all"),
    ("scene", "evened_copies"): "Write training.colors: even, where external trainers are to get evened copies.",
    ("training", "packed"): FIXED.format(value="false"),
    ("executor", "mps"): FIXED.format(value="on where patches share a GPU and its daemon can be started"),
    ("executor", "standby"): FIXED.format(value="auto: the next patch stands by where a GPU trains"),
    ("cooldown", "free_mib"): FIXED.format(value="64"),
    ("limits", "pause_s"): FIXED.format(value="an hour"),
    ("notify", "timeout_s"): FIXED.format(value="30 s"),
    ("publish", "memory_mib"): FIXED.format(value="8192"),
    ("publish", "wall_s"): FIXED.format(value="half an hour"),
    ("retry", "first_wait_s"): FIXED.format(value="10 s"),
    ("retry", "longest_wait_s"): FIXED.format(value="10 minutes"),
    ("tracking", "timeout_s"): FIXED.format(value="2 minutes"),
}
"""What to do instead, by section and setting. A line is taken out in the version after the one that brought it."""


def without_gone(source: YamlSource) -> tuple[YamlSource, tuple[str, ...]]:
    """Return a source without the settings that are gone, and a warning for each, those of single patches too."""
    tree, warnings = _without(source, source.tree, ())
    patches = tree.get("patches")
    if isinstance(patches, dict):
        kept = {}  # built once: thousands of patches may have settings of their own
        for name, settings in patches.items():
            kept[name], more = (
                _without(source, settings, ("patches", name)) if isinstance(settings, dict) else (settings, [])
            )
            warnings += more
        tree = {**tree, "patches": kept}
    return replace(source, tree=tree), tuple(warnings)


def _without(source: YamlSource, tree: dict[str, Any], above: tuple[str, ...]) -> tuple[dict[str, Any], list[str]]:
    warnings = []
    for (section, setting), remedy in GONE.items():
        settings = tree.get(section)
        if isinstance(settings, dict) and setting in settings:
            tree = {**tree, section: {key: value for key, value in settings.items() if key != setting}}
            path = (*above, section, setting)
            warnings.append(f"{source.name}:{source.line(path)}: {'.'.join(path)}: gone, and left out. {remedy}")
    return tree, warnings
