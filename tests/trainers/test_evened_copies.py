"""Evened copies for external trainers: their pixels, their form, and what is said where a photograph is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from coloured import coloured, shade
from external_runs import RUN, recipe
from fake_batch import QUARRY
from PIL import Image
from planted import rendered

from splatbatch.errors import SceneError
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.scene.colmap.reconstruction import read_cameras
from splatbatch.scene.colors.correction import ColorCorrection
from splatbatch.scene.colors.normalised_copies import normalised_copies
from splatbatch.scene.patches import Patch
from splatbatch.trainers import open_trainer

if TYPE_CHECKING:
    from fake_batch import FakeBatch

NAME = "left/0001.jpg"
TONE = ColorCorrection((1.25, 0.9, 0.8), (-0.2, -0.1))
ORIENTATION = 0x0112


def quarry(**tones: ColorCorrection) -> Patch:
    return Patch("p0", QUARRY / "sparse/0", QUARRY / "images", tones=tones)


def staged(patch: Patch, tmp_path: Path, word: str = "{scene}") -> tuple[Path, tuple[str, ...]]:
    folder = AttemptFolder(tmp_path / "attempt-01")
    folder.path.mkdir()
    argv = open_trainer(recipe(command=["train", word])).command(patch, folder)
    return folder.staging / "images", argv


def pixels(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB")).astype(float)


def test_a_copy_is_its_photograph_divided_by_its_tone(tmp_path: Path) -> None:
    images, _ = staged(quarry(**{NAME: TONE}), tmp_path)
    camera = read_cameras(QUARRY / "sparse/0")[1]
    back = rendered(pixels(images / NAME), TONE, (camera.cx, camera.cy)).astype(float)
    original = pixels(QUARRY / "images" / NAME)
    assert np.median(np.abs(back - original)) <= 1
    assert not (images / NAME).is_symlink()


def test_photographs_without_a_tone_are_linked(tmp_path: Path) -> None:
    images, _ = staged(quarry(**{NAME: TONE}), tmp_path)
    assert (images / "left/0002.jpg").resolve() == (QUARRY / "images/left/0002.jpg").resolve()


def test_a_program_that_is_told_of_the_photographs_alone_gets_the_copies_too(tmp_path: Path) -> None:
    images, argv = staged(quarry(**{NAME: TONE}), tmp_path, "{images}")
    assert (argv[1], (images / NAME).is_file()) == (str(images), True)


def test_without_tones_everything_is_as_it_was(tmp_path: Path) -> None:
    images, _ = staged(quarry(), tmp_path)
    assert images.is_symlink()


def small(tmp_path: Path, name: str) -> Patch:
    gains = {name: 1.0, "b.png": 1.0}
    return replace(
        coloured(tmp_path / "made", gains).patch(), tones=dict.fromkeys(gains, ColorCorrection((1.25, 1.25, 1.25)))
    )


def test_a_jpeg_stays_one_with_its_exif_and_a_png_stays_one(tmp_path: Path) -> None:
    patch = small(tmp_path, "a.jpg")
    exif = Image.Exif()
    exif[ORIENTATION] = 3
    Image.open(patch.images / "a.jpg").save(patch.images / "a.jpg", exif=exif)
    images, _ = staged(patch, tmp_path)
    with Image.open(images / "a.jpg") as jpeg, Image.open(images / "b.png") as png:
        assert (jpeg.format, jpeg.getexif()[ORIENTATION], png.format) == ("JPEG", 3, "PNG")
    assert pixels(images / "b.png").mean() == pytest.approx(80, rel=0.01)


def test_a_missing_photograph_is_named(tmp_path: Path) -> None:
    patch = small(tmp_path, "a.png")
    (patch.images / "a.png").unlink()
    with pytest.raises(SceneError, match=r"a\.png: missing image"):
        staged(patch, tmp_path)


def test_what_is_white_stays_white() -> None:
    camera = read_cameras(QUARRY / "sparse/0")[1]
    picture = np.full((2, 2, 3), 255, np.uint8)
    picture[0, 0] = (200, 100, 50)
    found = normalised_copies(picture, ColorCorrection((2.0, 1.0, 0.5)), camera)
    assert (found[0, 0].tolist(), found[1, 1].tolist()) == ([100, 100, 100], [255, 255, 255])


def test_a_batch_stages_evened_copies_where_its_yaml_asks_for_them(batch: FakeBatch) -> None:
    names = [f"img{i}.png" for i in range(9)]
    program = {**RUN, "env": {"SCENE": "{scene}"}, "ladders": {}}
    batch.make("p0", training={"trainer": "foreign"}, trainers={"foreign": program})
    coloured(batch.folder / "patches/p0", {name: 0.7 + 0.08 * number for number, name in enumerate(names)})
    for number, name in enumerate(names):
        shade(batch.folder / "images" / name, 0.7 + 0.08 * number)
    assert "colours" not in batch.run("train").stderr
    batch.change(training={"colors": "even"})
    assert "colours: 9 photographs" in batch.run("retry", "p0", "--force").stderr
    assert batch.result("p0")["tones"] == json.loads((batch.output / "colors.json").read_text())["together"]["tones"]
    staging = batch.output / "patches/p0/attempt-02/scene"
    assert (staging.is_dir(), (staging / "images").exists()) == (True, False)
