"""Lenses of other programs: the same pixels for the same rays, or the difference in pixels is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from foreign_writers import Scene, write_metashape
from hypothesis import given
from hypothesis import strategies as st
from scenes import MadeScene

from splatbatch.errors import SceneError
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.imports.capture import ImportOptions
from splatbatch.scene.imports.lens import Lens, camera_of, resized, simplified
from splatbatch.scene.imports.run import bring_in
from splatbatch.scene.reprojection import project

SIZE = (4000, 3000)
RAYS = np.stack(np.meshgrid(np.linspace(-0.5, 0.5, 9), np.linspace(-0.4, 0.4, 7)), axis=-1).reshape(-1, 2)
WIDE = Lens(2900.0, 2890.0, 2010.0, 1490.0)


def metashape(rays: np.ndarray, terms: dict[str, float], size: tuple[int, int]) -> np.ndarray:
    """Return pixels by the formula of Metashape's manual, written down here once more."""
    t = {
        key: terms.get(key, 0.0)
        for key in ["f", "cx", "cy", "b1", "b2", "k1", "k2", "k3", "k4", "p1", "p2", "p3", "p4"]
    }
    x, y = rays.T
    r = np.hypot(x, y)
    radial = 1 + t["k1"] * r**2 + t["k2"] * r**4 + t["k3"] * r**6 + t["k4"] * r**8
    grown = 1 + t["p3"] * r**2 + t["p4"] * r**4
    u = x * radial + (t["p1"] * (r**2 + 2 * x**2) + 2 * t["p2"] * x * y) * grown
    v = y * radial + (t["p2"] * (r**2 + 2 * y**2) + 2 * t["p1"] * x * y) * grown
    middle = np.array(size) / 2 + (t["cx"], t["cy"])
    return np.stack([u * (t["f"] + t["b1"]) + v * t["b2"], v * t["f"]], axis=1) + middle


def rays_of(rays: np.ndarray) -> np.ndarray:
    return np.concatenate([rays, np.ones((len(rays), 1))], axis=1)


def metashape_camera(tmp_path: Path, terms: dict[str, float], made: Camera) -> Camera:
    scene = MadeScene(tmp_path / "made", [made]).write()
    extra = "".join(f"<{key}>{value!r}</{key}>" for key, value in terms.items() if key not in ("f", "cx", "cy", "b1"))
    write_metashape(Scene(scene.sparse, scene.photographs), tmp_path / "in", extra=extra)
    return bring_in(tmp_path / "in", tmp_path / "out", ImportOptions(triangulates=False)).capture.shots[0].camera


@pytest.mark.parametrize(
    ("terms", "model"),
    [
        ({}, "PINHOLE"),
        ({"k1": -0.12, "k2": 0.03}, "OPENCV"),
        ({"k1": -0.12, "k2": 0.03, "p1": 2e-3, "p2": -1e-3}, "OPENCV"),
        ({"k1": -0.12, "k2": 0.03, "k3": -0.01, "p1": 2e-3, "p2": -1e-3}, "FULL_OPENCV"),
    ],
)
def test_metashapes_calibration_gives_the_pixels_of_its_manual(
    tmp_path: Path, terms: dict[str, float], model: str
) -> None:
    made = Camera(1, "PINHOLE", 400, 300, (290.0, 288.0, 203.0, 148.0))
    camera = metashape_camera(tmp_path, terms, made)
    full = {**terms, "f": 288.0, "b1": 2.0, "cx": 3.0, "cy": -2.0}
    assert camera.model == model
    assert np.abs(project(camera, rays_of(RAYS)) - metashape(RAYS, full, (400, 300))).max() < 1e-9


@pytest.mark.parametrize("terms", [{"b2": 0.8}, {"k1": -0.1, "k4": 0.02}, {"p1": 1e-3, "p3": 0.1}])
def test_terms_that_colmap_lacks_are_fitted_and_told(tmp_path: Path, terms: dict[str, float]) -> None:
    made = Camera(1, "PINHOLE", 400, 300, (290.0, 290.0, 200.0, 150.0))
    camera = metashape_camera(tmp_path, terms, made)
    off = project(camera, rays_of(RAYS)) - metashape(RAYS, {**terms, "f": 290.0}, (400, 300))
    told = (tmp_path / "out/import.json").read_text()
    assert np.abs(off).max() < 1 and "fitted as FULL_OPENCV" in told


