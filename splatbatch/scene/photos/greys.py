"""Grey values of a photograph at some of its pixels, from the smallest form in which it can be decoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.photos.pixels import opened_photograph

Greys = NDArray[np.uint8]
_LEAST_SIDE = 400  # px: JPEG is decoded at an eighth, a quarter or a half where that leaves more


def decode_grey(path: str | Path, least_side: int = _LEAST_SIDE) -> Greys | None:
    """Return a photograph in grey [H, W], smaller where that is quicker; None where it cannot be decoded."""
    try:
        with opened_photograph(path) as image:
            factor = max(1, min(image.size) // least_side)
            image.draft("L", (image.width // factor, image.height // factor))
            return np.asarray(image.convert("L"))
    except Exception:  # noqa: BLE001 - Pillow's plug-ins raise whatever the bytes lead them to
        return None


def greys_at(picture: Greys | None, shares: Floats) -> Floats:
    """Return the grey values [N] at places given as shares of both sides, [N, 2]; NaN outside."""
    found = np.full(len(shares), np.nan)
    if picture is None:
        return found
    height, width = picture.shape
    places = np.floor(shares * (width, height)).astype(np.int64)
    is_inside = ((places >= 0) & (places < (width, height))).all(axis=1)
    found[is_inside] = picture[places[is_inside, 1], places[is_inside, 0]]
    return found


def correlation(one: Floats, other: Floats) -> float:
    """Return the correlation of two rows of numbers where both are known; NaN where one is constant there."""
    usable = np.isfinite(one) & np.isfinite(other)
    if not usable.any():
        return float("nan")
    a, b = (values[usable] - values[usable].mean() for values in (one, other))
    size = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum() / size) if size else float("nan")
