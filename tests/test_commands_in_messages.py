"""Every command that a message, a hint or a page tells people to type is one that the command line takes."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from command_line import parse

from splatbatch.cli import app

ROOT = Path(__file__).parents[1] / "splatbatch"
TYPED = re.compile(r"splatbatch ([a-z][a-z-]+)((?: -{0,2}[\w/=:@*|-]+(?:\.[\w/=:@*|-]+)*)*)")
"""A command, up to the end of its sentence."""
PROGRAM: Any = typer.main.get_command(app)


def texts(path: Path) -> Iterator[str]:
    """Yield the strings of a module that are no docstrings, values that are put in as VALUE, or the text of a file."""
    if path.suffix != ".py":
        yield path.read_text()
        return
    tree = ast.parse(path.read_text())
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    inner |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "VALUE" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def typed(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield name and words of each command in a file."""
    for text in texts(path):
        for found in TYPED.finditer(text):
            if found[1] in PROGRAM.commands:
                yield found[1], shlex.split(found[2].strip(" ."))


def wrong(name: str, words: list[str]) -> str:
    """Return why the command line does not take the words; a value that stands for another is none of its matters."""
    try:
        parse([name, *words])
    except Exception as error:  # noqa: BLE001 - typer's own classes are not public
        is_whole = words[0].isupper() or (words[0].startswith("-") and len(words) > 1)  # else it is only named
        lacks = {"MissingParameter"} if is_whole else set[str]()
        if type(error).__name__ in {"NoSuchOption", *lacks}:
            return f"splatbatch {name} {' '.join(words)}: {error.format_message()}"
    return ""


def test_commands_that_people_are_told_to_type_are_taken() -> None:
    files = [path for kind in ("py", "toml", "j2") for path in sorted(ROOT.rglob(f"*.{kind}"))]
    commands = [(path.name, *one) for path in files for one in typed(path)]
    assert len(commands) > 50
    assert [f"{file}: {message}" for file, name, words in commands if words and (message := wrong(name, words))] == []