@pytest.mark.parametrize("b2", [30.0, -14.0, -28.0])
def test_a_skew_that_no_model_has_is_refused_with_what_to_leave_out(tmp_path: Path, b2: float) -> None:
    made = Camera(1, "PINHOLE", 400, 300, (290.0, 290.0, 200.0, 150.0))
    with pytest.raises(
        SceneError, match=rf"B2 {b2:g}: no camera of COLMAP comes closer to the lens than [\d.]+ px"
    ) as raised:
        metashape_camera(tmp_path, {"b2": b2}, made)
    assert "COLMAP has no camera with B2. Leave these terms out in Tools > Optimize Cameras" in raised.value.message


@given(st.tuples(*[st.floats(-0.02, 0.02)] * 4), st.tuples(*[st.floats(-1e-3, 1e-3)] * 2))
def test_an_equidistant_fisheye_is_the_same_lens_in_colmap(
    k: tuple[float, float, float, float], p: tuple[float, float]
) -> None:
    lens = Lens(1500.0, 1490.0, 2010.0, 1490.0, *k, p1=p[0], p2=p[1], bend="equidistant")
    camera, off = camera_of(lens, SIZE)
    assert off == 0 and np.abs(project(camera, rays_of(RAYS)) - lens.project(RAYS)).max() < 1e-6


def test_an_equisolid_fisheye_is_fitted_within_a_pixel() -> None:
    lens = Lens(1050.0, 1050.0, 1920.0, 1920.0, 0.06, 0.06, -0.02, bend="equisolid")
    camera, off = camera_of(lens, (3840, 3840))
    assert camera.model == "OPENCV_FISHEYE" and 0 < off < 1


@given(st.tuples(*[st.floats(-0.05, 0.05)] * 3), st.tuples(*[st.floats(-2e-3, 2e-3)] * 2))
def test_a_frame_lens_is_the_same_in_colmap(k: tuple[float, float, float], p: tuple[float, float]) -> None:
    lens = Lens(2900.0, 2890.0, 2010.0, 1490.0, *k, p1=p[0], p2=p[1])
    camera, off = camera_of(lens, SIZE)
    assert off == 0 and np.abs(project(camera, rays_of(RAYS)) - lens.project(RAYS)).max() < 1e-6


def test_models_are_simplified_to_the_same_lens() -> None:
    full = Camera(3, "FULL_OPENCV", *SIZE, (2900.0, 2890.0, 2010.0, 1490.0, -0.1, 0.02, 1e-3, 2e-3, 0, 0, 0, 0))
    plain = simplified(full)
    assert (plain.model, plain.id) == ("OPENCV", 3)
    assert np.abs(project(plain, rays_of(RAYS)) - project(full, rays_of(RAYS))).max() < 1e-9
    assert simplified(Camera(1, "FULL_OPENCV", *SIZE, (2900.0, 2890.0, 2010.0, 1490.0, *[0.0] * 8))).model == "PINHOLE"
    assert simplified(Camera(1, "SIMPLE_RADIAL", *SIZE, (2900.0, 2010.0, 1490.0, 0.0))).model == "SIMPLE_PINHOLE"
    kept = Camera(1, "FULL_OPENCV", *SIZE, (2900.0, 2890.0, 2010.0, 1490.0, 0, 0, 0, 0, 0, 0, 0, 1e-9))
    assert simplified(kept) is kept


def test_a_resized_camera_sees_the_same_in_fewer_pixels() -> None:
    for camera in (
        Camera(1, "OPENCV", *SIZE, (2900.0, 2890.0, 2010.0, 1490.0, -0.1, 0.02, 1e-3, 2e-3)),
        Camera(1, "RADIAL", *SIZE, (2900.0, 2010.0, 1490.0, -0.1, 0.02)),
    ):
        small = resized(camera, (1000, 750))
        assert np.abs(4 * project(small, rays_of(RAYS)) - project(camera, rays_of(RAYS))).max() < 1e-6
