"""A model brought into metres, east, north and up, by GPS good and bad."""

from __future__ import annotations

import numpy as np
import pycolmap
import pytest
from numpy.typing import NDArray

from splatbatch.reconstruction.georeference import Georeference, PosedViews, georeference, in_east_north_up

ORIGIN = (46.5, 8.25, 900.0)
RANDOM = np.random.default_rng(3)
TRUE = np.column_stack([RANDOM.uniform(-100, 100, (60, 2)), RANDOM.uniform(20, 60, 60)])


def turned() -> NDArray[np.float64]:
    q, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))
    return np.asarray(q * np.sign(np.linalg.det(q)), np.float64)


def found(noise: NDArray[np.float64] | float = 0.0, true: NDArray[np.float64] = TRUE) -> Georeference | None:
    """Return the georeference of a model that is turned, and twelve times too small."""
    globe = pycolmap.GPSTransform(pycolmap.GPSTransformEllipsoid.WGS84)
    places = globe.enu_to_ellipsoid(true + noise, *ORIGIN)
    down = RANDOM.normal([0, 0, -1], 0.1, (len(true), 3))
    down /= np.linalg.norm(down, axis=1, keepdims=True)
    tops = np.tile([0.0, 1.0, 0.0], (len(true), 1))
    turn = turned()
    return georeference(PosedViews(true @ turn / 12, down @ turn, tops @ turn), places)


def tilt_deg(one: Georeference) -> float:
    return float(np.degrees(np.arccos(np.clip((one.similarity.rotation @ turned().T)[2, 2], -1, 1))))


def test_a_model_is_brought_into_metres_upright_and_in_place() -> None:
    one = found()
    assert one and one.upright_by == "gps" and one.similarity.scale == pytest.approx(12, rel=1e-5)
    assert tilt_deg(one) < 0.01 and np.abs(one.residuals).max() < 0.01
    assert one.origin == pytest.approx((46.5, 8.25, 940.0), abs=20)


def test_a_few_wild_positions_change_little() -> None:
    noise = RANDOM.normal(scale=1.0, size=TRUE.shape)
    noise[:4] += 150
    one = found(noise)
    assert one and tilt_deg(one) < 1 and one.similarity.scale == pytest.approx(12, rel=0.02)


def test_where_positions_are_too_rough_photographs_that_look_down_say_what_is_upright() -> None:
    noise = np.zeros_like(TRUE)
    noise[:, 2] = np.sort(RANDOM.uniform(0, 120, len(TRUE)))[np.argsort(np.argsort(TRUE[:, 0]))]
    noise[:, :2] = RANDOM.normal(scale=12, size=(len(TRUE), 2))
    one = found(noise)
    assert one and one.upright_by.startswith("photographs") and tilt_deg(one) < 3


def test_positions_in_a_line_fix_no_frame() -> None:
    line = np.column_stack([np.linspace(0, 100, 30), np.zeros(30), np.zeros(30)])
    assert found(true=line) is None


def test_two_positions_fix_no_frame() -> None:
    assert found(true=TRUE[:2]) is None


def test_photographs_on_both_sides_of_the_date_line_are_neighbours() -> None:
    where, (_, longitude, _) = in_east_north_up(
        np.array([[-16.8, 179.9999, 0], [-16.8, -179.9998, 0], [-16.8, -180, 0]])
    )
    assert np.abs(where[:, :2]).max() < 25 and abs(longitude) > 179.99
