"""Photographs in host memory are uploaded while the step before still runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch

from splatbatch.training.photos.views import Photo


def ahead(photos: Iterator[Photo], device: torch.device) -> Iterator[Photo]:
    """Yield photographs with their pixels and masks on `device`, one upload ahead; nothing waits for the host."""
    if device.type != "cuda":
        yield from photos
        return
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    following = _upload(next(photos), device, stream)
    while True:
        (photo, is_there), following = following, _upload(next(photos), device, stream)
        now = torch.cuda.current_stream()
        now.wait_event(is_there)
        for tensor in (photo.pixels, photo.mask):
            if tensor is not None:
                tensor.record_stream(now)  # its memory is not given to the next upload before this step has read it
        yield photo


def _upload(photo: Photo, device: torch.device, stream: torch.cuda.Stream) -> tuple[Photo, torch.cuda.Event]:
    with torch.cuda.stream(stream):
        pixels = photo.pixels.to(device, non_blocking=True)
        mask = None if photo.mask is None else photo.mask.to(device, non_blocking=True)
        is_there = stream.record_event()
    return dataclasses.replace(photo, pixels=pixels, mask=mask), is_there
