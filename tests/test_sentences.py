"""scripts/sentences.toml: what must not happen, told in words, each with the test that guards it."""

from __future__ import annotations

import ast
import hashlib
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
SENTENCES: list[dict[str, Any]] = tomllib.loads((TESTS.parent / "scripts/sentences.toml").read_text())["sentence"]
SEAL = (64, "381be75baa8a2d7b")
"""How many sentences there are, and the hash of their texts in order: whoever adds one writes what the test says.

A seal in another file is what makes the file only grow: without it a sentence would go with the test that became red.
"""


@cache
def names_in(file: str) -> set[str]:
    """Return the names of what a file of tests defines; pytest is not started for it."""
    return {one.name for one in ast.walk(ast.parse((TESTS / file).read_text())) if isinstance(one, ast.FunctionDef)}


@pytest.mark.parametrize("guard", [one["guard"] for one in SENTENCES])
def test_the_guard_of_a_sentence_is_a_test(guard: str, request: pytest.FixtureRequest) -> None:
    file, _, case = guard.partition("::")
    name, bracket, _ = case.partition("[")
    assert (TESTS / file).is_file() and name in names_in(file), "name the test that guards the sentence today"
    # where all tests of its file are run as well, pytest knows the names of its cases
    cases = {one.name for one in request.session.items if one.path == TESTS / file and one.originalname == name}
    if cases and request.config.getoption("--all"):
        assert case in cases or not bracket, sorted(cases)


def test_there_are_fifty_sentences_and_none_twice() -> None:
    texts = [one["text"] for one in SENTENCES]
    assert len(texts) >= 50
    assert len({text.casefold() for text in texts}) == len(texts)
    assert all(text.endswith(".") and len(text.split()) <= 25 for text in texts)


def test_the_looks_by_outsiders_have_their_part() -> None:
    assert sum("seen" in one for one in SENTENCES) >= 15
    assert {one.get("seen") for one in SENTENCES} <= {None, 1, 2, 3}
    assert {key for one in SENTENCES for key in one} <= {"text", "guard", "seen"}


def test_no_sentence_goes_or_changes() -> None:
    kept = "\n".join(one["text"] for one in SENTENCES[: SEAL[0]])
    assert hashlib.sha256(kept.encode()).hexdigest()[:16] == SEAL[1], (
        "a sentence is gone, was changed or is not the last"
    )
    now = hashlib.sha256("\n".join(one["text"] for one in SENTENCES).encode()).hexdigest()[:16]
    assert len(SENTENCES) == SEAL[0], f"write down the new ones, too: SEAL = ({len(SENTENCES)}, {now!r})"
