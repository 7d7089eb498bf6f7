"""Classes and modules have names of the field: no word of scripts/words.toml, no participle, no name twice."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INSTEAD: dict[str, str] = tomllib.loads((ROOT / "scripts/words.toml").read_text())["instead"]
PROCESSES = {
    *("training", "matching", "mapping", "rendering", "pruning", "packing", "tiling", "binning", "compositing"),
    *("handling", "stopping", "hashing", "isolated"),
}
"""Words of the field that end as participles do; `isolated` runs a call in a process of its own."""


def words_of(name: str) -> list[str]:
    """Return the words of a name, in lower case: of ViewOfOne, or of view_of_one."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def modules() -> Iterator[Path]:
    return (path for path in sorted((ROOT / "splatbatch").rglob("*.py")) if "node_modules" not in path.parts)


def classes() -> Iterator[str]:
    for path in modules():
        yield from (one.name for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.ClassDef))


def names_of_modules() -> Iterator[str]:
    for path in modules():
        yield path.parent.name if path.name == "__init__.py" else path.stem


def test_a_name_is_split_into_its_words() -> None:
    assert words_of("LookAtTones") == ["look", "at", "tones"]
    assert words_of("_CPUSlot2") == ["cpu", "slot", "2"]
    assert words_of("sun_side") == ["sun", "side"]


def test_no_class_or_module_has_a_word_of_the_private_language() -> None:
    assert len(INSTEAD) <= 40
    names = {*classes(), *names_of_modules()}
    assert {name: INSTEAD[word] for name in names for word in words_of(name) if word in INSTEAD} == {}


def test_no_module_is_a_participle() -> None:
    last = {words_of(name)[-1] for name in names_of_modules() if words_of(name)}
    assert {word for word in last if re.search(r"[^e]ed$|ing$", word)} - PROCESSES == set()


def test_no_class_name_is_used_twice() -> None:
    names = list(classes())
    assert {name for name in names if names.count(name) > 1} == set()
