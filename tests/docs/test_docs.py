"""What the documents promise is there: every link leads somewhere, every command is named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from splatbatch.cli.app import app

ROOT = Path(__file__).parents[2]
OF_COMMANDS = sorted((ROOT / "docs/commands").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), *OF_COMMANDS]
MADE = re.compile(r"<!-- [a-z]+: made by .*?<!-- end -->", re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = [target for target, _ in LINK.findall(page.read_text()) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_page_is_linked_from_the_front_page_and_stands_in_the_site() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    linked = {target for target, _ in LINK.findall((ROOT / "docs/index.md").read_text())}
    assert pages - {"index.md"} <= linked | {"presets.md"}
    assert set(re.findall(r": ([a-z]+\.md)", (ROOT / "docs/settings/mkdocs.yml").read_text())) == pages


def test_the_readme_leads_to_the_front_page() -> None:
    assert "docs/index.md" in {target for target, _ in LINK.findall((ROOT / "README.md").read_text())}


def anchors_of(page: Path) -> set[str]:
    """Return the places of a page that links may name: its headings, as Markdown spells them, and its own marks."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    spelt = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return spelt | set(re.findall(r'id="([^"]+)"', page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_place_in_a_page_leads_there(page: Path) -> None:
    found = [(target, place) for target, place in LINK.findall(page.read_text()) if place and "://" not in target]
    found += [("", place) for place in re.findall(r"\]\((#[^)\s]+)\)", page.read_text())]
    lost = [(t, p) for t, p in found if p[1:] not in anchors_of(page.parent / t if t else page)]
    assert lost == []


@pytest.mark.contract
def test_what_is_generated_is_as_the_code_says() -> None:
    ended = subprocess.run(
        [sys.executable, ROOT / "scripts/generate_docs", "--check"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "")


def test_the_readme_is_read_in_minutes() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.all
@pytest.mark.contract
def test_no_sentence_is_longer_than_25_words() -> None:
    ended = subprocess.run(
        [sys.executable, ROOT / "scripts/long_sentences"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "")


def test_the_first_picture_moves_and_is_small() -> None:
    picture = ROOT / "docs/pictures/turning.gif"
    assert picture.read_bytes()[:6] == b"GIF89a" and picture.stat().st_size <= 3_000_000


def test_benchmarks_begin_with_results_and_end_with_notes() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs/benchmarks.md").read_text(), re.MULTILINE)
    assert (headings[0], headings[-1]) == ("Beside other trainers", "Laboratory notes")


def test_no_page_edits_a_configuration_by_sed() -> None:
    assert [
        page.name for page in PAGES if re.search(r"\bsed -", page.read_text()) or "\nsed " in page.read_text()
    ] == []


def test_pages_written_by_hand_are_few_and_short() -> None:
    pages = {page.name: page.read_text() for page in (ROOT / "docs").glob("*.md") if page.name != "benchmarks.md"}
    by_hand = {name: MADE.sub("", text) for name, text in pages.items() if not text.startswith("<!-- made by")}
    words = {name: len(text.split()) for name, text in by_hand.items()}
    assert len(words) <= 20
    assert sum(words.values()) <= 15_000, words
    assert (ROOT / "docs/glossary.md").read_text().count("\n**") <= 40


def test_every_command_has_a_page_with_what_it_prints_and_nothing_of_this_machine() -> None:
    names = {name for name, command in get_command(app).commands.items() if not command.hidden}
    linked = {target for target, _ in LINK.findall((ROOT / "docs/commands.md").read_text())}
    assert {page.stem for page in OF_COMMANDS} == names
    assert {f"commands/{name}.md" for name in names} == {target for target in linked if target.startswith("commands/")}
    for page in OF_COMMANDS:
        shown = page.read_text().partition("```text\n")[2].partition("```")[0]
        assert f"splatbatch {page.stem}" in shown and len(shown.splitlines()) >= 2, page.name
        assert re.search(r"/(tmp|root|home|work)/|Traceback", shown) is None, page.name
