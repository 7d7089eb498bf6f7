"""Undistorted cameras: COLMAP's own mathematics, no black border, and a refusal where no pinhole could do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pycolmap
import pytest
from dots import middle_of_light
from PIL import Image as Pillow

from splatbatch.errors import SceneError
from splatbatch.scene.camera_fix import rescaled
from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera
from splatbatch.scene.photos.undistort import is_distorted, sources, undistorted_camera, undistorted_rays
from splatbatch.scene.reprojection import project
from splatbatch.training.photos.decode import PhotoSource, decode

BARREL = Camera(1, "SIMPLE_RADIAL", 400, 300, (320.0, 203.5, 148.25, -0.12))
PINCUSHION = Camera(1, "RADIAL", 400, 300, (320.0, 203.5, 148.25, 0.1, 0.05))
DRONE = Camera(1, "OPENCV", 400, 300, (322.0, 318.0, 203.5, 148.25, -0.11, 0.06, 0.002, -0.001))
FULL = Camera(1, "FULL_OPENCV", 400, 300, (322.0, 318, 203.5, 148.25, -0.1, 0.02, 1e-3, -1e-3, 0.01, 0.02, 0.01, 0.001))
REEF = (202.0, 198.0, 203.5, 148.25)
FISHEYES = [
    Camera(1, "SIMPLE_FISHEYE", 400, 300, (200.0, 203.5, 148.25)),
    Camera(1, "FISHEYE", 400, 300, REEF),
    Camera(1, "SIMPLE_RADIAL_FISHEYE", 400, 300, (200.0, 203.5, 148.25, 0.02)),
    Camera(1, "RADIAL_FISHEYE", 400, 300, (200.0, 203.5, 148.25, 0.02, -0.004)),
    Camera(1, "OPENCV_FISHEYE", 400, 300, (*REEF, 0.03, 0.005, -0.002, 0.0003)),
    Camera(1, "THIN_PRISM_FISHEYE", 400, 300, (*REEF, 0.03, 0.005, 1e-3, -1e-3, -2e-3, 3e-4, 1e-3, -1e-3)),
    Camera(1, "RAD_TAN_THIN_PRISM_FISHEYE", 400, 300, (*REEF, 0.03, 5e-3, 0, 0, 0, 0, 1e-3, -1e-3, 1e-3, 0, -1e-3, 0)),
]
CAMERAS = [BARREL, PINCUSHION, DRONE, FULL, *FISHEYES]


def equidistant(degrees: float) -> Camera:
    """Return a fisheye of 400 x 300 pixels that sees so many degrees from corner to corner."""
    return Camera(1, "SIMPLE_FISHEYE", 400, 300, (250 / np.deg2rad(degrees / 2), 200.0, 150.0))


def theirs(camera: Camera) -> pycolmap.Camera:
    size = {"width": camera.width, "height": camera.height}
    return pycolmap.Camera({"model": camera.model, **size, "params": np.array(camera.params)})


@pytest.mark.parametrize("camera", CAMERAS, ids=lambda camera: camera.model)
def test_rays_are_those_of_colmap(camera: Camera) -> None:
    pixels = np.random.default_rng(0).uniform((0, 0), (400, 300), (200, 2))
    wanted = np.array([theirs(camera).cam_from_img(pixel) for pixel in pixels]).reshape(200, -1)[:, :2]
    assert np.abs(undistorted_rays(camera, pixels) - wanted).max() * 320 < 1e-3


@pytest.mark.parametrize("camera", CAMERAS, ids=lambda camera: camera.model)
def test_a_point_lies_in_the_undistorted_photograph_where_the_map_looks_for_it(camera: Camera) -> None:
    straight = undistorted_camera(camera)
    points = np.random.default_rng(1).uniform((-0.4, -0.3, 1), (0.4, 0.3, 1), (300, 3))
    columns, rows = (np.floor(project(straight, points)).astype(int)).T
    places = sources(camera, straight)[:, rows, columns]  # of the pixel's middle: at most 0.71 px from the point
    middles = np.stack([columns, rows], axis=1) + 0.5
    moved = project(camera, points) + (middles - project(straight, points))
    assert np.abs(places[::-1].T + 0.5 - moved).max() < 0.1


@pytest.mark.parametrize("camera", CAMERAS, ids=lambda camera: camera.model)
def test_no_pixel_of_the_undistorted_photograph_comes_from_outside(camera: Camera) -> None:
    rows, columns = sources(camera, undistorted_camera(camera))
    assert -0.5 <= rows.min() < 2 and 297 < rows.max() <= 299.5
    assert -0.5 <= columns.min() < 2 and 397 < columns.max() <= 399.5


@pytest.mark.parametrize("camera", CAMERAS, ids=lambda camera: camera.model)
def test_the_middle_keeps_its_scale(camera: Camera) -> None:
    straight = undistorted_camera(camera)
    assert (straight.model, straight.fx, straight.fy) == ("PINHOLE", camera.fx, camera.fy)
    assert (camera.cx - straight.cx).is_integer()
    assert (camera.cy - straight.cy).is_integer()


@pytest.mark.parametrize("degrees", [92, 122, 145, 175])
def test_a_fisheye_is_cut_where_the_pinhole_would_stretch_it_fourfold(
    degrees: float, record_property: Callable[[str, object], None]
) -> None:
    straight = undistorted_camera(equidistant(degrees))
    width, height = (2 * np.rad2deg(np.arctan(side / 2 / straight.fx)) for side in (straight.width, straight.height))
    record_property("figure", f"{degrees} degrees across the corners: {width:.0f} x {height:.0f} are trained")
    assert width == pytest.approx(min(0.8 * degrees, 120), abs=0.5)
    assert height == pytest.approx(0.6 * degrees, abs=0.5)


@pytest.mark.parametrize("camera", FISHEYES, ids=lambda camera: camera.model)
def test_a_fisheye_is_undistorted_as_by_colmap(
    tmp_path: Path, camera: Camera, record_property: Callable[[str, object], None]
) -> None:
    """A dot on every ray of a grid lies in both undistorted photographs where the same ray falls."""
    rays = np.array([[x, y, 1.0] for x in (-0.7, -0.3, 0.1, 0.6) for y in (-0.5, -0.1, 0.4)])
    u, v = np.meshgrid(np.arange(400) + 0.5, np.arange(300) + 0.5)
    light = sum(np.exp(-((u - x) ** 2 + (v - y) ** 2) / 8) for x, y in project(camera, rays))
    dots = np.repeat((250 * light)[..., None], 3, axis=2).astype(np.uint8)
    options = pycolmap.UndistortCameraOptions()
    picture, reference = pycolmap.undistort_image(options, pycolmap.Bitmap.from_array(dots), theirs(camera))
    Pillow.fromarray(dots).save(tmp_path / "dots.png")
    ours = decode(PhotoSource(tmp_path / "dots.png", camera, 1))
    off = [
        middle_of_light(ours.pixels, one) - one - (middle_of_light(picture.to_array(), other) - other)
        for one, other in zip(project(ours.camera, rays), reference.img_from_cam(rays), strict=True)
    ]
    record_property("figure", f"{camera.model}: at most {np.abs(off).max():.3f} px from COLMAP's")
    assert np.abs(off).max() < 0.1


def test_a_barrel_photograph_grows_and_a_pincushion_one_shrinks() -> None:
    assert undistorted_camera(BARREL).width > 400 > undistorted_camera(PINCUSHION).width


@pytest.mark.parametrize(("model", "params"), [
    ("SIMPLE_RADIAL", (320.0, 200, 150, 0.0)), ("OPENCV", (320.0, 320, 200, 150, 0, 0, 0, 0)),
    ("SIMPLE_PINHOLE", (320.0, 200, 150)),
])  # fmt: skip
def test_a_lens_without_distortion_is_a_pinhole_as_it_is(model: str, params: tuple[float, ...]) -> None:
    camera = Camera(1, model, 400, 300, params)
    assert not is_distorted(camera)
    assert undistorted_camera(camera) == Camera(1, "PINHOLE", 400, 300, (320.0, 320.0, 200, 150))


@pytest.mark.parametrize(("camera", "why"), [
    (Camera(1, "FOV", 400, 300, (200.0, 200, 200, 150, 0.9)), "FOV: not supported"),
    (equidistant(183), "shows 180 degrees or more, or the lens folds over inside it"),
    (Camera(1, "OPENCV_FISHEYE", 400, 300, (200.0, 200, 200, 150, -0.5, 0, 0, 0)), "or the lens folds over inside"),
    (Camera(1, "SIMPLE_RADIAL", 400, 300, (150.0, 200, 150, -0.3)), "folds over"),
    (Camera(1, "SIMPLE_RADIAL", 400, 300, (150.0, 200, 150, 3.0)), "the distortion is too strong"),
])  # fmt: skip
def test_what_no_pinhole_shows_is_refused_with_advice(camera: Camera, why: str) -> None:
    with pytest.raises(SceneError, match=why) as refused:
        undistorted_camera(camera)
    assert "colmap image_undistorter" in refused.value.hint


@pytest.mark.parametrize("model", sorted(CAMERA_MODELS))
def test_projection_is_pycolmaps_for_every_camera_model(model: str) -> None:
    made = pycolmap.Camera.create_from_model_name(1, model, 300.0, 400, 300)
    camera = Camera(1, model, 400, 300, tuple(map(float, made.params)))
    points = np.random.default_rng(2).uniform((-0.4, -0.3, 1), (0.4, 0.3, 2), (50, 3))
    wanted = np.array([made.img_from_cam(point) for point in points])
    np.testing.assert_allclose(project(camera, points), wanted, rtol=1e-12)


def test_what_lies_behind_a_camera_or_has_no_model_falls_nowhere() -> None:
    behind = np.array([[0.1, 0.1, -1.0], [0.1, 0.1, 1.0]])
    assert np.isnan(project(Camera(1, "PINHOLE", 400, 300, (300.0, 300, 200, 150)), behind)).all(axis=1).tolist() == [
        True,
        False,
    ]
    assert np.isnan(project(Camera(1, "PINHOLE", 400, 300, (300.0, 300)), behind)).all()
    assert np.isnan(project(Camera(1, "UNHEARD_OF", 400, 300, (300.0,)), behind)).all()


@pytest.mark.parametrize("model", ["PINHOLE", "SIMPLE_RADIAL", "OPENCV", "FULL_OPENCV", "OPENCV_FISHEYE"])
def test_a_rescaled_camera_is_pycolmaps(model: str) -> None:
    made = pycolmap.Camera.create_from_model_name(1, model, 300.0, 400, 300)
    camera = Camera(1, model, 400, 300, tuple(map(float, made.params)))
    made.rescale(200, 150)
    np.testing.assert_allclose(rescaled(camera, (200, 150), (0.5, 0.5)).params, made.params)
