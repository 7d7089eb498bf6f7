"""The sun's side of photographs adds up to no ramp; a drift of exposure is told from it by EXIF, or by relief."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_batch import QUARRY
from flight import Flight, exposed
from PIL import Image
from planted import plant
from test_colors import tones

from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.colors.observations import shots_of
from splatbatch.scene.colors.scene_corrections import SceneCorrections
from splatbatch.scene.colors.solve import ColorObservations, Solution, solve
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.headers import Exposure, read_exposure

FLIGHT = Flight()
NUM = FLIGHT.strips * FLIGHT.length
EAST = FLIGHT.centers()[:, 0] / np.ptp(FLIGHT.centers()[:, 0]) - 0.5
ACROSS = math.log(1.15)
"""Of a photograph in the sun: one side is 15 % brighter than the other."""
MODEL = read_reconstruction(QUARRY / "sparse/0")
DRIFTS = {image.name: image.center()[0] for image in MODEL.images}


def in_the_sun(way: tuple[float, float, float]) -> dict[str, tuple[float, float]]:
    """Return tilts of the quarry's photographs: each is brighter on its side that lies this way."""
    found = {}
    for image in MODEL.images:
        camera = MODEL.cameras[image.camera_id]
        along = image.rotation() @ np.array(way) * ACROSS * np.hypot(camera.width, camera.height) / 2 / camera.width
        found[image.name] = (float(along[0]), float(along[1]))
    return found


def ramp(found: SceneCorrections, images: Path, axis: int) -> float:
    """Return how much brighter than they are evening makes one band of the scene beside another; there are eight."""
    points, changes, places = [], [], []
    centers = {image.name: image.center()[axis] for image in MODEL.images}
    for name, shot in shots_of([Patch("p0", QUARRY / "sparse/0", images)]).items():
        tone, camera = found.tones[name], shot.camera
        offsets = (shot.xy - (camera.cx, camera.cy)) / (np.hypot(camera.width, camera.height) / 2)
        changes.append(-np.log(tone.gain).mean() - offsets @ np.array(tone.shading_gradient))
        points.append(shot.points)
        places.append(np.full(len(shot.xy), centers[name]))
    point = np.concatenate(points)
    change, place = (
        np.bincount(point, np.concatenate(one)) / np.maximum(np.bincount(point), 1) for one in (changes, places)
    )
    bands = np.array_split(np.argsort(place), 8)
    means = [change[band].mean() for band in bands]
    return float(np.expm1(max(means) - min(means)))


@pytest.mark.parametrize(("way", "axis"), [((1, 0, 0), 0), ((0, 1, 0), 1)], ids=["east", "north"])
def test_the_suns_side_of_photographs_puts_no_ramp_over_the_scene(
    tmp_path: Path, way: tuple[float, float, float], axis: int
) -> None:
    plant(QUARRY, tmp_path, most=0, tilts=in_the_sun(way))
    found = tones(QUARRY, tmp_path)
    assert ramp(found, tmp_path, axis) <= 0.02
    assert "the drift is left as photographed" in found.notes[0]


def solved(seen: ColorObservations) -> Solution:
    return solve(seen, np.zeros(len(seen.camera), np.int64))


def off(found: Solution, gains: np.ndarray) -> float:
    """Return by which share a gain is off at most."""
    return float(np.abs(np.expm1(found.gains[:, 0] - (gains - gains.mean()))).max())


@pytest.mark.parametrize("sun", [(0.1, 0.0), (-0.1, 0.2)])
def test_over_flat_ground_where_tracks_cannot_tell_gains_do_not_drift_by_the_sun(sun: tuple[float, float]) -> None:
    found = solved(FLIGHT.seen(np.zeros(NUM), sun))
    assert off(found, np.zeros(NUM)) <= 0.02


@pytest.mark.parametrize("response", [0.35, 0.45, 0.6])
@pytest.mark.parametrize("sun", [(0.0, 0.0), (0.0, 0.15)])
def test_a_slow_drift_of_exposure_that_exif_tells_is_evened(response: float, sun: tuple[float, float]) -> None:
    steps = np.round(3 * EAST) / 3  # of a third of a stop
    gains = response * steps * math.log(2)
    found = solved(exposed(FLIGHT.seen(gains, sun), steps * math.log(2)))
    assert off(found, gains) <= 0.03


def test_a_slow_drift_of_which_neither_exif_nor_tracks_tell_is_left_as_photographed() -> None:
    found = solved(FLIGHT.seen(0.2 * EAST))
    assert off(found, np.zeros(NUM)) <= 0.02
    assert found.drift is not None and (found.drift.has_exposures, found.drift.drift) == (
        False,
        pytest.approx(0.2, abs=0.01),
    )


@pytest.mark.parametrize("seed", range(3))
def test_gains_photograph_by_photograph_are_found_and_are_no_drift(seed: int) -> None:
    gains = np.log(np.random.default_rng(seed).uniform(0.6, 1.4, NUM))
    found = solved(FLIGHT.seen(gains))
    assert (off(found, gains) <= 0.02, found.drift) == (True, None)


def test_one_photograph_without_exif_is_enough_to_be_without() -> None:
    exposures = np.zeros(NUM)
    exposures[3] = np.nan
    seen = FLIGHT.seen(np.zeros(NUM), (0.1, 0.0))
    assert [solved(exposed(seen, one)).drift.has_exposures for one in (np.zeros(NUM), exposures)] == [True, False]  # type: ignore[union-attr]


