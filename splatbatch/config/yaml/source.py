"""A YAML as a tree of values with the line of every key, and hints for its mistakes."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from splatbatch.config.yaml.limits import AS_WRITTEN, STDIN, TOO_LARGE, read_file, read_text
from splatbatch.errors import ConfigError

Keys = tuple[Any, ...]
"""A place in a YAML: the keys and list indices that lead to it."""
Mistake = tuple[Keys, str]
"""A mistake in a YAML: its place, and the message."""
MOST_NAMES = 20
SYNTAX = "Look for a missing colon, a tab, or indentation that changes inside a section."
LONGEST = 300


@dataclass(frozen=True)
class YamlSource:
    """A YAML as it was read: its name for messages, its values, and the line of each key (1 is the first).

    `lines` is empty if the values come from no file.
    """

    name: str
    tree: Any
    lines: Mapping[Keys, int] = field(default_factory=dict)

    @staticmethod
    def read(path: Path, text: str | None = None) -> YamlSource:
        """Return a YAML file as a source, or `text` for a file that is not written yet; None: read the file.

        Raises:
            ConfigError: the file is unreadable, too large, empty or no YAML, its top is no mapping, or
                `BoundedComposer` refuses it.
        """
        try:
            text = read_file(path) if text is None else text
            node, tree = read_text(text)
            lines = dict(_key_lines(node)) if node else {}
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise ConfigError(f"{path}:{line}: cannot be read: it is not UTF-8", "Save it as UTF-8.") from error
        except OSError as error:
            raise ConfigError(
                f"{path}: cannot be read ({error})", "Check that the file is there and readable."
            ) from error
        except ValueError as error:  # PyYAML lets these through: no such day as 2026-13-45, a number of 5,000 digits
            raise ConfigError(
                f"{path}: no valid YAML: {error}", "Put quotes around a value that should stay text."
            ) from error
        except (yaml.YAMLError, RecursionError) as error:
            raise _no_yaml(path, error, text or "") from error
        name = "standard input" if path == STDIN else str(path)
        if not text.strip():
            raise ConfigError(
                f"{name}: is empty",
                "Write a configuration with `splatbatch init DIR`; for all defaults, a line with a comment is enough.",
            )
        tree = {} if tree is None else tree
        if not isinstance(tree, dict):
            message = f"{path}:1: should be a mapping of sections, is a {type(tree).__name__}"
            raise ConfigError(message, "Write sections with keys, such as scene: {patches: patches}.")
        tree |= _as_written(node, tree)
        return YamlSource(name, tree, lines)

    def line(self, keys: Keys) -> int:
        """Return the line of a key, or of the nearest key above it that exists; 0: none is known."""
        return next((self.lines[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in self.lines), 0)

    def placed(self, words: str) -> str:
        """Return a message with "FILE:12: " before it if it begins with a key of the file, as "scene.masks: …".

        Any other message is returned unchanged.
        """
        key = tuple(words.partition(":")[0].split(".", 1))
        return f"{self.name}:{self.lines[key]}: {words}" if key in self.lines else words


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known name most like `name`, as "Did you mean p1?".

    Without a similar name, the hint lists the known names, or only their sections if there are more than `MOST_NAMES`.
    At most so many are listed.
    """
    names = sorted(known)
    in_small = {one.lower(): one for one in reversed(names)}  # another case is the most common mistake of all
    alike = [in_small[one] for one in difflib.get_close_matches(name.lower(), in_small, n=1)]
    if close := difflib.get_close_matches(name, names, n=1) or alike:
        return f"Did you mean {in_small.get(name.lower(), close[0])}?"
    if len(names) > MOST_NAMES:
        names = list(dict.fromkeys(f"{one.partition('.')[0]}.*" if "." in one else one for one in names))
    if len(names) > MOST_NAMES:
        names = [*names[: MOST_NAMES - 1], f"… {names[-1]}"]
    return f"Known: {', '.join(names) or 'none'}."


def no_such(path: Path, wanted: str) -> str:
    """Return why a path is not the wanted thing, such as a "folder": it is missing, or is something else."""
    kinds = {"a folder": os.path.isdir, "a file": os.path.isfile, "a device or a pipe": os.path.exists}  # none raises
    there = next((kind for kind, is_one in kinds.items() if is_one(path)), "")
    return f"{there}, not a {wanted}" if there else f"no such {wanted}"


