"""What the documents promise is there: every link leads somewhere, every command is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from splatbatch.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = [target for target, _ in LINK.findall(page.read_text()) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {target for target, _ in LINK.findall((ROOT / "README.md").read_text())}
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= linked


def test_the_readme_is_read_in_minutes() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_every_command_stands_in_the_table_and_no_other() -> None:
    first_cells = re.findall(r"^\| (`.*?`) \| [a-z]", (ROOT / "docs/commands.md").read_text(), re.MULTILINE)
    named = {word for cell in first_cells for word in re.findall(r"`([a-z-]+)", cell)}
    assert named == {name for name, command in get_command(app).commands.items() if not command.hidden}
