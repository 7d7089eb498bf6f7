"""Where a dot of light lies in a picture."""

from __future__ import annotations

import numpy as np


def middle_of_light(pixels: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return the middle of the light [2] within 9 pixels of a place, of pixels [H, W, 3]."""
    left, top = np.floor(place - 9).astype(int)
    part = pixels[top : top + 19, left : left + 19, 0].astype(float)
    v, u = np.mgrid[: part.shape[0], : part.shape[1]] + 0.5
    return np.array([left + (part * u).sum() / part.sum(), top + (part * v).sum() / part.sum()])
