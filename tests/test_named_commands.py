"""Every command, option and key of the YAML that a text of ours names is one that there is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer
from click import Command

from splatbatch.cli.app import app
from splatbatch.config import Config
from splatbatch.failures.advice import command_for
from splatbatch.failures.causes import CAUSES
from splatbatch.failures.signatures import shipped_signatures

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = sorted((ROOT / "splatbatch").rglob("*.py"))
NAMED = re.compile(r"(?<![/\w.-])splatbatch +(?P<verb>[a-z][a-z-]*)(?P<rest>[^\n`;|&\"()]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
KEY = re.compile(
    r"(?<![\w./{-])(?P<section>[a-z_]+)\.(?P<key>[a-z_][a-z_0-9]*)\b(?![(/.])(?<!\.json)(?<!\.toml)(?<!\.yml)(?<!\.sog)"
)
IN_THE_YAML = re.compile(
    r"(?:in the YAML,? |--set )(?P<key>[a-z_]+(?:\.[a-z_0-9]+)+)|(?P<before>[a-z_]+(?:\.[a-z_0-9]+)+) in the YAML"
)
PROSE = {"itself", "under", "read", "failed", "export", "offset", "step", "index", "with"}
"""What follows the program's name in sentences and in files."""
FREE = ("setting.", "trainers.")
"""Of programs that a YAML adds."""


@cache
def commands() -> dict[tuple[str, ...], Command]:
    found: dict[tuple[str, ...], Command] = {}

    def walk(command: Command, names: tuple[str, ...]) -> None:
        found[names] = command
        for name, one in getattr(command, "commands", {}).items():
            walk(one, (*names, name))

    walk(typer.main.get_command(app), ())
    return found


def strings(path: Path) -> Iterator[str]:
    """Read what a module may print: every string but docstrings; what is filled in stands as NAME."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "NAME" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def wrong_commands(text: str) -> Iterator[str]:
    """Yield what a text names as ours that there is not; an option that no command has, in a sentence without one."""
    for found in NAMED.finditer(text):
        if found["verb"] in PROSE:
            continue
        rest = found["rest"].partition(". ")[0]
        words = (found["verb"], *rest.split()[:1])
        command = commands().get(words) or commands().get(words[:1])
        if command is None:
            yield found[0]
            continue
        known = {option for one in command.params for option in [*one.opts, *one.secondary_opts]} | {"--help"}
        yield from (f"{option} of {found[0]}" for option in OPTION.findall(rest) if option not in known)


@cache
def keys() -> set[str]:
    schema = Config.model_json_schema()
    found = set()
    for section, told in schema["properties"].items():
        names = [
            one["$ref"].rpartition("/")[2]
            for one in (told, *told.get("allOf", ()), *told.get("anyOf", ()))
            if "$ref" in one
        ]
        found |= {
            section,
            *(f"{section}.{key}" for name in names for key in schema["$defs"][name].get("properties", {})),
        }
    return found


def wrong_keys(text: str) -> Iterator[str]:
    sections = {one for one in keys() if "." not in one}
    named = {found[0] for found in KEY.finditer(text) if found["section"] in sections}
    named |= {found["key"] or found["before"] for found in IN_THE_YAML.finditer(text)}
    yield from sorted(one for one in named if one not in keys() and not one.startswith(FREE))


ADVICE = [
    *(one.advice for one in shipped_signatures()),
    *(command_for(step) for cause in CAUSES.values() for step in cause.steps),
]


def test_advice_names_commands_and_keys_that_there_are() -> None:
    assert [wrong for text in ADVICE for wrong in (*wrong_commands(text), *wrong_keys(text))] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_text_of_the_program_names_commands_and_keys_that_there_are(path: Path) -> None:
    assert [wrong for text in strings(path) for wrong in (*wrong_commands(text), *wrong_keys(text))] == []
    assert [text for text in strings(path) if re.search(r" (with|by|use|name) --patch\b", text)] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_names_commands_and_keys_that_there_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    marked = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    assert [wrong for one in marked for wrong in wrong_commands(one)] == []
    keyed = [] if path.name == "architecture.md" else [one for one in marked if not one.startswith("```")]
    assert [wrong for one in keyed for wrong in wrong_keys(one)] == []


@pytest.mark.parametrize(
    "text",
    [
        "Try: splatbatch logs p1",
        "`splatbatch verify-dims --patch p1`",
        "(engine.options in the YAML)",
        "see scene.patchs",
    ],
)
def test_what_is_not_there_is_found(text: str) -> None:
    assert [*wrong_commands(text), *wrong_keys(text)] != []
