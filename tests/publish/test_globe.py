"""3D Tiles in CesiumJS: the quarry stands where it is, upright, to the pixel; its files pass the validators."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from browser import artifacts_folder, browser
from cesium import Globe, globe, installed
from command_line import invoke
from cut_quarry import QUARRY
from fake_batch import FakeBatch
from PIL import Image
from published import quarry
from tileset_rules import problems_of

from splatbatch.publish.tiles import write
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.splats import read_splat
from splatbatch.splats.blocks import index_blocks
from splatbatch.training.frame import LocalFrame
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera
from splatbatch.training.scene.block_cache import BlockCache

pytestmark = pytest.mark.usefixtures("made_here")

pyproj = pytest.importorskip("pyproj", reason="pyproj is not installed (extra geo)")
pytestmark = pytest.mark.long
OFFSET = (532_000.0, 5_000_200.0, 310.0)
SIZE, FOV_RAD = (480, 360), np.radians(60)
LEAST_PSNR = 30.0
"""The quarry made of its sparse points is so soft that 22 dB would not notice a metre."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    batch = quarry(tmp_path_factory.mktemp("globe") / "quarry", offset=OFFSET, scene={"crs": "EPSG:32632"})
    site = batch.folder / "site"
    ended = invoke("publish", "scene", "--as", "tiles", "--no-measure", "--to", str(site), batch=batch)
    assert ended.code == 0, ended.err
    return site


@pytest.fixture(scope="module")
def splat(site: Path) -> Path:
    return site.parent / "output/scene/splat.ply"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as running:
        yield running


@pytest.fixture
def shown(chromium: Any, site: Path, splat: Path) -> Iterator[Globe]:
    with globe(chromium, site, SIZE) as shown:
        shown.open("tiles/tileset.json", error_px=1.0)
        eye, axes = on_earth(*pose())
        shown.look(eye, axes, FOV_RAD)
        yield shown


