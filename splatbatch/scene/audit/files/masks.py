"""Masks: can each be read, is it as large as its photograph, and does it leave anything of it?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from splatbatch.scene.audit.findings import Finding, Sink
from splatbatch.scene.audit.photos import Shot
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.photos.decoding import is_black
from splatbatch.scene.photos.header_cache import Headers
from splatbatch.scene.photos.photo import Photo, Unreadable
from splatbatch.scene.photos.sizes import Equal, Scaled, relate, spell

_PIXELS_PER_BYTE, _HEAD = 250, 400
"""A PNG of one colour has a byte for 1000 pixels of 8 bits; a mask with fewer bytes than this is decoded."""
_MOST_DECODED = 64


def check_masks(masks: Mapping[str, Path], shots: list[Shot], headers: Headers, scribe: Sink) -> Iterator[Finding]:
    """Yield masks that cannot be read, have another shape than their photograph, or are black all over.

    Args:
        masks: the mask of each photograph that has one, by the photograph's name.
        shots: the photographs.
        headers: those of the masks among them, read already.
        scribe: writes the findings.
    """
    num_decoded = 0
    for shot in shots:
        path = masks.get(shot.image.name)
        mask = headers.of(str(path)) if path else None
        if isinstance(mask, Unreadable):
            remedy = "Copy the mask again, or remove it: a photograph without one counts as a whole."
            message = f"the mask of {shown(shot.image.name)} cannot be read: {shown(mask.what)}"
            yield scribe.note("unreadable_mask", _named(path), message, remedy)
        elif isinstance(mask, Photo) and path:
            yield from _check_shape(shot, mask, path, scribe)
            if num_decoded < _MOST_DECODED and _may_be_black(path, mask):
                num_decoded += 1
                if is_black(path):
                    message = f"is black all over: nothing of {shown(shot.image.name)} is trained"
                    remedy = (
                        "Black is ignored, white is trained: invert the mask if it means the opposite, or remove it."
                    )
                    yield scribe.note("black_mask", _named(path), message, remedy)


def _check_shape(shot: Shot, mask: Photo, path: Path, scribe: Sink) -> Iterator[Finding]:
    if isinstance(shot.header, Photo) and not isinstance(relate(shot.header.size, mask.size), Equal | Scaled):
        message = f"{spell(mask.size)}, its photograph {shown(shot.image.name)} is {spell(shot.header.size)}"
        remedy = "Make the mask anew from this photograph; it is stretched over it as it is."
        yield scribe.note("mask_size", _named(path), message, remedy)


def _may_be_black(path: Path, mask: Photo) -> bool:
    num_bytes = os.stat(path).st_size  # noqa: PTH116 - as thousands of headers are read
    return num_bytes < mask.width * mask.height / _PIXELS_PER_BYTE + _HEAD


def _named(path: Path | None) -> str:
    return shown(f"{path.parent.name}/{path.name}") if path else ""
