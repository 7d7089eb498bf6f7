"""Pictures of an inspection: for each figure the view in which it is worst, and thumbnails of named photographs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image as Pillow
from PIL import ImageDraw
from torch import Tensor

from splatbatch.files import write_whole
from splatbatch.output.records.quality import Inspection, QualityFigure
from splatbatch.training.inspection import surface
from splatbatch.training.inspection.subject import BlendedView, InspectedSplat, SmallPhotograph
from splatbatch.training.rendering.rasterize import rasterize

WIDEST_PX, THUMBNAIL_PX = 360, 160
MOST_THUMBNAILS = 12
QUALITY = 70
UNCOVERED = 4
"""Divisor that darkens pixels which are not covered."""
RED, GREEN = (220, 40, 40), (60, 200, 90)
Pixels = NDArray[np.uint8]


@torch.inference_mode()
def illustrated(subject: InspectedSplat, found: Inspection, folder: Path) -> Inspection:
    """Write the pictures of an inspection into a folder; return the inspection with the names of the files.

    Each file is written whole or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    by_name = {look.photo.name: look for look in subject.looks}
    figures = []
    for figure in found.figures:
        picture = _picture(subject, found, figure)
        if picture is not None:
            _write(folder / f"{figure.name}.webp", picture, WIDEST_PX)
        figures.append(replace(figure, picture="" if picture is None else f"{figure.name}.webp"))
    thumbnails = dict[str, str]()
    for name in _named(found):
        if look := by_name.get(name):
            thumbnails[name] = f"photo-{len(thumbnails):02d}.webp"
            _write(folder / thumbnails[name], _photo(look), THUMBNAIL_PX)
    return replace(found, figures=tuple(figures), thumbnails=thumbnails)


def _named(found: Inspection) -> list[str]:
    """Return at most `MOST_THUMBNAILS` photographs that figures beyond their limits name, each once."""
    names = dict.fromkeys(name for figure in found.found for name in figure.subjects)
    return list(names)[:MOST_THUMBNAILS]


def _write(path: Path, picture: Pixels, widest: int) -> None:
    image = Pillow.fromarray(picture)
    image.thumbnail((widest, widest))
    write_whole(path, lambda file: image.save(file, "WEBP", quality=QUALITY))


def _picture(subject: InspectedSplat, found: Inspection, figure: QualityFigure) -> Pixels | None:
    if figure.name == "coverage" and found.cells:
        return _map(found)
    look = _worst(subject, found, figure)
    draw = _DRAWN.get(figure.name)
    if figure.value is None or draw is None or look is None:
        return None
    return draw(subject, look)


_BY_PHOTO = {"haze": "cover", "veil": "cover", "floaters": "cover", "blurred": "blur", "misregistered": "registration"}


