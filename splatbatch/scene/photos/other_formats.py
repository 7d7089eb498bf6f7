"""Photographs that are neither JPEG nor PNG, through Pillow; and the proof by decoding that a file is cut."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import Any

from splatbatch.files import open_regular
from splatbatch.scene.photos.photo import Header, Photo, Trait, Unreadable
from splatbatch.scene.photos.pixels import opened_photograph

_HEIC_BRANDS = {b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"heim", b"heis"}
DEEP_MODES = {"I", "F", "I;16", "I;16B", "I;16L", "I;16N"}
_ALPHA_MODES = {"RGBA", "LA", "PA", "RGBa", "La"}
_STRIPS = ((273, 279), (324, 325))  # TIFF 6.0: offsets and byte counts of strips, of tiles


def read_other(path: Path) -> Header:
    """Return the header of a TIFF, WebP, HEIC or other file that Pillow knows."""
    with open_regular(path) as file:
        head = file.read(16)
    if head[4:8] == b"ftyp" and head[8:12] in _HEIC_BRANDS and not _has_heif():
        return Unreadable("unreadable", "HEIC, which needs the package pillow_heif")
    if head[:4] == b"RIFF" and int.from_bytes(head[4:8], "little") + 8 > path.stat().st_size:
        return Unreadable("truncated", "its RIFF header claims more bytes than the file has")
    try:
        with opened_photograph(path) as image:
            problem = _strip_problem(path, image)
            return Unreadable("truncated", problem) if problem else _photo(image)
    except Exception as error:  # noqa: BLE001 - Pillow's plug-ins raise whatever the bytes lead them to
        return Unreadable("unreadable", _spoken(error))


def decode_problem(path: Path) -> str:
    """Return why a file cannot be decoded; empty if it can."""
    try:
        with opened_photograph(path) as image:
            image.load()
    except Exception as error:  # noqa: BLE001 - see read_other
        return _spoken(error)
    return ""


def _has_heif() -> bool:
    with contextlib.suppress(ImportError):
        importlib.import_module("pillow_heif").register_heif_opener()
        return True
    return False


def _photo(image: Any) -> Photo:
    """Return what Pillow found; it turns a TIFF by its orientation when it loads it, so its size is the turned one."""
    orientation = image.getexif().get(0x0112, 1)
    checks: dict[Trait, bool] = {
        "cmyk": image.mode == "CMYK",
        "deep": image.mode in DEEP_MODES or max(_bits(image)) > 8,
        "alpha": image.mode in _ALPHA_MODES or "transparency" in image.info,
        "animated": getattr(image, "n_frames", 1) > 1,
    }
    traits = tuple(trait for trait, is_so in checks.items() if is_so)
    width, height = image.size
    return Photo(width, height, orientation if orientation in range(1, 9) else 1, traits)


def _bits(image: Any) -> tuple[int, ...]:
    """Return the bits per sample; Pillow squeezes 16-bit RGB of a TIFF into 8 without a word."""
    tags = getattr(image, "tag_v2", None) or {}
    bits = tags.get(258, (8,))
    return tuple(bits) if isinstance(bits, tuple) else (int(bits),)


def _strip_problem(path: Path, image: Any) -> str:
    tags, size = getattr(image, "tag_v2", None) or {}, path.stat().st_size
    for offsets, counts in _STRIPS:
        for offset, count in zip(tags.get(offsets, ()), tags.get(counts, ()), strict=False):
            if offset + count > size:
                return f"pixels up to byte {offset + count}, but only {size} bytes"
    return ""


def _spoken(error: Exception) -> str:
    text = str(error).split("\n")[0]
    return "no image format that Pillow knows" if "cannot identify" in text else text or type(error).__name__
