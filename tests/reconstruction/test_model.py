"""What is written of a model, and of its photographs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from geotagged import QUARRY, quarry, tag
from PIL import Image

from splatbatch.reconstruction.model import undistort


def test_copies_without_distortion_keep_no_orientation_that_turns_them(tmp_path: Path) -> None:
    turned, usual = "left/0001.jpg", "left/0002.jpg"
    every = [one.relative_to(QUARRY / "images").as_posix() for one in (QUARRY / "images").rglob("*.jpg")]
    quarry(images := tmp_path / "photos", every)
    (images / turned).unlink()
    tag(QUARRY / "images" / turned, images / turned, None, t274=6)
    undistort(QUARRY / "sparse/0", images, tmp_path / "out", threads=1)
    for name in (turned, usual):
        with Image.open(tmp_path / "out/images" / name) as made, Image.open(QUARRY / "images" / name) as given:
            assert made.getexif().get(274, 1) == 1 and made.size == given.size
            assert np.abs(np.asarray(made, float) - np.asarray(given, float)).mean() < 2
