"""Photographs and masks opened by Pillow: regular files alone, of a bounded size, whatever their headers claim."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from splatbatch.files import MIB, open_regular

if TYPE_CHECKING:
    from PIL import Image

MOST_PHOTO_BYTES = 8192 * MIB
"""The largest aerial cameras write 3 GiB without compression."""
MOST_PIXELS = 1 << 30
"""Decoded, they are 3 GiB; a header of 30 bytes can claim four times as many."""


@contextmanager
def opened_photograph(path: str | Path) -> Iterator[Image.Image]:
    """Open a photograph; its pixels are not decoded yet.

    Raises:
        OSError: it cannot be opened, is no regular file, or larger than any photograph.
        Exception: whatever Pillow's plug-ins raise for what is no photograph.
    """
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # survey cameras do have more pixels than Pillow's "bomb" limit; ours is below
    with open_regular(path, MOST_PHOTO_BYTES) as file, Image.open(file) as image:
        if image.width * image.height > MOST_PIXELS:
            sides = f"{image.width}x{image.height} pixels, {MOST_PIXELS:,} are decoded at most"
            raise OSError(errno.EFBIG, sides, str(path))
        yield image