def pose() -> tuple[np.ndarray, np.ndarray]:
    """Return where a photograph of the quarry was taken, and its right, down and forward, [3, 3]."""
    images = sorted(read_images(QUARRY / "sparse/0"), key=lambda image: image.name)
    image = images[len(images) // 3]
    return image.center(), image.rotation()


def on_earth(eye: np.ndarray, axes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a pose of the quarry in UTM as one around the Earth's centre; asked of PROJ, not of our own code."""
    transformer = pyproj.Transformer.from_crs("EPSG:32632", "EPSG:4978", always_xy=True)
    ends = np.concatenate([eye[None], eye + 0.5 * axes]) + OFFSET
    there = np.stack(transformer.transform(*ends.T), axis=1)
    led = there[1:] - there[0]
    return there[0], led / np.linalg.norm(led, axis=1, keepdims=True)


def rendered(splat: Path) -> np.ndarray:
    """Return what our rasteriser draws from there, [H, W, 3]."""
    eye, axes = pose()
    focal = SIZE[0] / 2 / np.tan(FOV_RAD / 2)
    matrix = torch.eye(4)
    matrix[:3, :3] = torch.tensor(axes)
    calibration = torch.tensor([[focal, 0, SIZE[0] / 2], [0, focal, SIZE[1] / 2], [0, 0, 1]], dtype=torch.float32)
    view, store = (
        RenderCamera(matrix, calibration, *SIZE),
        BlockCache(index_blocks(splat), torch.device("cpu"), 1 << 20),
    )
    gaussians = store.seen_from(LocalFrame(np.array(eye), 1.0), view)
    with torch.inference_mode():
        drawn = rasterize(gaussians, view, RasterOptions(store.blocks.header.sh_degree)).colors
    return drawn.clamp(0, 1).numpy().astype(np.float64)


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    return float(-10 * np.log10(np.square(one - other).mean()))


def keep(picture: np.ndarray, name: str, site: Path) -> None:
    Image.fromarray((255 * picture).astype(np.uint8)).save(artifacts_folder(site.parent) / f"{name}.png")


def test_the_quarry_stands_where_it_is_to_the_pixel(
    shown: Globe, site: Path, splat: Path, record_property: Any
) -> None:
    picture, wanted = shown.shot(len(read_splat(splat))), rendered(splat)
    keep(picture, "cesium", site)
    keep(wanted, "rendered", site)
    assert wanted.max(axis=2).mean() > 0.2  # something is to be seen
    record_property("figure", f"PSNR {psnr(picture, wanted):.1f} dB")
    assert psnr(picture, wanted) >= LEAST_PSNR
    assert {url.split("/")[2] for url in shown.requests if url.startswith("http")} == {shown.address.split("/")[2]}


def test_tiles_of_several_levels_are_drawn_together(
    chromium: Any, splat: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    monkeypatch.setattr(write, "MOST_PER_TILE", 300)
    batch, small = FakeBatch(splat.parents[2]), splat.parents[2] / "small"
    ended = invoke("publish", "scene", "--as", "tiles", "--no-measure", "--to", str(small), batch=batch)
    assert ended.code == 0, ended.err
    with globe(chromium, small, SIZE) as shown:
        shown.open("tiles/tileset.json", error_px=200.0)
        eye, axes = on_earth(*pose())
        shown.look(eye, axes, FOV_RAD)
        picture, num, tiles = shown.shot(), shown.page.evaluate("drawn()"), shown.page.evaluate("shown()")
        keep(picture, "levels", small)
        quality = psnr(picture, rendered(splat))
        record_property("figure", f"{num} Gaussians in {len(tiles)} tiles, PSNR {quality:.1f} dB")
        assert len({len(Path(one).stem) for one in tiles}) > 1 and num < len(read_splat(splat))
        assert psnr(picture, rendered(splat)) >= 22


def about(middle: np.ndarray, rotation: np.ndarray, move: np.ndarray) -> list[float]:
    """Return the matrix, column by column, that turns about a place and then moves."""
    matrix = np.eye(4)
    matrix[:3, :3] = rotation
    matrix[:3, 3] = middle - rotation @ middle + move
    return matrix.T.ravel().tolist()


@pytest.mark.parametrize("change", ["turned by 5 degrees", "moved by 1 m"])
def test_tiles_elsewhere_would_be_noticed(shown: Globe, splat: Path, change: str, record_property: Any) -> None:
    middle = on_earth(read_splat(splat).means.mean(axis=0).astype(np.float64), np.eye(3))
    up, turn = middle[1][2], np.eye(3)
    move = middle[1][0]
    if change == "turned by 5 degrees":
        angle, across = np.radians(5), np.cross(np.eye(3), up)
        turn, move = np.cos(angle) * turn + np.sin(angle) * across + (1 - np.cos(angle)) * np.outer(up, up), 0 * up
    before = shown.shot(len(read_splat(splat)))
    shown.page.evaluate("(matrix) => move(matrix)", about(middle[0], turn, move))
    picture = shown.shot(len(read_splat(splat)), other_than=before)
    record_property("figure", f"PSNR {psnr(picture, rendered(splat)):.1f} dB")
    assert psnr(picture, rendered(splat)) < LEAST_PSNR


def test_the_validator_of_gltf_finds_nothing_but_names_that_the_extension_has(site: Path) -> None:
    script = (
        "const v = require('gltf-validator'), fs = require('fs');"
        "const [ignored, ...paths] = process.argv.slice(1), ignoredIssues = ignored.split(',').filter(Boolean);"
        "const check = p => v.validateBytes(new Uint8Array(fs.readFileSync(p)), {ignoredIssues, maxIssues: 0});"
        "Promise.all(paths.map(check)).then(all => console.log(JSON.stringify(all.map(one => one.issues))))"
    )
    files = [str(path) for path in sorted((site / "tiles").rglob("*.glb"))]

    def issues(ignored: str) -> list[dict[str, Any]]:
        command = ["node", "-e", script, ignored, *files]
        ended = subprocess.run(command, cwd=installed().parent, capture_output=True, text=True, check=True)
        found: list[dict[str, Any]] = json.loads(ended.stdout)
        assert len(found) == len(files) >= 2
        return found

    # this validator, the newest, is older than the extension, whose attributes are named KHR_gaussian_splatting:…
    assert [one["numErrors"] for one in issues("MESH_PRIMITIVE_INVALID_ATTRIBUTE")] == [0] * len(files)
    errors = [one for all_of in issues("") for one in all_of["messages"] if one["severity"] == 0]
    assert errors and {one["code"] for one in errors} == {"MESH_PRIMITIVE_INVALID_ATTRIBUTE"}
    assert all("KHR_gaussian_splatting:" in one["pointer"] for one in errors)


def test_the_tileset_of_the_quarry_keeps_the_rules(site: Path) -> None:
    assert problems_of(site / "tiles/tileset.json") == []
