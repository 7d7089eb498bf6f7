"""The section of the page on the colours of photographs: what was solved, and those that differ most in pictures.

Pictures are made while the report is written: few, small, from a JPEG's own eighths, and none after a few seconds.
"""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray

from splatbatch.files import fault_of_name
from splatbatch.report.facts import OutlierPhotograph, ReportedColors
from splatbatch.report.page.html import Html, join, tag
from splatbatch.report.page.pictures import PictureBudget, data_url
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.colors.correction import ColorCorrection
from splatbatch.scene.colors.normalised_copies import normalised_copies
from splatbatch.scene.photos.headers import opened_photograph, pixels_of
from splatbatch.text import plural

LONG_SIDE_PX = 176
JPEG_QUALITY = 80
MOST_PIXELS = 16_000_000
"""Of a photograph that can only be decoded whole: a quarter of a second."""
MOST_S = 4.0
"""After which no further photograph is decoded."""
Folders = Callable[[str], Sequence[Path]]
"""Where the photographs of a scene may lie."""
Jpeg = tuple[bytes, tuple[int, int]]


def color_strip(scenes: Sequence[ReportedColors], folders: Folders, budget: PictureBudget) -> Html:
    """Return what is told of the colours of each scene; nothing where none were looked at."""
    ends_at = time.monotonic() + MOST_S
    return join(part for scene in scenes for part in _scene(scene, folders(scene.scene), budget, ends_at))


def _scene(scene: ReportedColors, folders: Sequence[Path], budget: PictureBudget, ends_at: float) -> Iterator[Html]:
    if scene.scene:
        yield tag("h3", scene.scene)
    yield tag("p", scene.words[0])
    yield from (tag("p", line, class_="mark") for line in scene.words[1:])
    photos = scene.photographs
    shown = [_figure(photo, folders, budget) for photo in photos if time.monotonic() < ends_at] if folders else []
    strip = [figure for figure in shown if figure]
    if strip:
        words = "Those that differ most, as they are and evened; their gain in red, green and blue:"
        yield tag("p", words, class_="quiet")
        yield tag("div", *strip, class_="strip")
    if len(photos) > len(strip):
        words = f"{plural(len(photos) - len(strip), 'more photograph')} could not be pictured here."
        yield tag("p", words, class_="quiet")


def _figure(photo: OutlierPhotograph, folders: Sequence[Path], budget: PictureBudget) -> Html | None:
    tone = ColorCorrection.of(photo.tone)
    pair = _pair(photo.name, tone, folders)
    if pair is None or not budget.take(sum(len(jpeg) * 4 // 3 for jpeg, _ in pair)):
        return None
    images = [
        tag(
            "img",
            src=data_url(jpeg),
            alt=f"{photo.name} {how}",
            loading="lazy",
            width=size[0],
            height=size[1],
        )
        for how, (jpeg, size) in zip(("as it is", "evened"), pair, strict=True)
    ]
    gain = " ".join(f"{one:.2f}" for one in photo.gain)
    caption = tag("figcaption", tag("b", photo.name), f" {photo.words} ", tag("span", gain, class_="quiet"))
    return tag("figure", tag("div", *images), caption)


def _pair(name: str, tone: ColorCorrection, folders: Sequence[Path]) -> tuple[Jpeg, Jpeg] | None:
    """Return a photograph as it is and evened, small; None where it cannot be read, whatever is wrong with it."""
    if fault_of_name(PurePath(name).as_posix()):
        return None
    for folder in folders:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's
            try:
                if (folder / name).is_file() and (pair := _decoded(folder / name, tone)):
                    return pair
            except Exception:  # noqa: BLE001, S112 - Pillow's plug-ins raise whatever the bytes lead them to
                continue
    return None


def _decoded(path: Path, tone: ColorCorrection) -> tuple[Jpeg, Jpeg] | None:
    with opened_photograph(path) as file:
        if file.format != "JPEG" and file.width * file.height > MOST_PIXELS:
            return None
        file.draft("RGB", (LONG_SIDE_PX, LONG_SIDE_PX))
        picture = pixels_of(file)
    picture.thumbnail((LONG_SIDE_PX, LONG_SIDE_PX))
    width, height = picture.size
    middle = Camera(0, "PINHOLE", width, height, (float(width), float(width), width / 2, height / 2))
    pixels = np.asarray(picture)
    return _jpeg(pixels), _jpeg(normalised_copies(pixels, tone, middle))


def _jpeg(pixels: NDArray[np.uint8]) -> Jpeg:
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "JPEG", quality=JPEG_QUALITY)
    return written.getvalue(), (pixels.shape[1], pixels.shape[0])
