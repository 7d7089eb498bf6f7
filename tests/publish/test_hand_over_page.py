"""The page to hand over, in a real browser: drawn, asking nobody else, on a phone too; and the viewer's own formats."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Watched, artifacts_folder, browser
from cesium import served
from command_line import invoke
from PIL import Image
from published import quarry
from splat_tool import tool_or_skip

from splatbatch.report.viewer.viewer import viewer_gz
from splatbatch.splats import read_splat

pytestmark = pytest.mark.usefixtures("made_here")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not viewer_gz(), reason="the viewer is not built (scripts/build_web, needs npm)"),
]
OFFSET = (532_000.0, 5_000_200.0, 310.0)
SIZES = {"desk": (1280, 800), "phone": (390, 844)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pyproj", reason="pyproj is not installed (extra geo)")
    tool_or_skip()
    batch = quarry(tmp_path_factory.mktemp("page") / "quarry", offset=OFFSET, scene={"crs": "EPSG:32632"})
    site = batch.folder / "site"
    for what, kinds in (("scene", "html,streamed"), ("p0", "html,sog")):
        ended = invoke("publish", what, "--as", kinds, "--no-measure", "--to", str(site), batch=batch)
        assert ended.code == 0, ended.err
    return site


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as running:
        yield running


def opened(chromium: Any, url: str, size: tuple[int, int]) -> Watched:
    """Open a page and wait until the splat is drawn."""
    watched = Watched(chromium.new_page(viewport={"width": size[0], "height": size[1]}))
    watched.page.on("console", lambda said: said.type == "error" and watched.errors.append(said.text))
    watched.page.on("pageerror", lambda error: watched.errors.append(str(error)))
    watched.page.on(
        "request", lambda asked: asked.url.startswith(("data:", "blob:")) or watched.requests.append(asked.url)
    )
    watched.page.goto(url)
    watched.until("document.getElementById('stage').dataset.shown === 'yes'", timeout_s=90)
    watched.page.wait_for_timeout(2000)
    return watched


def is_drawn(picture: bytes) -> bool:
    """Return whether the middle of a picture shows the quarry: many colours, light and dark ones."""
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"), dtype=int)
    height, width = pixels.shape[:2]
    middle = pixels[height // 3 : 2 * height // 3, width // 3 : 2 * width // 3].reshape(-1, 3)
    return len(np.unique(middle // 8, axis=0)) > 50 and float(middle.std(axis=0).min()) > 8


@pytest.mark.parametrize("size", SIZES)
def test_the_page_of_a_scene_opens_from_a_static_server_and_asks_nobody_else(
    chromium: Any, site: Path, tmp_path: Path, size: str
) -> None:
    with served(site / "scene-page") as address:
        watched = opened(chromium, f"{address}/", SIZES[size])
        picture = watched.shoot(artifacts_folder(tmp_path), f"page-{size}")
        assert watched.errors == [] and is_drawn(picture)
        assert {url.split("/")[2] for url in watched.requests} == {address.split("/")[2]}
        page = watched.page
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("#plan .patch title").all_text_contents() == ["p0", "p1"]
        assert "EPSG:32632" in page.locator("#about").text_content() and page.locator("#compass").is_visible()
        assert page.locator("#plan .scale text").text_content().endswith(" m")
        before = page.evaluate("document.querySelector('.here').getAttribute('transform')")
        page.locator("#plan .patch").nth(1).click()
        watched.until(f"document.querySelector('.here').getAttribute('transform') !== {before!r}", timeout_s=20)
        page.close()


def test_the_needle_points_north(chromium: Any, site: Path) -> None:
    """Who looks at a patch from its map stands to its south: the page turns the map's sheet that way."""
    with served(site / "scene-page") as address:
        watched = opened(chromium, f"{address}/", SIZES["desk"])
        watched.page.locator("#plan .patch").nth(0).click()
        watched.page.wait_for_timeout(4000)
        assert abs(float(watched.page.evaluate("document.getElementById('stage').dataset.heading"))) < 2
        watched.page.close()


def test_the_page_of_a_patch_is_one_file_that_opens_by_itself(chromium: Any, site: Path, tmp_path: Path) -> None:
    watched = opened(chromium, (site / "p0.html").as_uri(), SIZES["desk"])
    assert watched.errors == [] and is_drawn(watched.shoot(artifacts_folder(tmp_path), "page-file"))
    assert watched.requests == [(site / "p0.html").as_uri()]
    watched.page.close()


def from_above(site: Path) -> list[float]:
    """Return where one sees the quarry as it lies in its file, whose z leads up: its viewer turns it around z."""
    middle = read_splat(site.parent / "output/scene/splat.ply").means.mean(axis=0) * [-1, -1, 1]
    return [*(middle + np.array([0, 12, 30])).tolist(), *middle.tolist()]


@pytest.mark.parametrize("content", ["p0.sog", "scene-streamed/lod-meta.json"])
def test_the_viewer_opens_what_is_published_for_it(chromium: Any, site: Path, tmp_path: Path, content: str) -> None:
    page = (site / "scene-page/index.html").read_text()
    (site / "other.html").write_text(
        page.replace('"splat/lod-meta.json"', f'"{content}"')
        .replace('href="page.css"', 'href="scene-page/page.css"')
        .replace('src="viewer.js"', 'src="scene-page/viewer.js"')
        .replace('src="page.js"', 'src="scene-page/page.js"')
        .replace('"start": [', f'"start": {from_above(site)}, "unused": [')
    )
    with served(site) as address:
        watched = opened(chromium, f"{address}/other.html", SIZES["desk"])
        name = f"viewer-{Path(content).suffix[1:]}"
        assert watched.errors == [] and is_drawn(watched.shoot(artifacts_folder(tmp_path), name))
        watched.page.close()
