"""Whatever reads pixels reads the same 8 bits from files of every mode: a grey of 127 stays one."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image as Pillow

from splatbatch.errors import SceneError
from splatbatch.publish.stage import _top_of
from splatbatch.reconstruction.features import look
from splatbatch.report.strip import decoded_pair
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.colors.correction import NEUTRAL
from splatbatch.scene.colors.normalised_copies import _write
from splatbatch.scene.colors.observations import SCALE, TrackedPhoto, sample
from splatbatch.scene.photos.headers import decode_problem
from splatbatch.scene.photos.pixels import decode_grey
from splatbatch.training.photos.decode import PhotoSource, decode

WIDTH, HEIGHT, GREY = 64, 48, 127
CAMERA = Camera(1, "PINHOLE", WIDTH, HEIGHT, (60.0, 60.0, 32.0, 24.0))
MIDDLE = np.array([[32.0, 24.0]])
FIRST, TURNED = np.array([0]), np.eye(3)
DEEP = ("I;16", "I;16B", "I")


def photograph(folder: Path, mode: str, grey: float = GREY) -> Path:
    """Return a file of one grey; deep ones hold all 16 bits of it."""
    path = folder / f"photograph.{'png' if mode in ('I;16', 'RGBA', 'LA', 'P') else 'tif'}"
    if mode in DEEP or mode == "F":
        deep = np.full((HEIGHT, WIDTH), 257 * grey)
        Pillow.fromarray(deep.astype({"I;16": "<u2", "I;16B": ">u2", "I": "<i4", "F": "<f4"}[mode])).save(path)
    else:
        Pillow.new("RGB", (WIDTH, HEIGHT), (round(grey),) * 3).convert(mode, palette=Pillow.Palette.ADAPTIVE).save(path)
    with Pillow.open(path) as opened:
        assert opened.mode == mode
    return path


def evened_copy(path: Path) -> float:
    _write(path, path.with_name(f"copy{path.suffix}"), NEUTRAL, CAMERA)
    with Pillow.open(path.with_name(f"copy{path.suffix}")) as copy:
        return float(np.asarray(copy.convert("RGB")).mean())


def test_an_evened_copy_of_a_jpeg_with_a_preview_has_the_quality_of_any_jpeg(tmp_path: Path) -> None:
    grey = np.random.default_rng(1).normal(GREY, 20, (HEIGHT, WIDTH, 3)).clip(0, 255).astype(np.uint8)
    taken, preview = Pillow.fromarray(grey), Pillow.new("RGB", (8, 8))
    taken.save(tmp_path / "drone.jpg", "MPO", save_all=True, append_images=[preview], quality=100)
    taken.save(tmp_path / "plain.jpg", quality=100)
    copies = []
    for name in ("drone", "plain"):
        _write(tmp_path / f"{name}.jpg", tmp_path / f"{name}-copy.jpg", NEUTRAL, CAMERA)
        with Pillow.open(tmp_path / f"{name}-copy.jpg") as copy:
            assert copy.format == "JPEG"
            copies.append(np.asarray(copy))
    assert np.array_equal(*copies)


def strip(path: Path) -> float:
    return float(np.asarray(Pillow.open(io.BytesIO(decoded_pair(path, NEUTRAL)[0]))).mean())  # type: ignore[index]


READERS: dict[str, Callable[[Path], float]] = {
    "trained": lambda path: decode(PhotoSource(path, CAMERA, 1)).pixels.mean(),
    "shrunk": lambda path: decode(PhotoSource(path, CAMERA, 2)).pixels.mean(),
    "likeness": lambda path: decode_grey(path, 20).mean(),  # type: ignore[union-attr]
    "colours": lambda path: sample(TrackedPhoto("a", path, CAMERA, MIDDLE, FIRST, TURNED)).mean() / SCALE,
    "evened copies": evened_copy,
    "features": lambda path: look(SimpleNamespace(images=path.parent), path.name)["brightness"],  # type: ignore[arg-type]
    "masks": lambda path: decode_grey(path).max(),  # type: ignore[union-attr]
    "report": strip,
    "sky": lambda path: 255 * _top_of(str(path))[0],  # type: ignore[index]
}


@pytest.mark.parametrize("mode", [*DEEP, "L", "LA", "P", "RGBA", "CMYK"])
@pytest.mark.parametrize("reader", READERS)
def test_a_grey_is_the_same_to_every_reader(tmp_path: Path, reader: str, mode: str) -> None:
    assert READERS[reader](photograph(tmp_path, mode)) == pytest.approx(GREY, abs=1)


@pytest.mark.parametrize("mode", DEEP)
def test_a_mask_of_16_bits_counts_where_it_is_white(tmp_path: Path, mode: str) -> None:
    (tmp_path / "a").mkdir()
    mask, picture = photograph(tmp_path / "a", mode, 60), photograph(tmp_path, "L")
    assert not decode(PhotoSource(picture, CAMERA, 1, mask)).mask.any()  # type: ignore[union-attr]
    assert sample(TrackedPhoto("a", picture, CAMERA, MIDDLE, FIRST, TURNED, mask)).max() == 0


@pytest.mark.parametrize(("mode", "grey"), [("F", GREY), ("I", 9000)])
def test_numbers_that_do_not_say_what_is_white_are_refused(tmp_path: Path, mode: str, grey: int) -> None:
    path = photograph(tmp_path, mode, grey)
    with pytest.raises(SceneError, match=r"photograph.tif: .*32 bits per channel.*save the photograph with 8 or 16"):
        decode(PhotoSource(path, CAMERA, 1))
    assert "32 bits per channel" in decode_problem(path)
