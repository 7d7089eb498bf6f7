"""Pixels of photographs and masks: whether they can be decoded, grey pictures, and their values at pixels."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from splatbatch.processes import num_cores
from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.photos.headers import decode_problem, opened_photograph, pixels_of

_AT_ONCE = 16  # files per task
Greys = NDArray[np.uint8]
FULL = 1 << 20
"""Shortest side in pixels at which no photograph is reduced; see `decode_grey`."""


def undecodable(photographs: Iterable[str | Path], threads: int | None = None) -> dict[str, str]:
    """Return the photographs that cannot be decoded, in their order: path and reason in words. Raises nothing.

    Missing files are among them. Pillow releases the interpreter's lock while it decodes, so that threads use all
    cores: decoding takes 10 to 20 ms per megapixel of JPEG and core.

    Args:
        photographs: paths; each is decoded once.
        threads: number of threads; None: one per CPU core.
    """
    paths = list(dict.fromkeys(map(str, photographs)))
    chunks = [paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE)]
    with ThreadPoolExecutor(threads or num_cores(), thread_name_prefix="decoding") as pool:
        problems = pool.map(lambda chunk: [decode_problem(Path(path)) for path in chunk], chunks)
        return {path: what for path, what in zip(paths, chain.from_iterable(problems), strict=True) if what}


def decode_grey(path: str | Path, least_side: int = FULL) -> Greys | None:
    """Return a photograph in grey, [H, W], reduced; None if the file is missing or cannot be decoded. Raises nothing.

    Args:
        path: path of the photograph.
        least_side: shortest allowed side in pixels. The photograph is reduced by a whole number that leaves its shorter
            side at least so long: the largest such, but for JPEG maybe less. Smaller photographs stay as they are, as
            all do by default.
    """
    try:
        with opened_photograph(path) as image:
            factor = max(1, min(image.size) // least_side)
            image.draft("L", (image.width // factor, image.height // factor))
            return np.asarray(pixels_of(image, "L").reduce(max(1, min(image.size) // least_side)))
    except Exception:  # noqa: BLE001 - Pillow's plug-ins raise whatever the bytes lead them to
        return None


def greys_at(picture: Greys, pixels: Floats) -> Floats:
    """Return the grey values (0 to 255) of a picture at pixels, [N]; NaN for pixels outside.

    Args:
        picture: the picture, [H, W].
        pixels: x and y, [N, 2]; fractions are cut off.
    """
    found, (height, width) = np.full(len(pixels), np.nan), picture.shape
    with np.errstate(invalid="ignore"):
        is_inside = ((pixels >= 0) & (pixels < (width, height))).all(axis=1)
    places = pixels[is_inside].astype(np.int64)
    found[is_inside] = picture[places[:, 1], places[:, 0]]
    return found


def correlation(one: Floats, other: Floats) -> float:
    """Return the correlation (-1 to 1) of two rows of numbers of one length, over the entries where both are finite.

    NaN if there is no such entry, or one of the rows is constant there.
    """
    usable = np.isfinite(one) & np.isfinite(other)
    if not usable.any():
        return float("nan")
    a, b = (values[usable] - values[usable].mean() for values in (one, other))
    size = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum() / size) if size else float("nan")
