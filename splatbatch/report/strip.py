"""The photographs whose colours differ most, before and after colour correction.

Pictures are made while the report is written: few, small, decoded at a JPEG's reduced size, and none after MOST_S.
"""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray

from splatbatch.files import fault_of_name
from splatbatch.report.facts import OutlierPhotograph, ReportedColors
from splatbatch.report.pictures import PictureBudget, data_url
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.colors.correction import ColorCorrection
from splatbatch.scene.colors.normalised_copies import normalised_copies
from splatbatch.scene.photos.headers import opened_photograph, pixels_of

LONG_SIDE_PX = 176
JPEG_QUALITY = 80
MOST_PIXELS = 16_000_000
"""Most pixels of a photograph that is no JPEG and so is decoded in full, which takes a quarter of a second."""
MOST_S = 4.0
"""Seconds after which no further photograph is decoded."""
Folders = Callable[[str], Sequence[Path]]
"""Returns the folders that may hold the photographs of a scene, by the scene's name."""
Pair = tuple[bytes, bytes, tuple[int, int]]
"""A photograph before and after colour correction, as JPEGs, and their width and height."""
Strip = list[tuple[OutlierPhotograph, list[str], dict[str, int]]]
"""Photographs, each with data URLs of both pictures, and their width and height."""


def color_strip(scene: ReportedColors, folders: Sequence[Path], budget: PictureBudget, ends_at: float) -> Strip:
    """Return pictures of a scene's most different photographs, before and after colour correction.

    Photographs that cannot be read, or for which time or budget run out, are left out.

    Args:
        scene: the photographs, and the correction of each.
        folders: folders that may hold them.
        budget: size that pictures may take.
        ends_at: time by the monotonic clock after which no photograph is decoded.
    """
    strip: Strip = []
    for photo in scene.photographs if folders else ():
        pair = _pair(photo.name, ColorCorrection.of(photo.tone), folders) if time.monotonic() < ends_at else None
        if pair and budget.take(*pair[:2]):
            strip.append((photo, [*map(data_url, pair[:2])], {"width": pair[2][0], "height": pair[2][1]}))
    return strip


def _pair(name: str, tone: ColorCorrection, folders: Sequence[Path]) -> Pair | None:
    """Return small pictures of a photograph before and after correction; None if it cannot be found or decoded."""
    if fault_of_name(PurePath(name).as_posix()):
        return None
    for folder in folders:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's
            try:
                if (folder / name).is_file() and (pair := decoded_pair(folder / name, tone)):
                    return pair
            except Exception:  # noqa: BLE001, S112 - Pillow may raise any error on damaged files
                continue
    return None


def decoded_pair(path: Path, tone: ColorCorrection) -> Pair | None:
    """Return small pictures of a photograph before and after correction; None if it is no JPEG and too large."""
    with opened_photograph(path) as file:
        if file.format != "JPEG" and file.width * file.height > MOST_PIXELS:
            return None
        file.draft("RGB", (LONG_SIDE_PX, LONG_SIDE_PX))
        picture = pixels_of(file)
    picture.thumbnail((LONG_SIDE_PX, LONG_SIDE_PX))
    width, height = picture.size
    middle = Camera(0, "PINHOLE", width, height, (float(width), float(width), width / 2, height / 2))
    pixels = np.asarray(picture)
    return _jpeg(pixels), _jpeg(normalised_copies(pixels, tone, middle)), (width, height)


def _jpeg(pixels: NDArray[np.uint8]) -> bytes:
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "JPEG", quality=JPEG_QUALITY)
    return written.getvalue()
