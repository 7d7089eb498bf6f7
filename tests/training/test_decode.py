"""Photographs as they are trained: undistorted to a tenth of a pixel, shrunk exactly, masked at the same places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dots import middle_of_light
from PIL import Image as Pillow

from splatbatch.errors import SceneError
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.reprojection import project
from splatbatch.training.photos.decode import PhotoSource, decode

CAMERAS = [
    Camera(1, "SIMPLE_RADIAL", 400, 300, (320.0, 203.5, 148.25, -0.12)),
    Camera(1, "RADIAL", 400, 300, (320.0, 203.5, 148.25, 0.1, 0.05)),
    Camera(1, "OPENCV", 400, 300, (322.0, 318.0, 203.5, 148.25, -0.11, 0.06, 0.002, -0.001)),
    Camera(1, "OPENCV_FISHEYE", 400, 300, (202.0, 198.0, 203.5, 148.25, 0.03, 0.005, -0.002, 0.0003)),
]
POINTS = np.array([[x, y, 1.0] for x in (-0.4, 0.0, 0.35) for y in (-0.3, 0.05, 0.3)])
PLAIN = Camera(1, "PINHOLE", 40, 30, (50.0, 50.0, 20.0, 15.0))


def paint_dots(path: Path, camera: Camera) -> None:
    u, v = np.meshgrid(np.arange(camera.width) + 0.5, np.arange(camera.height) + 0.5)
    light = sum(np.exp(-((u - x) ** 2 + (v - y) ** 2) / 18) for x, y in project(camera, POINTS))
    Pillow.fromarray(np.repeat((250 * light)[..., None], 3, axis=2).astype(np.uint8)).save(path)


@pytest.mark.parametrize("camera", CAMERAS, ids=lambda camera: camera.model)
def test_an_undistorted_photograph_shows_points_where_its_pinhole_does(tmp_path: Path, camera: Camera) -> None:
    paint_dots(tmp_path / "dots.png", camera)
    decoded = decode(PhotoSource(tmp_path / "dots.png", camera, 1))
    assert decoded.pixels.shape == (decoded.camera.height, decoded.camera.width, 3)
    for place in project(decoded.camera, POINTS):
        assert np.abs(middle_of_light(decoded.pixels, place) - place).max() < 0.1


def test_an_undistorted_photograph_has_no_black_border(tmp_path: Path) -> None:
    Pillow.new("RGB", (400, 300), (200, 100, 50)).save(tmp_path / "plain.png")
    for camera in CAMERAS:
        assert (decode(PhotoSource(tmp_path / "plain.png", camera, 1)).pixels == (200, 100, 50)).all()


def test_a_shrunk_photograph_is_undistorted_at_its_own_size(tmp_path: Path) -> None:
    paint_dots(tmp_path / "dots.png", CAMERAS[2])
    decoded = decode(PhotoSource(tmp_path / "dots.png", CAMERAS[2], 2))
    assert (decoded.camera.fx, decoded.camera.fy) == (161.0, 159.0)
    for place in project(decoded.camera, POINTS):
        assert np.abs(middle_of_light(decoded.pixels, place) - place).max() < 0.1


def test_another_lens_is_refused_with_advice(tmp_path: Path) -> None:
    Pillow.new("RGB", (40, 30)).save(tmp_path / "a.png")
    camera = Camera(1, "FOV", 40, 30, (30.0, 30, 20, 15, 0.9))
    with pytest.raises(SceneError, match="FOV: not supported: undistort") as refused:
        decode(PhotoSource(tmp_path / "a.png", camera, 1))
    assert "image_undistorter" in refused.value.hint


def write_mask(path: Path, size: tuple[int, int], black: tuple[int, int, int, int]) -> None:
    mask = Pillow.new("L", size, 255)
    mask.paste(0, black)
    mask.save(path)


@pytest.mark.parametrize(("size", "black"), [((40, 30), (10, 6, 20, 12)), ((80, 60), (20, 12, 40, 24))])
def test_a_mask_of_any_size_covers_the_same_part(tmp_path: Path, size: tuple[int, int], black: tuple[int, ...]) -> None:
    Pillow.new("RGB", (40, 30)).save(tmp_path / "a.png")
    write_mask(tmp_path / "m.png", size, black)  # type: ignore[arg-type]
    mask = decode(PhotoSource(tmp_path / "a.png", PLAIN, 1, tmp_path / "m.png")).mask
    assert mask is not None
    assert not mask[6:12, 10:20].any()
    assert mask.sum() == 40 * 30 - 60


def test_a_shrunk_pixel_counts_only_if_all_it_is_made_of_do(tmp_path: Path) -> None:
    Pillow.new("RGB", (40, 30)).save(tmp_path / "a.png")
    write_mask(tmp_path / "m.png", (40, 30), (10, 6, 21, 12))
    mask = decode(PhotoSource(tmp_path / "a.png", PLAIN, 2, tmp_path / "m.png")).mask
    assert mask is not None
    assert (~mask).nonzero()[0].tolist() == [3] * 6 + [4] * 6 + [5] * 6


def test_a_mask_is_undistorted_with_its_photograph(tmp_path: Path) -> None:
    paint_dots(tmp_path / "a.png", CAMERAS[0])
    write_mask(tmp_path / "m.png", (400, 300), (0, 0, 200, 300))
    decoded = decode(PhotoSource(tmp_path / "a.png", CAMERAS[0], 1, tmp_path / "m.png"))
    assert decoded.mask is not None
    assert decoded.mask.shape == decoded.pixels.shape[:2]
    border = decoded.camera.cx - 3.5  # 200 of 400, beside a principal point at 203.5
    assert decoded.mask.argmax(axis=1)[150] == pytest.approx(border, abs=1.5)


def test_a_mask_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    Pillow.new("RGB", (40, 30)).save(tmp_path / "a.png")
    (tmp_path / "m.png").write_bytes(b"no picture")
    with pytest.raises(SceneError, match=r"m.png: cannot identify"):
        decode(PhotoSource(tmp_path / "a.png", PLAIN, 1, tmp_path / "m.png"))
