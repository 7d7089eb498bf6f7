"""The page without a browser: sky, map, start and what it may load; names of patches are text wherever they stand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cut_batch import trained
from dom import compare_dom
from fake_batch import FakeBatch, write_model
from letters import letters
from PIL import Image
from splat_tool import tool_or_skip

from splatbatch.caches import cache_home
from splatbatch.output.records.metrics import TrainingSettings
from splatbatch.publish.page import PageFacts, PhotoView, draw_plan, file_page, folder_page, page_templates
from splatbatch.publish.source import PublishedSplat, SourcePart
from splatbatch.publish.stage import NEUTRAL, UprightScene, set_stage, sky_of
from splatbatch.publish.tool import FOLDER, version_in
from splatbatch.report.html import digest
from splatbatch.report.viewer.viewer import InitialCamera, turn_upright
from splatbatch.splats import read_header, write_splat

pytestmark = pytest.mark.usefixtures("made_here")

COLMAP_UP = np.array([0.0, -1.0, 0.0])
SAMPLES = Path(__file__).with_name("samples")
NASTY = "p0</script><img src=x onerror=alert(1)>"


def splat_of(folder: Path, name: str = "p0", holdout: tuple[str, ...] = ()) -> PublishedSplat:
    """Return a splat with the photographs of a made-up model: level cameras in a row."""
    path = folder / "a.ply"
    write_splat(path, letters(degree=1), 1)
    names = [f"img{i}.png" for i in range(9)]
    write_model(folder / "sparse", names)
    (folder / "images").mkdir(exist_ok=True)
    views = TrainingSettings(sparse=str(folder / "sparse"), images=str(folder / "images"), holdout=holdout)
    figures = {"psnr": 27.125, "num_photos": 4.0}
    return PublishedSplat(
        name, path, read_header(path), "", (SourcePart(name, path, 0, 108, ""),), (0, 0, 0), views, figures
    )


def photograph(folder: Path, sky: tuple[int, int, int]) -> None:
    """Write photographs that are one colour at the top and brown below."""
    for i in range(9):
        pixels = np.full((24, 32, 3), (90, 60, 30), np.uint8)
        pixels[:3] = sky
        Image.fromarray(pixels).save(folder / f"images/img{i}.png")


def facts_of(folder: Path, name: str = "p0", north: bool = False) -> PageFacts:
    splat = splat_of(folder, name)
    camera = InitialCamera(turn_upright(COLMAP_UP), COLMAP_UP, np.zeros(3), np.array([0.0, 0, 1]))
    stage = UprightScene(COLMAP_UP, np.array([0.0, 0, 1]) if north else None, camera)
    boxes = {name: np.array([[0.0, 0.0], [5.0, 5.0]])}
    return PageFacts(splat, stage, boxes, {name: np.array([1.0, 1, 3])}, (0.5, 0.6, 0.7), "EPSG:32632" if north else "")


def told(page: str) -> dict[str, object]:
    """Return what the page's script is told."""
    found = re.search(r'<script id="scene" type="application/json">(.*?)</script>', page)
    assert found
    return json.loads(found[1])


def test_the_sky_has_the_colour_that_photographs_show(tmp_path: Path) -> None:
    splat = splat_of(tmp_path)
    assert sky_of(splat, COLMAP_UP) == (NEUTRAL, False)  # no photograph is there
    photograph(tmp_path, (120, 170, 250))
    sky, is_known = sky_of(splat, COLMAP_UP)
    assert is_known and np.allclose(np.array(sky) * 255, (120, 170, 250), atol=2)
    (tmp_path / "images/img0.png").write_bytes(b"no picture")
    assert sky_of(splat, COLMAP_UP)[1]


def test_photographs_from_above_show_no_sky(tmp_path: Path) -> None:
    splat = splat_of(tmp_path)
    photograph(tmp_path, (120, 170, 250))
    assert sky_of(splat, np.array([0.0, 0, -1])) == (NEUTRAL, False)  # they look along z: straight down


def test_one_starts_where_a_held_out_photograph_was_taken(tmp_path: Path) -> None:
    stage = set_stage(splat_of(tmp_path, holdout=("img7.png",)), "")
    assert stage.camera is not None and np.allclose(stage.camera.eye, [0.7, 0, 0])
    assert np.allclose(stage.up, COLMAP_UP, atol=1e-6) and stage.north is None
    in_utm = set_stage(splat_of(tmp_path), "EPSG:32632")
    assert np.allclose(in_utm.up, [0, 0, 1]) and np.allclose(in_utm.plan, [[1, 0, 0], [0, 1, 0]])


def test_a_splat_whose_model_is_gone_is_shown_from_nowhere_in_particular(tmp_path: Path) -> None:
    splat = splat_of(tmp_path)
    for path in (tmp_path / "sparse").iterdir():
        path.unlink()
    assert set_stage(splat, "").camera is None


def drawn_plan(boxes: dict[str, Any], metres_per_unit: float | None) -> str:
    return page_templates().get_template("plan.html.j2").render(plan=draw_plan(boxes, metres_per_unit))


