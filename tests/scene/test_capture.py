"""The next flight: views that fill what photographs lack, where a camera can stand, in files that others read."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from splatbatch.scene.next_flight import (
    FEW,
    KML,
    WEAKNESS,
    CoverageSurvey,
    FlightCamera,
    FlightPlan,
    Floats,
    _looking_at,
    suggest,
    up_of,
)

UP = np.array([0.0, 0.0, 1.0])
SIDE, HEIGHT = 2.0, 20.0
FOCAL, SIZE = (800.0, 800.0), (800, 600)


def ground(num: int = 12) -> Floats:
    """Cells of a plain, [n, 3]."""
    x, y = np.meshgrid(np.arange(num) * SIDE, np.arange(num) * SIDE)
    return np.stack([x.ravel(), y.ravel(), np.zeros(num * num)], axis=1)


def nadir(x: float, y: float) -> FlightCamera:
    return FlightCamera(_looking_at(np.array([x, y, 0.0]), HEIGHT * UP, UP), FOCAL, SIZE)


def flown(but: tuple[float, float] = (np.inf, np.inf), reach: float = 0.0) -> list[FlightCamera]:
    """A grid of nadir photographs without those near a place."""
    places = [(x, y) for x in np.arange(-4.0, 27, 3) for y in np.arange(-4.0, 27, 3)]
    return [nadir(x, y) for x, y in places if max(abs(x - but[0]), abs(y - but[1])) > reach]


def survey(cameras: list[FlightCamera], places: Floats | None = None) -> CoverageSurvey:
    places = ground() if places is None else places
    return CoverageSurvey(places, np.full(len(places), SIDE), cameras, UP, ["p0"] * len(places))


def test_a_scene_that_is_well_flown_needs_no_photograph() -> None:
    plan = suggest(survey(flown()), ground())
    assert not plan.cells
    assert not plan.suggested


@pytest.fixture(scope="module")
def hole() -> FlightPlan:
    return suggest(survey(flown((11, 11), 13)), ground())


def test_the_hole_that_photographs_left_is_found_and_filled(hole: FlightPlan) -> None:
    assert len(hole.cells) > 10
    assert not hole.left
    again = survey([*flown((11, 11), 13), *(view.camera for view in hole.suggested)])
    assert survey(flown((11, 11), 13)).seen.sum(axis=1).min() < FEW
    assert again.seen.sum(axis=1).min() >= FEW
    assert not again.weak()


def test_few_views_cover_many_cells(hole: FlightPlan) -> None:
    assert len(hole.suggested) < len(hole.cells) / 2


def test_where_all_look_straight_down_obliques_are_suggested() -> None:
    line = [nadir(x, 11) for x in np.arange(-4.0, 27, 1.5)][8:11]
    plan = suggest(survey(line), ground())
    tilted = [view for view in plan.suggested if view.direction @ UP > -np.cos(np.radians(25))]
    assert len(tilted) > len(plan.suggested) / 2


def test_no_camera_stands_in_or_under_anything(hole: FlightPlan) -> None:
    wall = np.array([[x, y, z] for x in (4.0, 18.0) for y in np.arange(0, 24, 0.5) for z in np.arange(0, 24, 0.5)])
    obstacles = np.vstack([ground(), wall])
    plan = suggest(survey(flown((11, 11), 13)), obstacles)
    assert plan.suggested
    for view in plan.suggested:
        assert np.linalg.norm(obstacles - view.camera.center, axis=1).min() >= 0.25 * plan.distance
        assert view.camera.center[2] > 0


def test_a_place_without_any_surface_is_a_weak_cell() -> None:
    places = ground()
    missing = (np.abs(places[:, :2] - 12) < 4).all(axis=1)
    plan = suggest(survey(flown((12, 12), 10), places[~missing]), places[~missing])
    empty = [cell for cell in plan.cells if cell.why == "nothing there"]
    assert empty
    assert all((np.abs(cell.place[:2] - 12) < 5).all() for cell in empty)


def test_up_is_away_from_the_ground_where_no_crs_says_it() -> None:
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))[0]
    cameras = [
        FlightCamera(camera.matrix @ np.block([[turn.T, np.zeros((3, 1))], [0, 0, 0, 1]]), FOCAL, SIZE)
        for camera in flown()
    ]
    assert up_of(ground() @ turn.T, cameras) @ (turn @ UP) == pytest.approx(1, abs=1e-6)


def globe(places: Floats) -> Floats:
    return np.stack([7 + places[:, 0] / 1e5, 50 + places[:, 1] / 1e5, places[:, 2] + 300], axis=1)


def test_the_geojson_is_a_valid_rfc_7946_file(hole: FlightPlan) -> None:
    text = replace(hole, name="p0", to_globe=globe).to_geojson()
    found = json.loads(text)
    assert found["type"] == "FeatureCollection"
    assert "crs" not in found
    for feature in found["features"]:
        assert feature.keys() == {"type", "geometry", "properties"}
        coordinates = feature["geometry"]["coordinates"]
        if feature["geometry"]["type"] == "Polygon":
            (ring,) = coordinates
            assert ring[0] == ring[-1]
            assert sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring)) > 0
        else:
            assert coordinates[:2] == pytest.approx([7, 50], abs=0.1)
            assert coordinates[2] > 300


def test_the_kml_has_a_camera_for_each_view_and_escapes_names(hole: FlightPlan) -> None:
    root = ElementTree.fromstring(replace(hole, name="p0 <&>").to_kml())
    assert root.find(f".//{{{KML}}}name").text == "next flight: p0 <&>"
    cameras = root.findall(f".//{{{KML}}}Camera")
    assert len(cameras) == len(hole.suggested)
    assert all(0 <= float(one.find(f"{{{KML}}}tilt").text) <= 90 for one in cameras)


def test_weak_cells_are_described_in_words(hole: FlightPlan) -> None:
    words = {WEAKNESS[cell.why] for cell in hole.cells}
    features = json.loads(hole.to_geojson())["features"]
    assert {one["properties"]["description"] for one in features if "is" in one["properties"]} == words
    names = [one.text for one in ElementTree.fromstring(hole.to_kml()).iter(f"{{{KML}}}name")]
    assert {name.partition(": ")[2].rpartition(", ")[0] for name in names if name.startswith("cell ")} == words


def test_heading_is_clockwise_from_north() -> None:
    camera = FlightCamera(_looking_at(np.zeros(3), np.array([-10.0, 0.0, 10.0]), UP), FOCAL, SIZE)
    weak = suggest(survey(flown((11, 11), 13)), ground())
    view = type(weak.suggested[0])(camera, np.zeros(3), (0,))
    (record,) = FlightPlan(weak.cells, [view], (), UP, 1.0).views()
    assert (record.heading_deg, record.pitch_deg) == (90.0, -45.0)
