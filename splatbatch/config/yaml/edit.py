"""Changes to the user's YAML that keep its comments, order and quotes. The only module that imports ruamel.yaml."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

from splatbatch.config.yaml.limits import read_file
from splatbatch.errors import ConfigError
from splatbatch.files import write_text


def save_settings(path: Path, changes: Mapping[str, object], patch: str = "") -> None:
    """Write settings into the YAML, whole or not at all; other settings, comments, order and quotes stay.

    Args:
        path: the YAML; a symbolic link stays a link, and the file it names is written.
        changes: settings by their full names, as {"training.max_steps": 7000}.
        patch: the patch whose overrides are changed; empty: the settings of all patches.

    Raises:
        ConfigError: the file cannot be read or written, or has no mapping at a section.
    """
    where = ("patches", patch) if patch else ()
    try:
        text = _edited(path, lambda tree: _set(tree, where, changes))
        target = path.resolve()  # a link stays a link
        mode = target.stat().st_mode & 0o7777
        write_text(target, text)
        os.chmod(target, mode)  # noqa: PTH101
    except (OSError, ValueError, YAMLError, TypeError, AttributeError) as error:
        whose = f"of {patch} " if patch else ""
        raise ConfigError(
            f"{path}: settings {whose}cannot be saved ({error})", "Add them to the YAML by hand."
        ) from error


def _edited(path: Path, change: Callable[[Any], None]) -> str:
    """Return the text of a YAML after `change` has modified its tree; comments, order and quotes stay."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096  # lines stay whole
    tree = yaml.load(read_file(path))
    tree = CommentedMap() if tree is None else tree
    change(tree)
    text = io.StringIO()
    yaml.dump(tree, text)
    return text.getvalue()


def _set(tree: Any, where: tuple[str, ...], changes: Mapping[str, object]) -> None:
    for key, value in changes.items():
        place, (*sections, setting) = tree, (*where, *key.split("."))
        for name in sections:
            if place.get(name) is None:
                place[name] = CommentedMap()
            place = place[name]
        place[setting] = list(value) if isinstance(value, tuple) else value


def save_moved(
    path: Path, target: Path, scene: Mapping[str, str], paths: Mapping[str, str], patches: Collection[str]
) -> None:
    """Write a copy of a YAML with another scene and other paths; other settings and most comments stay.

    Args:
        path: the YAML.
        target: the copy, written whole; an existing file is replaced.
        scene: the section `scene` of the copy.
        paths: other paths by their keys, as "output.folder".
        patches: names of the patches whose overrides stay; those of other patches are removed.

    Raises:
        ConfigError: the file cannot be read or written, or has no mapping at a section.
    """

    def move(tree: Any) -> None:
        tree["scene"] = CommentedMap(scene)
        for name in set(tree.get("patches") or ()) - set(patches):
            del tree["patches"][name]
        _set(tree, (), paths)

    try:
        write_text(target, _edited(path, move))
    except (OSError, ValueError, YAMLError, TypeError, AttributeError) as error:
        raise ConfigError(f"{target}: cannot be written ({error})", f"Copy {path} there by hand.") from error
