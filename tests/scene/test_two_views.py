"""Two pictures registered to each other: photographs whose poses are known; and pictures that show nothing."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image as Pillow
from sick_trainings import quarry

from splatbatch.scene.colmap.reconstruction import Reconstruction, read_reconstruction
from splatbatch.scene.colmap.types import Image
from splatbatch.scene.two_views import RelativePose, SiftFeatures, features_of, register


@pytest.fixture(scope="module")
def model() -> Reconstruction:
    return read_reconstruction(quarry("p0").sparse)


def features(model: Reconstruction, image: Image) -> SiftFeatures:
    camera = model.cameras[image.camera_id]
    K = np.array([[camera.fx, 0, camera.cx], [0, camera.fy, camera.cy], [0, 0, 1.0]])
    with Pillow.open(quarry("p0").images / image.name) as photo:
        return features_of(np.asarray(photo.convert("L")), K)


def test_photographs_say_how_their_cameras_stand(model: Reconstruction) -> None:
    one, other = sorted(model.images, key=lambda image: image.name)[:3:2]
    found = register(features(model, one), features(model, other))
    assert isinstance(found, RelativePose) and len(found.here) == len(found.there) > 50
    difference = found.rotation @ one.rotation() @ other.rotation().T
    assert np.degrees(np.arccos((np.trace(difference) - 1) / 2)) < 1.0


def test_a_picture_that_shows_nothing_cannot_be_registered(model: Reconstruction) -> None:
    empty = features_of(np.full((40, 40), 128, np.uint8), np.eye(3))
    assert empty.xy.shape == (0, 2)
    assert register(features(model, model.images[0]), empty) == "0 matches"