@pytest.mark.all
@pytest.mark.parametrize("with_exif", [True, False])
def test_in_relief_the_tracks_tell_a_drift_from_the_sun_and_it_is_evened(tmp_path: Path, with_exif: bool) -> None:
    low, high = min(DRIFTS.values()), max(DRIFTS.values())
    stops = {name: 0.4 * (2 * (place - low) / (high - low) - 1) for name, place in DRIFTS.items()}
    exposures = {name: Exposure(2**stop / 500, 5.6, 100) for name, stop in stops.items()}
    gains = {name: 2 ** (0.45 * stop) for name, stop in stops.items()}
    plant(QUARRY, tmp_path, most=0, gains=gains, exposures=exposures if with_exif else {})
    found, intact = tones(QUARRY, tmp_path), tones(QUARRY)
    off = [found.tones[name].gain[1] / intact.tones[name].gain[1] / gain for name, gain in gains.items()]
    assert np.array(off) / np.mean(off) == pytest.approx(1, abs=0.03)
    assert [note for note in found.notes if "over the scene, EXIF is missing: corrected" in note] == list(found.notes)
    assert len(found.notes) == (not with_exif)


def turned(seen: ColorObservations, axes: np.ndarray, slopes: np.ndarray) -> ColorObservations:
    return replace(seen, axes=axes, slopes=slopes)


def test_photographs_that_look_all_ways_are_evened_as_before() -> None:
    random = np.random.default_rng(1)
    turns = np.linalg.qr(random.normal(size=(NUM, 3, 3)))[0]
    seen = FLIGHT.seen(0.2 * EAST)
    nowhere = turned(seen, np.zeros((NUM, 3)), np.zeros((NUM, 2, 3)))
    found, before = solved(turned(seen, turns[:, 2], 0.75 * turns[:, :2])), solved(nowhere)
    assert np.array_equal(found.gains, before.gains)


def test_exposures_that_follow_the_view_from_one_place_are_evened_as_before() -> None:
    random, angles = np.random.default_rng(0), np.linspace(-0.7, 0.7, NUM)
    rays = random.uniform((-1.3, -0.4), (1.3, 0.4), (4000, 2))  # heading and slope
    turns = [
        np.array([[math.cos(one), 0, -math.sin(one)], [0, 1, 0], [math.sin(one), 0, math.cos(one)]]) for one in angles
    ]
    rows = []
    for number, angle in enumerate(angles):
        way = np.stack([np.tan(rays[:, 0] - angle), rays[:, 1] / np.cos(rays[:, 0] - angle)], axis=1)
        inside = np.flatnonzero((np.abs(way) < 0.5).all(axis=1) & (np.abs(rays[:, 0] - angle) < 1))
        logs = 0.3 * angle + random.normal(0, 0.02, len(inside))
        rows.append((np.full(len(inside), number), inside, logs, way[inside]))
    photo, point, color, place = (np.concatenate(column) for column in zip(*rows, strict=True))
    axes = np.array([turn[2] for turn in turns])
    slopes = np.array([turn[:2] for turn in turns])
    radius, lens, untold = (place**2).sum(axis=1), np.zeros(NUM, np.int64), np.full(NUM, np.nan)
    seen = ColorObservations(
        photo, point, np.repeat(color[:, None], 3, axis=1), place, radius, lens, axes, slopes, untold
    )
    assert off(solved(seen), 0.3 * angles) <= 0.02


def test_two_apertures_of_one_camera_have_two_vignettings(tmp_path: Path) -> None:
    names = [image.name for image in MODEL.images]
    exposures = {name: Exposure(0.001, 4.0 if i % 2 else 8.0, 100) for i, name in enumerate(names)}
    fading = {name: (-0.3, -0.1) if i % 2 else (-0.1, -0.05) for i, name in enumerate(names)}
    plant(QUARRY, tmp_path, most=0, vignettings=fading, exposures=exposures)
    found = tones(QUARRY, tmp_path).vignetting
    assert {name: sum(one) for name, one in found.items()} == {
        f"{camera} at f/{f_number}": pytest.approx(corner, abs=0.05)
        for camera in (1, 2)
        for f_number, corner in ((4, -0.4), (8, -0.15))
    }


def test_whatever_exif_holds_an_exposure_is_read_or_unknown(tmp_path: Path) -> None:
    def written(name: str, told: Mapping[int, object]) -> Path:
        exif = Image.Exif()
        exif.get_ifd(0x8769).update(told)
        Image.new("RGB", (8, 8)).save(tmp_path / name, exif=exif)
        return tmp_path / name

    good = read_exposure(written("a.jpg", {0x829A: 0.002, 0x829D: 5.6, 0x8827: 200}))
    assert good.logarithm == pytest.approx(math.log(0.4) - 2 * math.log(5.6))
    assert read_exposure(written("b.jpg", {0x829A: 0.002, 0x8827: 200})).logarithm == pytest.approx(math.log(0.4))
    for told in ({}, {0x829A: 0.0, 0x8827: 100}, {0x829A: 0.01}):
        assert math.isnan(read_exposure(written("c.png", told)).logarithm)
    (tmp_path / "d.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:60])
    assert [read_exposure(tmp_path / name) for name in ("d.jpg", "none.jpg")] == [Exposure(), Exposure()]
