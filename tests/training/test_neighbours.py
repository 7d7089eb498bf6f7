"""First scales: right, never zero, the same every time, and in little memory."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from splatbatch.training import gaussians
from splatbatch.training.gaussians import neighbour_distance

MEASURE = """
import sys
import numpy as np
from memory import peak_bytes
from splatbatch.training.gaussians import neighbour_distance
points = np.random.default_rng(0).normal(size=(int(sys.argv[1]), 3))
before = peak_bytes()
neighbour_distance(points)
print(before // 1024, peak_bytes() // 1024)
"""


def brute_force(points: np.ndarray) -> np.ndarray:
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    return np.sqrt((np.sort(distances, axis=1)[:, 1:4] ** 2).mean(axis=1))


def test_distances_are_those_to_the_three_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(1).uniform(size=(200, 3))
    monkeypatch.setattr(gaussians, "AT_ONCE", 33)
    assert np.allclose(neighbour_distance(points), brute_force(points), rtol=1e-12)


def test_duplicates_have_the_distance_to_the_nearest_other_places() -> None:
    points = np.random.default_rng(2).uniform(size=(50, 3))
    crowd = np.concatenate([points, points[:20], points[:20], points[:20], points[:20]])
    assert np.allclose(neighbour_distance(crowd)[:50], neighbour_distance(points), rtol=1e-12)
    assert np.array_equal(neighbour_distance(crowd)[50:70], neighbour_distance(crowd)[:20])


@pytest.mark.parametrize(("points", "distance"), [
    (np.zeros((1, 3)), 1.0), (np.zeros((9, 3)), 1.0), (np.array([[0.0, 0, 0], [0, 0, 2], [0, 0, 2]]), 2.0),
    (np.empty((0, 3)), 0.0),
])  # fmt: skip
def test_few_places_have_a_distance_too(points: np.ndarray, distance: float) -> None:
    assert np.array_equal(neighbour_distance(points), np.full(len(points), distance))


def test_points_as_good_as_equal_do_not_vanish() -> None:
    points = np.random.default_rng(3).uniform(size=(100, 3))
    points[:10] = points[0] + np.arange(10)[:, None] * 1e-12
    distances = neighbour_distance(points)
    assert distances[:10].min() == pytest.approx(1e-3 * np.median(distances))


def test_the_order_of_the_points_changes_nothing() -> None:
    points = np.random.default_rng(4).uniform(size=(500, 3)).round(1)
    order = np.random.default_rng(5).permutation(500)
    assert np.array_equal(neighbour_distance(points[order]), neighbour_distance(points)[order])


@pytest.mark.all
def test_memory_grows_by_little_more_than_the_points_take() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", MEASURE, "100000"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    before, after = map(int, ended.stdout.split())
    assert (after - before) / 1024 < 60  # MiB; 2.4 of them are the points
