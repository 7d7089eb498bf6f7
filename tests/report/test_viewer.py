"""The 3D view in the page, in a real browser from file://: the splat is drawn, and nothing leaves."""

from __future__ import annotations

import base64
import hashlib
import io
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from browser import Watched
from made_output import NASTY, night
from made_splat import write_scene
from PIL import Image

from splatbatch.output.layout import OutputFolder
from splatbatch.report import write_report
from splatbatch.report.facts import ReportedPatch
from splatbatch.report.pictures import PictureBudget
from splatbatch.report.viewer import viewer

pytest.importorskip("gsply", reason="gsply is not installed (extra web)")
built = pytest.mark.skipif(not viewer.viewer_gz(), reason="the viewer is not built (scripts/build_web, needs npm)")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> OutputFolder:
    output = night(tmp_path_factory.mktemp("night"))
    for name in ("p0", "p1", "p5", NASTY):
        write_scene(output.patch(name).splat)
    write_report(output, ["p9"])
    return output


@pytest.fixture
def watched(chromium: Any, output: OutputFolder) -> Iterator[Watched]:
    watched = Watched(chromium.new_page(viewport={"width": 1280, "height": 900}))
    watched.open(output.report("html"))
    yield watched
    watched.page.close()


def show(watched: Watched, link: str) -> Any:
    """Open a patch's splat; return its stage."""
    watched.page.evaluate(f"document.getElementById('{link}').open = true")
    watched.page.click(f"#{link} .stage button")
    watched.until(f"document.querySelector('#{link} .stage').dataset.shown === 'yes'", timeout_s=60)
    return watched.page.locator(f"#{link} .stage .scene")


def share_of(picture: bytes, colour: str) -> float:
    """Return the share of pixels that are clearly red, green, blue or grey."""
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"), dtype=int)
    if colour == "grey":
        return float(((pixels.max(axis=2) - pixels.min(axis=2) < 12) & (pixels.min(axis=2) > 40)).mean())
    channel = ["red", "green", "blue"].index(colour)
    others = np.delete(pixels, channel, axis=2).max(axis=2)
    return float((pixels[..., channel] > 2 * others + 60).mean())


@pytest.mark.long
@built
@pytest.mark.parametrize("link", ["patch-0", "patch-8"])
def test_the_splat_is_drawn(watched: Watched, output: OutputFolder, artifacts: Path, link: str) -> None:
    scene = show(watched, link)
    watched.page.wait_for_timeout(500)
    picture = scene.screenshot(path=artifacts / f"3d-{link}.png")
    assert share_of(picture, "red") > 0.02
    assert share_of(picture, "green") > 0.001
    assert share_of(picture, "grey") > 0.05
    assert watched.errors == []
    assert [url for url in watched.requests if not url.startswith("blob:null/")] == [output.report("html").as_uri()]


@pytest.mark.long
@built
def test_a_drag_turns_it_and_a_second_click_closes_it(watched: Watched) -> None:
    scene = show(watched, "patch-0")
    watched.page.wait_for_timeout(300)
    before, box = scene.screenshot(), scene.bounding_box()
    watched.page.mouse.move(box["x"] + 400, box["y"] + 200)
    watched.page.mouse.down()
    watched.page.mouse.move(box["x"] + 600, box["y"] + 220, steps=5)
    watched.page.mouse.up()
    watched.page.wait_for_timeout(800)
    assert scene.screenshot() != before
    watched.page.click("#patch-0 .stage button")
    assert watched.page.locator("canvas").count() == 0


@pytest.mark.long
@built
def test_only_one_is_open_at_a_time(watched: Watched) -> None:
    show(watched, "patch-0")
    show(watched, "patch-1")
    assert watched.page.locator("canvas").count() == 1
    assert watched.page.locator("#patch-0 .stage button").text_content() == "Open in 3D"
    assert watched.errors == []


@pytest.mark.long
@built
def test_a_script_that_is_not_the_viewer_does_not_run(watched: Watched) -> None:
    watched.page.evaluate(
        "() => { const script = document.createElement('script'); script.textContent = 'globalThis.evil = 1';"
        " document.head.append(script); }"
    )
    assert watched.page.evaluate("globalThis.evil") is None
    assert "Content Security Policy" in watched.errors[0]


