from __future__ import annotations

import io
import random
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image, PngImagePlugin

from splatbatch.scene.photos.headers import Header, Headers, ImageHeader, Unreadable


def read_header(path: Path) -> Header:
    headers = Headers()
    headers.read([str(path)])
    return headers.of(str(path))


def encoded(mode: str, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((60, 40), 80).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    tags[0x010F] = "A maker"
    return tags


def header(folder: Path, content: bytes) -> ImageHeader | Unreadable:
    path = folder / "photograph"
    path.write_bytes(content)
    return read_header(path)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "BMP", "GIF"])
def test_sizes_are_what_pillow_says(tmp_path: Path, kind: str) -> None:
    assert header(tmp_path, encoded("RGB", kind)) == ImageHeader(60, 40)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_is_read_and_not_applied(tmp_path: Path, kind: str, orientation: int) -> None:
    assert header(tmp_path, encoded("RGB", kind, exif=exif(orientation))) == ImageHeader(60, 40, orientation)


@pytest.mark.parametrize(
    "options", [{"progressive": True}, {"comment": b"x" * 60_000}, {"icc_profile": b"i" * 150_000}]
)
def test_frames_of_a_jpeg_are_found_behind_whatever_stands_before(tmp_path: Path, options: dict[str, object]) -> None:
    assert header(tmp_path, encoded("RGB", "JPEG", **options)) == ImageHeader(60, 40)


@pytest.mark.parametrize("tail", [bytes(20), b"\r\n", b"motion photograph" * 999])
def test_what_follows_the_end_of_a_jpeg_does_not_spoil_it(tmp_path: Path, tail: bytes) -> None:
    assert header(tmp_path, encoded("RGB", "JPEG") + tail) == ImageHeader(60, 40)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_cut_file_is_truncated_wherever_it_is_cut(tmp_path: Path, kind: str) -> None:
    content = encoded("RGB", kind)
    for share in (0.02, 0.3, 0.6, 0.9, 0.99):
        found = header(tmp_path, content[: int(len(content) * share)])
        assert isinstance(found, Unreadable), (kind, share)
        assert found.fault in {"truncated", "unreadable"}


def test_transparency_and_depth_of_a_png_are_traits(tmp_path: Path) -> None:
    assert header(tmp_path, encoded("LA", "PNG")) == ImageHeader(60, 40, 1, ("alpha",))
    assert header(tmp_path, encoded("P", "PNG", transparency=0)) == ImageHeader(60, 40, 1, ("alpha",))
    assert header(tmp_path, encoded("I;16", "PNG")) == ImageHeader(60, 40, 1, ("deep",))


def test_long_texts_before_the_pixels_of_a_png_are_skipped(tmp_path: Path) -> None:
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Comment", "x" * 50_000)
    assert header(tmp_path, encoded("RGB", "PNG", pnginfo=texts)) == ImageHeader(60, 40)


def test_a_broken_exif_block_does_not_spoil_the_photograph(tmp_path: Path) -> None:
    content = encoded("RGB", "JPEG", exif=exif(6))
    assert header(tmp_path, content.replace(b"MM\0*\0\0\0\x08", b"MM\0*\xff\xff\xff\xff")) == ImageHeader(60, 40)


def test_a_missing_file_and_a_folder_are_faults(tmp_path: Path) -> None:
    assert read_header(tmp_path / "none") == Unreadable("missing", "no such file")
    assert read_header(tmp_path) == Unreadable("unreadable", "not a regular file")


def test_heic_without_its_library_says_what_is_needed(tmp_path: Path) -> None:
    found = header(tmp_path, b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(99))
    assert isinstance(found, Unreadable)
    assert found.fault == "unreadable"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_flipped_bytes_never_raise(tmp_path: Path, kind: str) -> None:
    rng, content = random.Random(1), encoded("RGB", kind, exif=exif(6))
    for _ in range(150):
        spoilt = bytearray(content)
        for _ in range(3):
            spoilt[rng.randrange(min(len(spoilt), 200))] = rng.randrange(256)
        assert isinstance(header(tmp_path, bytes(spoilt)), ImageHeader | Unreadable)


OPEN_A_TIFF = """
import sys, threading
from PIL import Image
from splatbatch.scene.photos.headers import opened_photograph

class Formats(list):
    def copy(self):
        other = threading.Thread(target=Image.init)
        other.start()
        other.join()
        return super().copy()

Image.preinit()
Image.ID = Formats(Image.ID)
with opened_photograph(sys.argv[1]) as image:
    print(image.format)
"""


@pytest.mark.contract
def test_a_tiff_is_read_while_another_thread_registers_its_reader(tmp_path: Path) -> None:
    (tmp_path / "a.tif").write_bytes(encoded("RGB", "TIFF"))
    command = [sys.executable, "-c", OPEN_A_TIFF, str(tmp_path / "a.tif")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("TIFF\n", "")
