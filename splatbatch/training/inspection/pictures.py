"""Pictures of an inspection: for each figure beyond its limit a view that shows it, and thumbnails of photographs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image as Pillow
from PIL import ImageDraw

from splatbatch.files import write_whole
from splatbatch.output.records.quality import Inspection, QualityFigure
from splatbatch.training.inspection import surface
from splatbatch.training.inspection.subject import InspectedSplat, SmallPhotograph
from splatbatch.training.photos.decode import Pixels
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import to_pixels

WIDEST_PX, THUMBNAIL_PX = 360, 160
MOST_THUMBNAILS = 12
QUALITY = 70
UNCOVERED = 4
"""Divisor that darkens pixels which are not covered."""
RED, GREEN = (220, 40, 40), (60, 200, 90)


@torch.inference_mode()
def illustrated(subject: InspectedSplat, found: Inspection, folder: Path) -> Inspection:
    """Write the pictures of an inspection into a folder; return the inspection with the names of the files.

    Each file is written whole or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figures = []
    for figure in found.figures:
        picture = _picture(subject, found, figure)
        file = "" if picture is None else f"{figure.name}.webp"
        if picture is not None:
            _write(folder / file, picture, WIDEST_PX)
        figures.append(replace(figure, picture=file))
    by_name = {look.photo.name: look for look in subject.looks}
    named = list(dict.fromkeys(name for figure in found.found for name in figure.subjects))
    thumbnails = {name: f"photo-{place:02d}.webp" for place, name in enumerate(named[:MOST_THUMBNAILS])}
    for name, file in thumbnails.items():
        _write(folder / file, _photo(by_name[name]), THUMBNAIL_PX)
    return replace(found, figures=tuple(figures), thumbnails=thumbnails)


def _write(path: Path, picture: Pixels, widest: int) -> None:
    image = Pillow.fromarray(picture)
    image.thumbnail((widest, widest))
    write_whole(path, lambda file: image.save(file, "WEBP", quality=QUALITY))


def _picture(subject: InspectedSplat, found: Inspection, figure: QualityFigure) -> Pixels | None:
    """Return the picture of a figure beyond its limit: a named photograph, else the one with the worst score; else None."""
    if figure.name not in DRAWN or figure not in found.found:
        return None
    draw, score = DRAWN[figure.name]
    by_name = {look.photo.name: look for look in subject.looks}
    scores = {name: one[score] for name, one in found.photos.items() if score in one}
    if figure.subjects:
        name = figure.subjects[0]
    elif scores:
        name = (min if score in LOW_IS_WORSE else max)(scores, key=scores.__getitem__)
    else:
        name = subject.training[len(subject.training) // 2].photo.name
    return draw(subject, by_name[name])


def _photo(look: SmallPhotograph) -> Pixels:
    pixels: Pixels = look.small.pixels.cpu().numpy()
    return pixels


def _beside(subject: InspectedSplat, look: SmallPhotograph) -> Pixels:
    """Return photograph and rendering side by side."""
    colors = look.small.as_taken(subject.shown(look).colors)
    return np.concatenate([_photo(look), to_pixels(colors)], axis=1)


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
    is_off = (np.abs(depths[y, x] / look.depths - 1) > surface.OFF) | (alphas[y, x] <= surface.OPAQUE)
    picture = Pillow.fromarray(to_pixels(shown.colors))
    brush = ImageDraw.Draw(picture)
    for at, down, off in zip(x.tolist(), y.tolist(), is_off.tolist(), strict=True):
        brush.ellipse((at - 1, down - 1, at + 1, down + 1), fill=RED if off else GREEN)
    return np.asarray(picture)


def _front(subject: InspectedSplat, look: SmallPhotograph) -> Pixels:
    """Return the photograph, and a rendering of only the Gaussians that stand in front of its points."""
    _, front = surface.standing_in_front(subject.own["means"], look)
    drawn = np.zeros_like(_photo(look))
    if bool(front.any()):
        drawn = to_pixels(rasterize(subject.part(front), look.small.view, subject.options).colors)
    return np.concatenate([_photo(look), drawn], axis=1)


def _holes(subject: InspectedSplat, look: SmallPhotograph) -> Pixels:
    """Return the rendering from half a baseline to the right of a photograph's camera, with holes in red."""
    shown = subject.shown_from(surface.moved(look.small.view, surface.baseline_of(subject, look) / 2))
    picture = to_pixels(shown.colors)
    picture[(shown.alphas < surface.HOLE).cpu().numpy()] = RED
    return picture


DRAWN: Mapping[str, tuple[Callable[[InspectedSplat, SmallPhotograph], Pixels], str]] = {
    "depth": (_depth, ""),
    "haze": (_front, "cover"),
    "veil": (_front, "cover"),
    "floaters": (_front, "cover"),
    "holes": (_holes, ""),
    "fidelity": (_covered, "psnr_covered"),
    "blurred": (_beside, "blur"),
    "exposure": (_beside, ""),
    "misregistered": (_beside, "registration"),
}
"""What is drawn for each figure, and the score by which a photograph is chosen; empty: one in the middle."""
LOW_IS_WORSE = ("psnr_covered",)
