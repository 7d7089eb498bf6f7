"""The sky of the photographs: its colour, where some of them show it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.publish.source import Published
from splatbatch.report.viewer.initial_camera import Vector
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.photos.folders import Folders, Found
from splatbatch.scene.photos.pixels import opened_photograph
from splatbatch.scene.photos.resolution import stored_photographs

MOST_PHOTOS = 12
LEVEL = 0.35
"""Sine of the angle by which a photograph may look down and still show the sky at its upper edge."""
TOP = 0.04
"""Of a photograph's height."""
SIZE_PX = 256
NEUTRAL = (0.78, 0.82, 0.86)
"""Where no photograph looks up: the light grey of an overcast day."""
Color = tuple[float, float, float]


def sky_of(splat: Published, up: Vector) -> tuple[Color, bool]:
    """Return the colour of the sky, 0 to 1, and whether photographs say so."""
    try:
        images = read_images(Path(splat.views.sparse))
    except (SceneError, OSError, ValueError):
        return NEUTRAL, False
    level = [image for image in images if image.rotation()[2] @ up > -LEVEL]
    folder, folders = stored_photographs(Path(splat.views.images))[0], Folders()
    chosen = level[:: max(1, len(level) // MOST_PHOTOS)][:MOST_PHOTOS]
    files = [place.path for image in chosen if isinstance(place := folders.locate(folder, image.name), Found)]
    colors = [color for file in files if (color := _top_of(file)) is not None]
    if not colors:
        return NEUTRAL, False
    red, green, blue = np.median(colors, axis=0).tolist()
    return (red, green, blue), True


def _top_of(file: str) -> Color | None:
    """Return the middle colour of a photograph's upper edge."""
    try:
        with opened_photograph(file) as picture:
            picture.draft("RGB", (SIZE_PX, SIZE_PX))
            pixels = np.asarray(picture.convert("RGB"), dtype=np.float64) / 255
    except (OSError, ValueError, SyntaxError):
        return None
    red, green, blue = np.median(pixels[: max(1, int(TOP * len(pixels)))].reshape(-1, 3), axis=0).tolist()
    return (red, green, blue)
