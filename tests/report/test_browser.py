"""The page in a real browser, from file://: nothing breaks, nothing leaves, everything moves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Watched
from cut_quarry import lay_out
from made_output import NASTY, MadeOutput, night

from splatbatch.output.layout import OutputFolder
from splatbatch.report import write_report
from splatbatch.tasks.batch import open_batch

pytestmark = pytest.mark.all


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> OutputFolder:
    output = night(tmp_path_factory.mktemp("night"))
    write_report(output, ["p9"])
    return output


@pytest.fixture(params=["light", "dark"])
def watched(chromium: Any, output: OutputFolder, request: pytest.FixtureRequest) -> Iterator[Watched]:
    page = chromium.new_page(viewport={"width": 1280, "height": 900}, color_scheme=request.param)
    watched = Watched(page)
    watched.open(output.report("html"))
    yield watched
    page.close()


def test_it_opens_without_an_error_and_asks_nobody_for_anything(
    watched: Watched, output: OutputFolder, artifacts: Path, request: pytest.FixtureRequest
) -> None:
    page, scheme = watched.page, request.node.callspec.params["watched"]
    watched.shoot(artifacts, f"top-{scheme}")
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    page.evaluate("document.querySelectorAll('img').forEach(image => image.loading = 'eager')")
    watched.until("[...document.images].every(image => image.complete && image.naturalWidth)")
    watched.shoot(artifacts, f"full-{scheme}", full_page=True)
    assert (watched.errors, watched.requests) == ([], [output.report("html").as_uri()])


def test_the_slider_shows_the_photograph_or_the_rendering(watched: Watched, artifacts: Path) -> None:
    page = watched.page
    page.evaluate("document.getElementById('patch-5').open = true")
    compared = page.locator("#patch-5 .compare").first
    compared.scroll_into_view_if_needed()
    seen = []
    for share in (0.02, 0.98):
        box = compared.bounding_box()
        page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        seen.append(compared.screenshot(path=artifacts / f"slider-{share}.png"))
    assert seen[0] != seen[1]
    assert page.evaluate("parseFloat(document.querySelector('#patch-5 .compare').style.getPropertyValue('--at'))") > 90


def test_a_link_unfolds_its_patch(watched: Watched) -> None:
    page = watched.page
    assert not page.locator("#patch-1").evaluate("details => details.open")
    page.click('table a[href="#patch-1"]')
    watched.until("document.getElementById('patch-1').open")


def test_the_cursor_reads_values_and_a_drag_zooms(watched: Watched, artifacts: Path) -> None:
    page = watched.page
    page.evaluate("document.getElementById('patch-4').open = true")
    chart = page.locator("#patch-4 .chart").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    assert chart.locator(".now").text_content().startswith("step ")
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 60, steps=4)
    page.mouse.up()
    chart.screenshot(path=artifacts / "zoomed.png")
    assert chart.locator(".tick.x").first.text_content() != "0"
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + 60)
    assert chart.locator(".tick.x").first.text_content() == "0"


def test_the_timeline_zooms(watched: Watched, artifacts: Path) -> None:
    page = watched.page
    page.locator(".timeline > svg").scroll_into_view_if_needed()
    box = page.locator(".timeline > svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 15)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 15, steps=4)
    page.mouse.up()
    watched.shoot(artifacts, "timeline-zoomed")
    assert float(page.locator(".timeline .plot").get_attribute("width").rstrip("%")) > 300
    assert page.evaluate("location.hash") == ""


def test_the_table_sorts_by_a_column(watched: Watched) -> None:
    page = watched.page

    def first() -> str:
        name: str = page.locator("tbody tr td").first.text_content()
        return name

    page.click("th:has-text('PSNR dB')")
    assert first() == "p5"
    page.click("th:has-text('attempts')")
    page.click("th:has-text('attempts')")
    assert first() in ("p5", "p8")
    page.click("th:has-text('patch')")
    assert first() == NASTY


def test_it_reads_well_on_a_telephone(chromium: Any, output: OutputFolder, artifacts: Path) -> None:
    watched = Watched(chromium.new_page(viewport={"width": 390, "height": 800}))
    watched.open(output.report("html"))
    watched.shoot(artifacts, "telephone")
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= 390
    beyond = "[...document.querySelectorAll('.table td')].filter(td => td.getBoundingClientRect().right > 390).length"
    assert watched.page.evaluate(beyond) == 0
    label = "getComputedStyle(document.querySelector('.table td:nth-child(2)'), '::before').content"
    assert watched.page.evaluate(label) == '"state"'


def loaded_ms(watched: Watched, output: OutputFolder) -> float:
    watched.open(output.report("html"))
    return float(watched.page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))


@pytest.mark.long
def test_two_hundred_patches_open_in_two_seconds(chromium: Any, tmp_path: Path, artifacts: Path) -> None:
    made = MadeOutput(tmp_path)
    made.output.create()
    for index in range(200):
        made.trained(f"p{index}", f"GPU {index % 4}", 300 + index % 7, 26 + index % 3)
    output = made.finish()
    started = time.process_time()
    write_report(output, [])
    made_s = time.process_time() - started
    watched = Watched(chromium.new_page(viewport={"width": 1280, "height": 900}))
    load_ms = min(loaded_ms(watched, output) for _ in range(3))  # the quickest: other work on the machine is no fault
    watched.shoot(artifacts, "many")
    print(f"200 patches: {1000 * made_s / 200:.1f} ms per patch, load {load_ms:.0f} ms,", output.report("html").stat())
    assert made_s / 200 < 0.05
    assert 0 < load_ms < 2000


def test_the_map_of_a_scene_leads_to_its_patches_by_keyboard(chromium: Any, tmp_path: Path, artifacts: Path) -> None:
    batch = mapped_quarry(tmp_path)
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    watched = Watched(page)
    watched.open(batch.report("html"))
    page.locator(".map").scroll_into_view_if_needed()
    watched.shoot(artifacts, "map")
    page.focus(".map a")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("p0: ")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("p1: ")
    page.keyboard.press("Enter")
    watched.until("location.hash !== ''")
    assert page.evaluate("document.querySelector(location.hash).textContent").count("p1")
    assert watched.errors == []
    page.close()


def mapped_quarry(folder: Path) -> OutputFolder:
    partition = lay_out(folder / "quarry")
    batch = open_batch(partition.path.parents[1] / "splat_config.yml")
    write_report(batch.output, batch.names, previews_mib=0, standing=batch.standing())
    return batch.output
