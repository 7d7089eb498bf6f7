"""The pictures of the report: the right views, small files, the error where it is."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from cpu_scenes import trainable, view
from PIL import Image

from splatbatch.config import Recipe
from splatbatch.files import read_json
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.training.evaluation.evaluate import evaluate
from splatbatch.training.evaluation.pictures import LONGEST_PX, error, picture_views, ranked, to_jpeg
from splatbatch.training.photos.posed_image import PosedImage


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    return AttemptFolder(tmp_path)


def photos(num: int, width: int = 48, height: int = 32) -> tuple[PosedImage, ...]:
    pixels = [torch.full((height, width, 3), 60 * i, dtype=torch.uint8) for i in range(num)]
    seen = view(width=width, height=height)
    return tuple(PosedImage(f"sub/img{i}.png", seen, pixels[i]) for i in range(num))


def write(folder: AttemptFolder, shown: tuple[PosedImage, ...]) -> dict[str, object]:
    gaussians = trainable(dtype=torch.float32)
    metrics = evaluate(gaussians, shown, Recipe())
    by_name = {photo.name: photo for photo in shown}
    picture_views(folder, lambda name: (gaussians, by_name[name]), metrics, Recipe())
    return read_json(folder.views) or {}


@pytest.mark.parametrize(
    ("num", "ranks"), [(0, set()), (1, {"worst"}), (2, {"worst", "best"}), (4, {"worst", "median", "best"})]
)
def test_the_worst_the_median_and_the_best_view_are_pictured(folder: AttemptFolder, num: int, ranks: set[str]) -> None:
    views = write(folder, photos(num))
    assert set(views) - {"format"} == ranks
    assert len(list(folder.path.glob("renders/*.jpg"))) == 3 * len(ranks)


def test_views_are_ranked_by_their_psnr() -> None:
    images = {
        name: {"psnr": value} for name, value in (("a", 25.0), ("b", 19.0), ("c", 30.0), ("d", 22.0), ("e", 23.0))
    }
    assert ranked(images) == {"worst": "b", "median": "e", "best": "c"}


@pytest.mark.parametrize(("width", "height"), [(960, 640), (600, 1200), (30, 20)])
def test_pictures_are_small_and_keep_their_shape(folder: AttemptFolder, width: int, height: int) -> None:
    views = write(folder, photos(1, width, height))
    for kind in ("photo", "render", "error"):
        with Image.open(folder.picture("worst", kind)) as picture:
            assert max(picture.size) <= LONGEST_PX
            assert picture.size == (views["worst"]["width"], views["worst"]["height"])
            assert picture.width / picture.height == pytest.approx(width / height, rel=0.02)


def test_even_noise_makes_no_large_file() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (320, 480, 3), dtype=np.uint8)
    assert len(to_jpeg(Image.fromarray(noise // 3 + 80), 20_000)) < 40_000
    assert len(to_jpeg(Image.new("RGB", (480, 320)), 20_000)) < 5000


def test_the_error_is_bright_where_the_pictures_differ() -> None:
    target, render = np.zeros((2, 4, 4, 3), dtype=np.uint8)
    render[:, :2] = 200
    drawn = np.asarray(error(Image.fromarray(target), Image.fromarray(render)))
    assert drawn[:, :2].min() > 150
    assert drawn[:, 2:].max() < 10


def test_a_full_disk_costs_only_the_pictures(folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("splatbatch.training.evaluation.pictures.write_whole", full)
    assert write(folder, photos(2)) == {}


def test_a_picture_is_a_jpeg_without_metadata() -> None:
    data = to_jpeg(Image.new("RGB", (8, 8)), 1000)
    with Image.open(io.BytesIO(data)) as picture:
        assert (picture.format, len(picture.getexif())) == ("JPEG", 0)


def test_while_it_trains_the_view_in_the_middle_alone_is_pictured(tmp_path: Path) -> None:
    folder, shown = AttemptFolder(tmp_path), photos(4)
    gaussians, by_name = trainable(dtype=torch.float32), {photo.name: photo for photo in shown}
    metrics = evaluate(gaussians, shown, Recipe())
    picture_views(folder, lambda name: (gaussians, by_name[name]), metrics, Recipe(), most=1)
    assert list(folder.read_views()) == ["median"]