def test_the_map_names_patches_and_tells_north_and_scale_where_these_are_known() -> None:
    boxes = {"p0": np.array([[0.0, 0], [300, 200]]), "p1": np.array([[300.0, 0], [400, 200]])}
    plain, known = drawn_plan(boxes, None), drawn_plan(boxes, 1.0)
    assert ">p0<" in plain and "<title>p1</title>" in plain and "north" not in plain and "scale" not in plain
    assert 'class="north"' in known and ">200 m<" in known
    assert ">2 km<" in drawn_plan(boxes, 10.0) and ">50 m<" in drawn_plan(boxes, 0.3048)


@pytest.mark.parametrize("north", [True, False])
def test_the_page_says_what_is_known_and_loads_nothing_from_elsewhere(tmp_path: Path, north: bool) -> None:
    page = folder_page(facts_of(tmp_path, north=north), "splat/lod-meta.json")
    assert "27.12 dB" in page and ">108<" in page and ("EPSG:32632" in page) == north == ('id="compass"' in page)
    assert "default-src 'none'" in unescape(page) and "http" not in page.replace("http-equiv", "")
    scene = told(page)
    assert scene["content"] == "splat/lod-meta.json" and len(scene["start"]) == 6
    assert scene["photos"] == [] and scene["rotation"] is None


def test_a_camera_that_looks_down_steps_back_until_the_whole_splat_is_in_view(tmp_path: Path) -> None:
    ahead = facts_of(tmp_path)
    up, camera = np.array([0.0, 0, -1]), ahead.stage.camera
    assert camera is not None
    camera = replace(camera, turn=turn_upright(up), up=up)
    down = replace(ahead, stage=replace(ahead.stage, up=up, camera=camera))
    assert told(folder_page(ahead, "splat.ply"))["start"] == [0, 0, 0, 0, 0, 3]  # where the photograph was taken
    eye, target = np.array(told(folder_page(down, "splat.ply"))["start"]).reshape(2, 3)
    assert np.linalg.norm(target - eye) == pytest.approx(np.hypot(5, 5), rel=1e-5)  # the diagonal of the splat's box


def test_the_name_of_a_patch_is_text(tmp_path: Path) -> None:
    page = folder_page(facts_of(tmp_path, NASTY), "splat.ply")
    assert "<img src=x" not in page and page.count("</script>") == 3
    assert told(page)["patches"][0]["name"] == NASTY


def test_the_page_of_one_file_runs_its_own_scripts_alone(tmp_path: Path) -> None:
    page = file_page(facts_of(tmp_path), "scene.sog", b"sog", (b"packed", "viewer()"))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy and digest("viewer()") in unescape(policy[1])
    assert '<template id="splat">c29n</template>' in page and "src=" not in page.partition("<script")[2]


def test_a_photograph_is_seen_from_where_it_was_taken(tmp_path: Path) -> None:
    view = PhotoView("a.jpg", Path("a.jpg"), np.array([1.0, 2, 3]), np.array([0.0, 0, 1]), 50.0)
    page = folder_page(replace(facts_of(tmp_path), photos=(view,), is_as_trained=True), "splat.ply")
    (photo,), rotation = told(page)["photos"], told(page)["rotation"]
    assert photo["view"][:3] == [-1, -2, 3] and photo["view"][6] == 50  # the viewer turns splats around z
    assert np.allclose(np.abs(rotation), [0, 0, 1, 0]) and "a.jpg" in page


def test_without_a_viewer_there_is_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from command_line import invoke

    from splatbatch.publish import page
    from splatbatch.report.viewer import viewer

    for module in (viewer, page):
        monkeypatch.setattr(module, "viewer_script", lambda: "")
    batch: FakeBatch = trained(tmp_path / "batch")
    ended = invoke("view", "p0", "p1", batch=batch)
    assert ended.code == 4 and "the viewer is not built" in ended.err and "the viewer with npm" in ended.err
    if version_in(cache_home() / "splatbatch" / FOLDER):
        tool_or_skip()
        ended = invoke("publish", "p0", "--as", "html", "--to", str(tmp_path / "site"), batch=batch)
        assert ended.code == 4 and "format html: the viewer is not built" in ended.err
        assert [path.name for path in (tmp_path / "site").iterdir()] == []


@pytest.mark.parametrize("form", ["folder", "file"])
def test_the_page_has_the_recorded_dom(tmp_path: Path, form: str) -> None:
    facts = facts_of(tmp_path, NASTY, north=True)
    boxes = {NASTY: np.array([[0.0, 0.0], [5.0, 5.0]]), "p&1": np.array([[5.0, 0.0], [5.4, 5.0]])}
    view = PhotoView("a <b>.jpg", Path("a <b>.jpg"), np.array([1.0, 2, 3]), np.array([0.0, 0, 1]), 50.0)
    splat = replace(facts.splat, offset=(500_000, 5_200_000, 0), warnings=("It is <small>.",))
    every = replace(facts, boxes=boxes, middles=dict.fromkeys(boxes, np.ones(3)), metres_per_unit=1.0)
    page = {
        "folder": folder_page(replace(every, splat=splat, photos=(view,)), "splat/lod-meta.json"),
        "file": file_page(facts_of(tmp_path), "scene.sog", b"sog", (b"packed", "viewer()")),
    }[form]
    compare_dom(page, SAMPLES / f"page-of-a-{form}.dom", tmp_path)