@built
def test_the_policy_names_the_viewer_by_its_hash_and_lets_nothing_else_in(output: OutputFolder) -> None:
    text = output.report("html").read_text()
    digest = base64.b64encode(hashlib.sha256(viewer.viewer_script().encode()).digest()).decode()
    policy = text.partition('Content-Security-Policy" content="')[2].partition('"')[0].replace("&#x27;", "'")
    assert f"'sha256-{digest}'; worker-src blob:; img-src data:; " in policy
    assert "connect-src" not in policy
    assert "unsafe" not in policy


@pytest.mark.all
def test_a_report_without_previews_is_small_and_has_no_viewer(tmp_path: Path) -> None:
    output = night(tmp_path)
    write_report(output, ["p9"])
    text = output.report("html").read_text()
    assert "worker-src" not in text
    assert '<template id="viewer">' not in text


@built
def test_nine_patches_with_the_viewer_but_without_their_splats_are_small(output: OutputFolder) -> None:
    splats = sum(patch.stat().st_size * 4 // 3 for patch in output.path.glob("patches/*/preview.compressed.ply"))
    assert splats > 100_000
    assert output.report("html").stat().st_size - splats < 3_000_000


@pytest.mark.all(but="viewer-the viewer with npm")
@pytest.mark.parametrize(("missing", "words"), [("viewer", "the viewer with npm"), ("gsply", "splatbatch[web]")])
def test_what_is_missing_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, words: str
) -> None:
    monkeypatch.setattr(viewer, "viewer_script", lambda: "" if missing == "viewer" else "x")
    monkeypatch.setattr(viewer, "find_spec", lambda name: None)
    output = night(tmp_path)
    write_report(output, [])
    text = output.report("html").read_text()
    assert text.count(words) == 1
    assert "<template" not in text


@pytest.mark.all
@built
def test_a_preview_is_made_once_and_again_for_a_newer_splat(tmp_path: Path) -> None:
    output = night(tmp_path)
    folder = output.patch("p0")
    write_scene(folder.splat)
    write_report(output, [])
    first = folder.preview.stat()
    write_report(output, [])
    assert folder.preview.stat().st_mtime_ns == first.st_mtime_ns
    write_scene(folder.splat, repeat=2)
    write_report(output, [])
    assert folder.preview.stat().st_size > 1.5 * first.st_size


@pytest.mark.parametrize("spoilt", [b"", b"ply\n", b"ply\nelement chunk 3\nend_header\n\0\0"])
def test_a_preview_that_is_spoilt_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoilt: bytes) -> None:
    pytest.importorskip("gsply")
    monkeypatch.setattr(viewer, "viewer_script", lambda: "x")
    output, patch = OutputFolder(tmp_path), ReportedPatch("p0", "trained", attempt="attempt-01", splat="splat.ply")
    folder = output.patch("p0")
    folder.path.mkdir(parents=True)
    write_scene(folder.splat)
    shown = viewer.stage_of(output, patch, PictureBudget(1 << 24))
    whole = folder.preview.read_bytes()
    folder.preview.write_bytes(spoilt)
    assert viewer.stage_of(output, patch, PictureBudget(1 << 24)) == shown
    assert folder.preview.read_bytes() == whole


@built
def test_a_gsply_that_breaks_costs_only_the_preview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ModuleType("gsply")  # has nothing of what we call
    broken.__spec__ = ModuleSpec("gsply", None)
    monkeypatch.setitem(sys.modules, "gsply", broken)
    output = night(tmp_path)
    write_scene(output.patch("p0").splat)
    write_report(output, [])
    assert "3D, the whole splat: splatbatch view p0" in output.report("html").read_text()


@built
def test_a_full_page_names_the_command_instead(tmp_path: Path) -> None:
    output = night(tmp_path)
    write_scene(output.patch("p0").splat, repeat=12)
    write_report(output, [], previews_mib=1)
    assert "3D, the whole splat: splatbatch view p0" in output.report("html").read_text()
    write_report(output, [], previews_mib=0)
    assert ">3D" not in output.report("html").read_text()
