"""Where each photograph has a camera of its own, as most photogrammetry programs write them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from geometric_faults import FAULTS
from scipy.spatial.transform import Rotation
from whole_scene import walked, with_own_cameras

from splatbatch.scene.audit.table import render


@pytest.mark.parametrize("has_own", [False, True])
def test_a_pose_turned_by_10_degrees_is_told_as_such(has_own: bool) -> None:
    scene = walked("PINHOLE", [900.0, 905, 512, 384], seed=5)
    if has_own:
        with_own_cameras(scene)
    image = scene.images[3]
    matrix = Rotation.from_euler("y", 10, degrees=True).as_matrix() @ image.rotation()
    x, y, z, w = Rotation.from_matrix(matrix).as_quat()
    scene.images[3] = replace(image, quat=(w, x, y, z), translation=tuple(-matrix @ image.center()))
    assert [one.kind for one in scene.audit().findings] == ["wrong_pose"]


def test_cameras_of_one_photograph_that_are_alike_share_a_row() -> None:
    table = render(with_own_cameras(walked("PINHOLE", [900.0, 905, 512, 384], seed=5)).audit())[0]
    assert getattr(table, "row_count", 0) == 1


def test_a_share_of_all_points_is_spelt_as_100_percent() -> None:
    scene = walked("PINHOLE", [900.0, 905, 512, 384], seed=5)
    next(fault for fault in FAULTS if fault.name == "OpenGL axes").spoil(scene)
    assert [one.message.count("100 % of the points") for one in scene.audit().errors()] == [1]
