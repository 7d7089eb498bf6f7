"""`view scene`, `view p0 p1`: all colours, photographs beside what they show, for whoever has the whole URL."""

from __future__ import annotations

import http.client
import io
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from browser import Watched, artifacts_folder, browser
from cut_batch import put, trained
from fake_batch import FakeBatch
from PIL import Image
from published import quarry

from splatbatch.publish.source import published
from splatbatch.report.viewer.viewer import viewer_gz
from splatbatch.scene.colmap.reconstruction import read_cameras, read_images
from splatbatch.splats import read_splat
from splatbatch.splats.blocks import index_blocks
from splatbatch.tasks.batch import open_batch
from splatbatch.training.frame import LocalFrame
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera
from splatbatch.training.scene.block_cache import BlockCache

built = pytest.mark.skipif(not viewer_gz(), reason="the viewer is not built (scripts/build_web, needs npm)")


def started(batch: FakeBatch, *names: str) -> Any:
    """Start a view; return its process, whose first line says where it is."""
    process = batch.start("view", *names, "--port", "18080")
    assert process.stdout
    process.url = process.stdout.readline().partition(" at ")[2].partition(" until ")[0]
    return process


def ask(url: str, path: str, **headers: str) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_several_patches_are_one_ply_of_the_highest_degree(tmp_path: Path) -> None:
    from splatbatch.publish.joint_scene import view_together

    batch = trained(tmp_path / "batch")
    put(batch, "p1", seed=8, degree=2)
    shown = view_together(published(open_batch(batch.config), ["p0", "p1"]), "")
    size, pieces = shown.ply()
    (tmp_path / "both.ply").write_bytes(b"".join(pieces))
    assert (tmp_path / "both.ply").stat().st_size == size
    found, first, second = (
        read_splat(path) for path in (tmp_path / "both.ply", *(splat.path for splat in shown.splats))
    )
    assert len(found) == len(first) + len(second) == 800 and found.shN.shape == (800, 8, 3)
    assert np.array_equal(found.means[:400], first.means) and np.array_equal(found.shN[400:], second.shN)
    assert np.array_equal(found.shN[:400, :3], first.shN) and not found.shN[:400, 3:].any()
    assert len(shown.facts.photos) == 9 and all(one.file.is_file() for one in shown.facts.photos)


@pytest.mark.all
@pytest.mark.journey
@built
def test_only_who_has_the_whole_url_is_answered(tmp_path: Path) -> None:
    process = started(trained(tmp_path / "batch"), "p0", "p1")
    try:
        token = urlsplit(process.url).path
        assert ask(process.url, token)[0] == 200
        assert ask(process.url, f"{token}photo/0")[1].startswith(b"\x89PNG")
        assert ask(process.url, f"{token}photo/99")[0] == 404 == ask(process.url, f"{token}../batch.yaml")[0]
        for path, headers in (
            ("/", {}),
            ("/photo/0", {}),
            (token, {"Host": "evil"}),
            (token, {"Origin": "http://evil"}),
        ):
            assert ask(process.url, path, **headers)[0] == 403
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 130


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as running:
        yield running


def rendered(batch: FakeBatch, name: str, size: tuple[int, int]) -> np.ndarray:
    """Return what our rasteriser shows from where a photograph was taken, as high as that and as wide as the window."""
    image = next(one for one in read_images(batch.folder / "sparse/0") if one.name == name)
    camera = read_cameras(batch.folder / "sparse/0")[image.camera_id]
    focal = camera.fy * size[1] / camera.height
    matrix = torch.eye(4)
    matrix[:3, :3] = torch.tensor(image.rotation())
    calibration = torch.tensor([[focal, 0, size[0] / 2], [0, focal, size[1] / 2], [0, 0, 1]], dtype=torch.float32)
    store = BlockCache(index_blocks(batch.output / "scene/splat.ply"), torch.device("cpu"), 1 << 20)
    view = RenderCamera(matrix, calibration, *size)
    with torch.inference_mode():
        gaussians = store.seen_from(LocalFrame(image.center(), 1.0), view)
        drawn = rasterize(gaussians, view, RasterOptions(1)).colors
    return drawn.clamp(0, 1).numpy().astype(np.float64)


@pytest.mark.long
@built
def test_a_photograph_is_shown_beside_what_the_splat_shows_of_it(
    chromium: Any, tmp_path: Path, record_property: Any
) -> None:
    batch, size = quarry(tmp_path / "quarry"), (480, 360)
    process = started(batch, "scene")
    try:
        watched = Watched(chromium.new_page(viewport={"width": size[0], "height": size[1]}))
        page = watched.page
        page.on("pageerror", lambda error: watched.errors.append(str(error)))
        page.goto(process.url)
        watched.until("document.getElementById('stage').dataset.shown === 'yes'", timeout_s=90)
        name = page.locator("#photo option").nth(1).text_content()  # held level: the viewer holds its camera so
        page.locator("#photo select").select_option("0")
        page.wait_for_timeout(5000)
        assert watched.errors == [] and page.evaluate("document.querySelector('#photo img').naturalWidth") > 0
        page.add_style_tag(content=".panel, #compass, #bar { display: none !important; }")
        page.wait_for_timeout(1000)
        picture = watched.shoot(artifacts_folder(tmp_path), "view")
        shown = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"), dtype=np.float64) / 255
        wanted = rendered(batch, name, size)
        Image.fromarray((255 * wanted).astype(np.uint8)).save(artifacts_folder(tmp_path) / "view-wanted.png")
        quality = float(-10 * np.log10(np.square(shown - wanted).mean()))
        record_property("figure", f"PSNR {quality:.1f} dB")
        assert quality > 22
    finally:
        process.kill()
        process.communicate()
