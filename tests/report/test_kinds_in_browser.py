"""Every kind of report in a real browser: no error, tables that sort and filter, whole on A4 and at 320 px, by axe."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from accessible import violations
from browser import Watched
from made_output import OOM
from report_kinds import EVIL, KINDS, Kind, begun
from report_kinds import written as report_of

pytestmark = pytest.mark.all
A4_PT = (595, 842)
MOST_TABLES = 8
IN_CI = ("hostile", "night", "scene")
"""Kinds that CI opens: together they have all that a page can hold. The long tests open every kind."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Kind]:
    """Reports that were written, each when it is first asked for."""

    class Written(dict[str, Kind]):
        def __missing__(self, name: str) -> Kind:
            self[name] = KINDS[name](tmp_path_factory.mktemp(name))
            return self[name]

    return Written()


@pytest.fixture(params=[name if name in IN_CI else pytest.param(name, marks=pytest.mark.long) for name in KINDS])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(chromium: Any, kind: Kind, *, width: int = 1280, scheme: str = "light") -> Watched:
    watched = Watched(chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme))
    watched.open(kind.page)
    return watched


def rows_of(page: Any, column: int) -> list[str]:
    """Return a column of the table of patches as one sees it."""
    cells: list[str] = page.evaluate(
        "column => [...document.querySelectorAll('[aria-label=Patches] tbody tr:not([hidden])')]"
        ".map(row => row.cells[column].textContent)",
        column,
    )
    return cells


def test_every_kind_opens_without_an_error_and_asks_nobody_for_anything(
    chromium: Any, written: Mapping[str, Kind], name: str, artifacts: Path
) -> None:
    for scheme in ("light", "dark"):
        watched = opened(chromium, written[name], scheme=scheme)
        watched.page.evaluate(
            "document.querySelectorAll('#filter ~ *, .sheet img').forEach(one => one.loading = 'eager')"
        )
        watched.shoot(artifacts, f"{name}-{scheme}", full_page=name != "many")
        assert (watched.errors, watched.requests) == ([], [written[name].page.as_uri()])
        watched.page.close()


def test_every_heading_of_every_table_sorts_its_own_table_both_ways(
    chromium: Any, written: Mapping[str, Kind], name: str
) -> None:
    watched = opened(chromium, written[name])
    page = watched.page
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    tables = page.locator("table").all()[:MOST_TABLES]
    for table in tables:
        before = [words_of(one) for one in tables if one is not table]
        for head in table.locator("th").all():
            orders = []
            for wanted in ("ascending", "descending"):
                head.evaluate("head => head.querySelector('button').click()")
                assert head.get_attribute("aria-sort") == wanted and table.locator("[aria-sort]").count() == 1
                orders.append(figures(head))
            assert orders == [sorted(orders[0]), sorted(orders[0], reverse=True)]
            head.evaluate("head => head.removeAttribute('aria-sort')")
        assert [words_of(one) for one in tables if one is not table] == before
    assert watched.errors == []
    page.close()


def words_of(table: Any) -> str:
    return str(table.evaluate("table => table.tBodies[0].textContent"))


def figures(head: Any) -> list[float]:
    """Return the figures of a column, in the order they stand in; none where it holds words."""
    found: list[float] = head.evaluate(
        "head => [...head.closest('table').tBodies[0].rows].map(row => row.cells[head.cellIndex].dataset.value)"
        ".filter(value => value !== undefined).map(Number)"
    )
    return found


def test_what_needs_somebody_stands_first_and_the_filter_finds_it(chromium: Any, written: Mapping[str, Kind]) -> None:
    watched = opened(chromium, written["many"])
    page = watched.page
    assert [row.strip("✕ ") for row in rows_of(page, 1)[:5]] == ["failed"] * 5
    page.fill("#filter", "failed p7")
    assert sorted(rows_of(page, 0)) == ["p7"]
    page.fill("#filter", "P19")
    assert page.locator("#filtered").text_content() == "11 of 200"
    page.fill("#filter", "nobody")
    assert rows_of(page, 0) == []
    page.fill("#filter", "")
    assert len(rows_of(page, 0)) == 200 and watched.errors == []
    page.close()


def test_no_kind_is_wider_than_a_small_telephone(
    chromium: Any, written: Mapping[str, Kind], name: str, artifacts: Path
) -> None:
    watched = opened(chromium, written[name], width=320)
    watched.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    watched.shoot(artifacts, f"{name}-320")
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= 320
    watched.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(chromium: Any, written: Mapping[str, Kind], name: str, scheme: str) -> None:
    watched = opened(chromium, written[name], scheme=scheme)
    if name != "many":
        watched.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert violations(watched.page) == []
    watched.page.close()


def printed(chromium: Any, kind: Kind) -> tuple[str, list[tuple[float, float]], int]:
    """Return the words of a report on paper, where each begins in points, and the number of sheets."""
    pypdf = pytest.importorskip("pypdf", reason="pypdf is not installed: nothing here reads a PDF's text")
    watched = opened(chromium, kind, scheme="dark")
    reader = pypdf.PdfReader(io.BytesIO(watched.page.pdf(prefer_css_page_size=True)))
    places: list[tuple[float, float]] = []

    def place(words: str, page: list[float], at: list[float], *_: Any) -> None:
        if words.strip():
            places.append((page[0] * at[4] + page[2] * at[5] + page[4], page[1] * at[4] + page[3] * at[5] + page[5]))

    words = "\n".join(page.extract_text() for page in reader.pages)
    for page in reader.pages:
        page.extract_text(visitor_text=place)
        assert abs(float(page.mediabox.width) - A4_PT[0]) < 2 and abs(float(page.mediabox.height) - A4_PT[1]) < 2
    watched.page.close()
    return words, places, len(reader.pages)


