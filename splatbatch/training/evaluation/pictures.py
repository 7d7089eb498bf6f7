"""Pictures for the report: photograph, rendering and error of the worst, median and best held-out view by PSNR."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor

from splatbatch.config import Recipe
from splatbatch.files import write_json, write_whole
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.training.photos.decode import Pixels
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, to_pixels

LONGEST_PX = 480
"""Largest length of a picture's longer side, in px."""
MOST_BYTES = {"photo": 21_000, "render": 21_000, "error": 9_000}
"""Largest size of a JPEG in bytes, by kind of picture, if the lowest quality allows.

27 views in base64 are 1.8 MB, which leaves a report of nine patches under 3 MB with the 3D viewer.
"""
QUALITIES = (80, 70, 60, 45, 30, 20)
"""JPEG qualities, tried in this order until a picture is small enough; the last is used if none is."""
FULL_ERROR = 0.25
"""Mean absolute difference of the channels, 0 to 1, from which the error picture has its brightest colour."""
RAMP = np.array([[0, 0, 4], [87, 16, 110], [188, 55, 84], [249, 142, 9], [252, 255, 164]])  # inferno, five stops


def picture_views(
    folder: AttemptFolder,
    drawn: Callable[[str], tuple[Mapping[str, Tensor], PosedImage]],
    metrics: dict[str, Any] | None,
    recipe: Recipe,
    most: int = 3,
) -> None:
    """Write photograph, rendering and error of the worst, best and median view as JPEGs, and their list views.json.

    Earlier pictures are replaced. Errors of the file system, as of a full disk, are ignored: only pictures are lost.
    Other errors, as of `drawn`, are passed on.

    Args:
        folder: folder of the attempt to write into.
        drawn: returns the Gaussians and the photograph of a view, by the view's name.
        metrics: result of `evaluate`, whose `images` name the views; None, or without views: nothing is written.
        recipe: how Gaussians are rendered.
        most: largest number of views, taken in this order as far as they exist: median, best, worst.
    """
    if not metrics or not metrics["images"]:
        return
    views = {}
    with contextlib.suppress(OSError):
        folder.views.parent.mkdir(exist_ok=True)
        for rank, name in list(ranked(metrics["images"]).items())[-most:]:
            size = _picture(folder, rank, *drawn(name), recipe)
            views[rank] = {"name": name, **metrics["images"][name], "width": size[0], "height": size[1]}
        write_json(folder.views, views)


def from_one(
    gaussians: Mapping[str, Tensor], photos: Iterable[PosedImage]
) -> Callable[[str], tuple[Mapping[str, Tensor], PosedImage]]:
    """Return the argument `drawn` of `picture_views` for views that are all rendered from the same Gaussians.

    The returned function raises KeyError for a name that is not among `photos`.
    """
    by_name = {photo.name: photo for photo in photos}
    return lambda name: (gaussians, by_name[name])


def ranked(images: dict[str, dict[str, float]]) -> dict[str, str]:
    """Return the names of the worst, best and median view by PSNR, in that order.

    One view is only the worst, two are worst and best. Views are ranked by `psnr_covered` if any has this figure, else
    by `psnr`; views without the figure are left out.

    Args:
        images: figures of each view, by its name; at least one view.
    """
    by = "psnr_covered" if any("psnr_covered" in one for one in images.values()) else "psnr"
    known = {name: one[by] for name, one in images.items() if by in one}
    names = sorted(known, key=known.__getitem__)
    views = {"worst": names[0]}
    if len(names) > 1:
        views["best"] = names[-1]
    if len(names) > 2:
        views["median"] = names[len(names) // 2]
    return views


@torch.inference_mode()
def _picture(
    folder: AttemptFolder, rank: str, gaussians: Mapping[str, Tensor], photo: PosedImage, recipe: Recipe
) -> tuple[int, int]:
    colors = rasterize(gaussians, photo.view, RasterOptions.of(recipe)).colors
    rendered = to_pixels(photo.as_taken(colors))
    del colors
    render, target = _small(rendered), _small(photo.pixels.cpu().numpy())
    for kind, picture in (("photo", target), ("render", render), ("error", error(target, render))):
        _write(folder.picture(rank, kind), to_jpeg(picture, MOST_BYTES[kind]))
    return target.size


def _write(path: Path, data: bytes) -> None:
    write_whole(path, lambda file: file.write(data))


def _small(pixels: Pixels) -> Pillow.Image:
    picture = Pillow.fromarray(pixels)
    picture.thumbnail((LONGEST_PX, LONGEST_PX), Pillow.Resampling.BOX)
    return picture


def error(target: Pillow.Image, render: Pillow.Image) -> Pillow.Image:
    """Return the absolute difference of two RGB pictures of one size, averaged over channels, as a colour picture.

    No difference is black, `FULL_ERROR` and more are yellow.
    """
    difference = np.abs(np.asarray(target, dtype=np.float32) - np.asarray(render, dtype=np.float32)).mean(axis=2) / 255
    stops = np.linspace(0, FULL_ERROR, len(RAMP))
    channels = [np.interp(difference, stops, RAMP[:, channel]) for channel in range(3)]
    return Pillow.fromarray(np.stack(channels, axis=-1).astype(np.uint8))


def to_jpeg(picture: Pillow.Image, most_bytes: int) -> bytes:
    """Return a picture as the bytes of a JPEG, at the highest of `QUALITIES` with at most `most_bytes`.

    If none is small enough, at the lowest quality.
    """
    for quality in QUALITIES:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality, optimize=True)
        if len(file.getvalue()) <= most_bytes:
            break
    return file.getvalue()