def no_such_patch(name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for an argument that names neither a patch nor a file or folder.

    Its hint has the most similar name of a patch, or lists the known ones.
    """
    what = "a file, not a patch" if os.path.isfile(name) else "no such patch, file or folder"  # noqa: PTH113 - as above
    place = near(Path(name)) if os.sep in name or Path(name).suffix else ""
    return ConfigError(f"{name}: {what}", f"{place} {nearest(name, known)}")


def near(path: Path) -> str:
    """Return a hint for a missing path: the most similar name in the nearest folder above it that exists.

    Without such a name, what the folder holds. Empty: the path exists, or no folder above it has names that help.
    """
    above = next((one for one in path.absolute().parents if os.path.isdir(one)), None)  # noqa: PTH112 - never raises
    try:
        names = [name for name in os.listdir(above) if name[0] != "."] if above else []  # noqa: PTH208 - names alone
    except OSError:
        names = []
    if above is None or not names or os.path.lexists(path):
        return ""
    hint = nearest(path.absolute().relative_to(above).parts[0], names)
    if hint.startswith("Known: "):  # what the root of the disk holds is no help
        return f"{above} holds {hint.removeprefix('Known: ')}" if above != above.parent else ""
    return f"{hint} (in {above})"


REMEDIES = {
    "the tag": "Remove the YAML tag {tag}: a configuration has none.",
    "another document": "Remove the line ---: a configuration is one document.",
    "escape": "Single quotes keep a backslash as it is: 'C:\\data'.",
    "'\\t'": "Indent with spaces, not with a tab.",
    "end of stream": "Close the quote that begins in this line.",
    "expected ':'": "A space is missing after the colon: write {right}.",
    "cannot start": "Quote the value.",
}
"""Remedies by words of PyYAML's messages; of several words that stand in a message, the first here counts."""
FROM_ITS_BEGIN = ("end of stream", "expected ':'")
"""Words of PyYAML's messages that name a line too far down; the line where the faulty construct begins is shown
instead."""


def _no_yaml(path: Path, error: Exception, text: str) -> ConfigError:
    if isinstance(error, yaml.reader.ReaderError):
        number, letter = text[: error.position].count("\n") + 1, f"U+{ord(text[error.position]):04X}"
        return ConfigError(
            f"{path}:{number}: no valid YAML: the character {letter} is not allowed", f"Remove the character {letter}."
        )
    if not isinstance(error, yaml.MarkedYAMLError):
        return ConfigError(f"{path}: no valid YAML: {error}")
    problem = str(error.problem or error)[:LONGEST]
    mark = error.problem_mark
    if error.context_mark and any(words in problem for words in FROM_ITS_BEGIN):
        mark = error.context_mark
    line = f":{mark.line + 1}" if mark else ""
    if error.note:
        what = "too large" if error.note == TOO_LARGE else "no valid YAML"
        return ConfigError(f"{path}{line}: {what}: {problem}", error.note)
    written = text.splitlines()[mark.line].strip() if text and mark and mark.line < len(text.splitlines()) else ""
    tag = problem.partition("'")[2].rstrip("'").replace("tag:yaml.org,2002:", "!!")
    hint = next((remedy for words, remedy in REMEDIES.items() if words in problem), SYNTAX)
    hint = hint.replace("{tag}", tag).replace("{right}", written.replace(":", ": ", 1) or "key: value")
    return ConfigError(f"{path}{line}: no valid YAML: {problem}", hint)


def parse_value(text: str) -> object:
    """Return the value that YAML reads from a text: 3 is a number, [1, 2] a list; None for an empty text or null.

    Raises:
        ConfigError: `text` is no YAML.
    """
    try:
        return read_text(text)[1]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = getattr(error, "problem", "") or ""
        why = f": {problem}" if " is read as " in problem else ""
        raise ConfigError(
            f"{text!r}: the value is not valid YAML{why}", "Put quotes around a value that is text."
        ) from error


def dump(tree: Mapping[str, object]) -> str:
    """Return a tree as YAML text, keys in their order."""
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100)


def quote(text: str) -> str:
    """Return a text as quoted YAML on one line, which is read back as the same text."""
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=1 << 30).rstrip("\n")


def _as_written(node: yaml.Node | None, tree: Mapping[Any, object]) -> dict[str, str]:
    """Return the settings of `AS_WRITTEN` as the text that stands in the file."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    named = ((key.value, value) for key, value in pairs if isinstance(value, yaml.ScalarNode))
    return {key: value.value for key, value in named if key in AS_WRITTEN and tree.get(key) is not None}


def _key_lines(node: yaml.Node, above: Keys = ()) -> Iterable[tuple[Keys, int]]:
    """Yield (keys, line) for every key and list element; for a key also set by <<, its own line comes last."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = str(key.value)
            yield (*above, name), key.start_mark.line + 1
            yield from _key_lines(value, (*above, name))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*above, index), value.start_mark.line + 1
            yield from _key_lines(value, (*above, index))