@pytest.mark.parametrize("name", [name for name in KINDS if name != "many"])
def test_on_paper_everything_is_open_and_no_column_is_cut(
    chromium: Any, written: Mapping[str, Kind], name: str
) -> None:
    words, places, _ = printed(chromium, written[name])
    patches = written[name].num_patches
    for heading in ("patch state", "attempts notes"):
        assert heading in " ".join(words.split())
    assert words.count("hold-out PSNR, dB") + words.count("No attempt was made.") >= patches - (name == "scene") * 3
    assert "max_steps: 30000" in words or name in ("scene", "reconstruction")  # the last fold of the page
    assert all(0 <= x <= A4_PT[0] for x, _ in places)
    assert "Filter" not in words and "Copy" not in words


def test_names_that_would_be_commands_or_markup_stay_names(chromium: Any, written: Mapping[str, Kind]) -> None:
    watched = opened(chromium, written["hostile"])
    page = watched.page
    assert page.locator("script").count() == 1 and page.locator("img[src=x]").count() == 0
    assert EVIL.replace("/", "") in rows_of(page, 0)
    commands = [one.text_content() for one in page.locator(".command code").all()]
    assert commands and not any("rm -rf" in one or "\x1b" in one or "-c " in f"{one} " for one in commands)
    page.close()


def test_a_command_is_copied(chromium: Any, written: Mapping[str, Kind]) -> None:
    watched = opened(chromium, written["refused"])
    page = watched.page
    button = page.locator("button.copy").first
    button.click()
    watched.until("document.querySelector('button.copy').textContent !== 'Copy'")
    said = button.text_content()
    if said == "Marked":
        assert "splatbatch verify-dims p1" in page.evaluate("getSelection().toString()")
    else:
        assert said == "Copied"
    page.close()


def test_a_chart_is_read_with_the_arrow_keys(chromium: Any, written: Mapping[str, Kind]) -> None:
    watched = opened(chromium, written["failed"])
    page = watched.page
    chart = page.locator("details[open] .chart").first
    chart.focus()
    page.keyboard.press("Home")
    assert chart.locator(".now").text_content().startswith("step 0: ")
    page.keyboard.press("ArrowRight")
    assert "logarithmic: step " in chart.get_attribute("aria-label") and watched.errors == []
    page.keyboard.press("Tab")
    assert "step" not in chart.locator(".now").text_content()
    page.close()


def test_a_retry_is_compared_with_what_was_there_before(
    chromium: Any, written: Mapping[str, Kind], artifacts: Path
) -> None:
    watched = opened(chromium, written["retried"])
    page = watched.page
    assert "p1: attempt 2: 8.1 dB worse than attempt 1: kept attempt 1" in page.locator(".items").text_content()
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    section = page.locator("details.patch", has=page.locator(".name", has_text="p1"))
    section.screenshot(path=artifacts / "retried-p1.png")
    rows = [" ".join(row.inner_text().split()) for row in section.locator(".attempts tbody tr").all()]
    assert rows[0].startswith("1 ✓ trained nothing 25.60") and rows[0].endswith("kept: it is the product")
    assert rows[1].startswith("2 ✓ trained training.init_scale=40 16.50")
    shown = section.locator(".beside figcaption").all_text_contents()
    assert shown == ["photograph", "attempt 1, kept: 21.60 dB", "attempt 2: 12.50 dB"]
    assert page.locator(".sheet .better").text_content() == "+1.50 dB"
    page.close()


def test_a_telephone_takes_sixty_patches_in_ten_screens(chromium: Any, tmp_path: Path) -> None:
    made = begun(tmp_path)
    for number in range(60):
        made.trained(f"p{number}", "GPU 0", 300, 25)
    watched = Watched(chromium.new_page(viewport={"width": 320, "height": 640}))
    watched.open(report_of(made).page)
    assert watched.page.evaluate("document.documentElement.scrollHeight") <= 10 * 640


def test_a_telephone_takes_forty_patches_in_six_screens_also_after_retries(chromium: Any, tmp_path: Path) -> None:
    made = begun(tmp_path)
    for number in range(40):
        for _ in range(2 * (number % 4 == 3)):
            made.attempt(f"p{number}", "GPU 0", 90, outcome="failed", phase="train", step=712, diagnosis=OOM)
        if number % 20 != 7:
            made.trained(f"p{number}", "GPU 1", 300, 25, changes={"training.images": "host"} if number % 4 == 3 else {})
    for width, height in ((390, 844), (1440, 900)):
        watched = Watched(chromium.new_page(viewport={"width": width, "height": height}))
        watched.open(report_of(made).page)
        assert watched.page.evaluate("document.documentElement.scrollWidth") == width and watched.errors == []
        assert watched.page.evaluate("document.documentElement.scrollHeight") <= 6 * height or width > 390


def test_a_scene_opens_with_the_merged_splat(written: Mapping[str, Kind]) -> None:
    text = written["scene"].page.read_text()
    assert text.index(">The scene<") < text.index('aria-label="What to do"') and "25.00 dB" in text