def _worst(subject: InspectedSplat, found: Inspection, figure: QualityFigure) -> SmallPhotograph | None:
    """Return the view that shows most of a figure: a named photograph, else the one with the worst value."""
    by_name = {look.photo.name: look for look in subject.looks}
    if figure.subjects:
        return by_name.get(figure.subjects[0])
    if figure.name == "fidelity":
        psnrs = {name: one["psnr_covered"] for name, one in found.photos.items() if "psnr_covered" in one}
        return by_name[min(psnrs, key=psnrs.__getitem__)] if psnrs else None
    of_photo = _BY_PHOTO.get(figure.name, "")
    values = {name: one[of_photo] for name, one in found.photos.items() if of_photo in one and name in by_name}
    if values:
        return by_name[max(values, key=values.__getitem__)]
    looks = subject.training or subject.looks
    return looks[len(looks) // 2] if looks else None


def _photo(look: SmallPhotograph) -> Pixels:
    pixels: Pixels = look.small.pixels.cpu().numpy()
    return pixels


def _bytes(colors: Tensor) -> Pixels:
    pixels: Pixels = (255 * colors.clamp(0, 1)).round().to(torch.uint8).cpu().numpy()
    return pixels


def _beside(subject: InspectedSplat, look: SmallPhotograph) -> Pixels:
    """Return photograph and rendering side by side."""
    colors = look.small.as_taken(subject.shown(look).colors)
    return np.concatenate([_photo(look), _bytes(colors)], axis=1)


def _covered(subject: InspectedSplat, look: SmallPhotograph) -> Pixels:
    """Return photograph and rendering side by side, darkened where the pixels are not covered."""
    picture = _beside(subject, look)
    if look.small.coverage_mask is None:
        return picture
    covered = look.small.coverage_mask.cpu().numpy()
    return np.where(np.concatenate([covered, covered], axis=1)[..., None], picture, picture // UNCOVERED)


def _depth(subject: InspectedSplat, look: SmallPhotograph) -> Pixels:
    """Return the rendering with the model's points: green where the rendered depth agrees, red where it does not."""
    shown = subject.shown(look)
    depths, alphas = shown.depths.cpu().numpy(), shown.alphas.cpu().numpy()
    y, x = look.cells()
    known = look.depths
    is_off = (np.abs(depths[y, x] / known - 1) > surface.OFF) | (alphas[y, x] <= surface.OPAQUE)
    picture = Pillow.fromarray(_bytes(shown.colors))
    brush = ImageDraw.Draw(picture)
    for at, down, off in zip(x.tolist(), y.tolist(), is_off.tolist(), strict=True):
        brush.ellipse((at - 1, down - 1, at + 1, down + 1), fill=RED if off else GREEN)
    return np.asarray(picture)


def _front(subject: InspectedSplat, look: SmallPhotograph) -> Pixels:
    """Return the photograph, and a rendering of only the Gaussians that stand in front of its points."""
    _, front = surface.standing_in_front(subject.own["means"], look)
    if not bool(front.any()):
        return np.concatenate([_photo(look), np.zeros_like(_photo(look))], axis=1)
    colors = rasterize(subject.part(front), look.small.view, subject.options).colors
    return np.concatenate([_photo(look), _bytes(colors)], axis=1)


def _moved(subject: InspectedSplat, look: SmallPhotograph) -> BlendedView:
    """Return the rendering from half a baseline to the right of a photograph's camera."""
    return subject.shown_from(surface.moved(look.small.view, surface.baseline_of(subject, look) / 2))


def _marked(colors: Tensor, which: Tensor) -> Pixels:
    picture = _bytes(colors)
    picture[which.cpu().numpy()] = RED
    return picture


def _holes(subject: InspectedSplat, look: SmallPhotograph) -> Pixels:
    shown = _moved(subject, look)
    return _marked(shown.colors, shown.alphas < surface.HOLE)


_DRAWN: Mapping[str, Callable[[InspectedSplat, SmallPhotograph], Pixels]] = {
    **{"depth": _depth, "haze": _front, "veil": _front, "floaters": _front},
    **{
        "holes": _holes,
        "fidelity": _covered,
        "blurred": _beside,
        "exposure": _beside,
        "misregistered": _beside,
    },
}


def _map(found: Inspection) -> Pixels:
    """Return a map of the cells from above: weakly covered cells red, others lighter with more photographs."""
    places = np.array([(cell["x"], cell["y"]) for cell in found.cells])
    low, size = places.min(axis=0), max(cell["size"] for cell in found.cells)
    scale = WIDEST_PX / max(float(np.ptp(places, axis=0).max()) + size, 1e-9)
    width, height = (scale * (np.ptp(places, axis=0) + size)).round().astype(int).tolist()
    picture = Pillow.new("RGB", (max(1, width), max(1, height)), (20, 20, 20))
    brush, half = ImageDraw.Draw(picture), scale * size / 2.2
    most = max(cell["photos"] for cell in found.cells) or 1.0
    for cell, (x, y) in zip(found.cells, scale * (places - low + size / 2), strict=True):
        grey = round(60 + 190 * min(1.0, cell["photos"] / most))
        box = (x - half, height - y - half, x + half, height - y + half)
        brush.rectangle(box, fill=RED if cell["weak"] else (grey, grey, grey))
    return np.asarray(picture)
