"""Pictures of the photographs whose colours differ most, before and after colour correction.

Pictures are made while the report is written: few, small, read at reduced size, and none is begun after MOST_S seconds.
"""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray

from splatbatch.files import fault_of_name
from splatbatch.processes import num_cores
from splatbatch.report.facts import OutlierPhotograph, ReportedColors
from splatbatch.report.pictures import PictureBudget, data_url
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.colors.correction import ColorCorrection
from splatbatch.scene.colors.normalised_copies import normalised_copies
from splatbatch.scene.photos.headers import opened_photograph, pixels_of

LONG_SIDE_PX = 176
JPEG_QUALITY = 80
MOST_PIXELS = 16_000_000
"""Most pixels of a photograph that is no JPEG; such a file is decoded in full, in about a quarter of a second."""
MOST_S = 4.0
"""Time for all these pictures of a report, in seconds; after that no further photograph is decoded."""
Folders = Callable[[str], Sequence[Path]]
"""Function that returns the folders that may hold the photographs of a scene, by its name; "": of all patches."""
Pair = tuple[bytes, bytes, dict[str, int]]
"""A photograph before and after colour correction, as two JPEGs, and "width" and "height" of both in pixels."""
Strip = list[tuple[OutlierPhotograph, list[str], dict[str, int]]]
"""Photographs, each with the data URLs of two pictures, before and after, and their "width" and "height" in pixels."""


def color_strip(scene: ReportedColors, folders: Sequence[Path], budget: PictureBudget, ends_at: float) -> Strip:
    """Return pictures of a scene's most different photographs, before and after colour correction, in their order.

    Photographs that cannot be read, or for which time or budget run out, are left out; nothing is raised.

    Args:
        scene: the photographs, and the correction of each.
        folders: folders that may hold the photographs, tried in order; empty: the result is empty.
        budget: bytes of pictures that the page may take; it shrinks by the returned pictures.
        ends_at: time in seconds by time.monotonic() from which on no further photograph is decoded.
    """
    with warnings.catch_warnings(), ThreadPoolExecutor(num_cores()) as pool:
        warnings.simplefilter("ignore")  # Pillow's
        pairs = pool.map(partial(_pair, folders, ends_at), scene.photographs)
        return [
            (photo, [*map(data_url, pair[:2])], pair[2])
            for photo, pair in zip(scene.photographs, pairs, strict=True)
            if pair and budget.take(*pair[:2])
        ]


def _pair(folders: Sequence[Path], ends_at: float, photo: OutlierPhotograph) -> Pair | None:
    """Return small pictures of a photograph before and after correction; None if it cannot be found or decoded."""
    if time.monotonic() > ends_at or fault_of_name(PurePath(photo.name).as_posix()):
        return None
    for path in (folder / photo.name for folder in folders):
        with suppress(Exception):  # Pillow may raise any error on damaged files; another folder may hold a sound one
            if path.is_file() and (pair := decoded_pair(path, ColorCorrection.of(photo.tone))):
                return pair
    return None


def decoded_pair(path: Path, tone: ColorCorrection) -> Pair | None:
    """Return small pictures of a photograph before and after correction, at most LONG_SIDE_PX on each side.

    None if the photograph is no JPEG and has more than MOST_PIXELS.

    Args:
        path: file of the photograph.
        tone: colour correction of the photograph.

    Raises:
        OSError: the file cannot be read or decoded; damaged files may raise any other error of Pillow.
    """
    with opened_photograph(path) as file:
        if file.format != "JPEG" and file.width * file.height > MOST_PIXELS:
            return None
        file.draft("RGB", (LONG_SIDE_PX, LONG_SIDE_PX))
        picture = pixels_of(file)
    picture.thumbnail((LONG_SIDE_PX, LONG_SIDE_PX))
    width, height = picture.size
    middle = Camera(0, "PINHOLE", width, height, (float(width), float(width), width / 2, height / 2))
    pixels = np.asarray(picture)
    return _jpeg(pixels), _jpeg(normalised_copies(pixels, tone, middle)), {"width": width, "height": height}


def _jpeg(pixels: NDArray[np.uint8]) -> bytes:
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "JPEG", quality=JPEG_QUALITY)
    return written.getvalue()
