"""At which size photographs are trained: `full`, a half, a quarter, an eighth, or what the field's rule says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from splatbatch.scene.photos.folders import is_folder
from splatbatch.scene.photos.sizes import Size

DIVISORS = {"full": 1, "1/2": 2, "1/4": 4, "1/8": 8}
LONGEST_SIDE_PX = 1600
"""The rule of 3DGS (Kerbl 2023; its reference program resizes wider photographs to 1600 px), here by whole divisors."""


def divisor_of(resolution: str, sizes: Iterable[Size]) -> int:
    """Return by how much the sides of photographs of these sizes are divided.

    `auto` is the smallest of 1, 2, 4 and 8 that leaves no side longer than 1600 px; 8 if none does.
    """
    if resolution != "auto":
        return DIVISORS[resolution]
    longest = max((max(size) for size in sizes), default=0)
    return next((each for each in DIVISORS.values() if longest <= each * LONGEST_SIDE_PX), max(DIVISORS.values()))


def stored_photographs(images: Path) -> tuple[Path, int]:
    """Return where photographs that should lie in `images` do, and how much smaller their sides are there.

    That is there, else in the largest of images_2, images_4 and images_8; a folder that is nowhere is `images` itself.
    """
    copies = ((images.with_name(f"{images.name}_{divisor}"), divisor) for divisor in DIVISORS.values() if divisor > 1)
    places = ((images, 1), *copies)
    return next((place for place in places if is_folder(place[0])), places[0])
