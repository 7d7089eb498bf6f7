"""Where one stands in 3D: at a photograph, the sky above, whatever axes COLMAP chose."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.report.viewer.viewer import VIEWER_UP, find_initial_camera, turn_upright, up_of
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.rotations import rotate

QUARRY = Path(__file__).parents[2] / "examples" / "quarry" / "sparse" / "0"


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    (tmp_path / "settings.json").write_text(json.dumps({"sparse": str(QUARRY)}))
    (tmp_path / "renders").mkdir()
    return AttemptFolder(tmp_path)


def test_every_camera_of_a_flight_is_above_what_it_sees() -> None:
    images = read_images(QUARRY)
    up = up_of(images)
    assert np.linalg.norm(up) == pytest.approx(1)
    assert all(image.rotation()[2] @ up < -0.2 for image in images)


@pytest.mark.parametrize("up", [(0, 1, 0), (0, -1, 0), (1, 0, 0), (0, 0, 1), (0.6, 0, -0.8)])
def test_the_sky_is_turned_to_where_the_viewer_has_it(up: tuple[float, float, float]) -> None:
    turn = turn_upright(np.array(up, dtype=float))
    assert np.allclose(rotate(np.array([up]), turn), [VIEWER_UP], atol=1e-12)
    assert np.linalg.norm(turn) == pytest.approx(1)


def test_one_stands_where_the_median_view_was_taken(folder: AttemptFolder) -> None:
    image = read_images(QUARRY)[3]
    folder.views.write_text(json.dumps({"median": {"name": image.name}}))
    found = find_initial_camera(folder)
    assert found is not None
    assert np.allclose(found.eye, image.center())
    numbers = [float(number) for number in found.looking_at(np.zeros(3)).split()]
    assert numbers[1] > numbers[4]  # y is up in the viewer: the eye is above what it looks at


@pytest.mark.parametrize("settings", ["", "{}", '{"sparse": 5}', '{"sparse": "/nowhere"}', "[]"])
def test_where_the_reconstruction_is_gone_nobody_knows_where_to_stand(tmp_path: Path, settings: str) -> None:
    (tmp_path / "settings.json").write_text(settings)
    assert find_initial_camera(AttemptFolder(tmp_path)) is None
    assert find_initial_camera(None) is None
