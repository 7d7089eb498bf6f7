"""Pictures of an inspection: a view for each figure beyond its limit, and thumbnails of photographs at fault."""

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
UNCOVERED = 4  # divisor that darkens pixels which are not covered
RED, GREEN = (220, 40, 40), (60, 200, 90)


@torch.inference_mode()
def illustrated(subject: InspectedSplat, found: Inspection, folder: Path) -> Inspection:
    """Write pictures, with at most 12 thumbnails, into a folder, made if missing; return the record with their names.

    Raises:
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    looks = {look.photo.name: look for look in subject.looks}
    pictured = {one.name: f"{one.name}.webp" for one in found.found if one.name in DRAWN}
    figures = tuple(replace(one, picture=pictured.get(one.name, "")) for one in found.figures)
    for one in figures:
        if one.picture:
            drawn = DRAWN[one.name](subject, looks[_worst(subject, found, one)])
            _write(folder / one.picture, drawn, WIDEST_PX)
    named = list(dict.fromkeys(name for figure in found.found for name in figure.subjects))
    thumbnails = {name: f"photo-{place:02d}.webp" for place, name in enumerate(named[:MOST_THUMBNAILS])}
    for name, file in thumbnails.items():
        _write(folder / file, _photo(looks[name]), THUMBNAIL_PX)
    return replace(found, figures=figures, thumbnails=thumbnails)


def _write(path: Path, picture: Pixels, widest: int) -> None:
    image = Pillow.fromarray(picture)
    image.thumbnail((widest, widest))
    write_whole(path, lambda file: image.save(file, "WEBP", quality=QUALITY))


def _worst(subject: InspectedSplat, found: Inspection, figure: QualityFigure) -> str:
    """Return the first photograph that a figure names, else the one with the worst score, else one in the middle."""
    if figure.subjects:
        return figure.subjects[0]
    if figure.name not in WORST:
        return subject.training[len(subject.training) // 2].photo.name
    score, worst = WORST[figure.name]
    scores = {name: one[score] for name, one in found.photos.items() if score in one}
    return worst(scores, key=scores.__getitem__)


def _photo(look: SmallPhotograph) -> Pixels:
    pixels: Pixels = look.small.pixels.cpu().numpy()
    return pixels


def _beside(subject: InspectedSplat, look: SmallPhotograph) -> Pixels:
    """Return photograph and rendering side by side."""
    colors = look.small.as_taken(subject.shown(look).colors)
    return np.concatenate([_photo(look), to_pixels(colors)], axis=1)


def _covered(subject: InspectedSplat, look: SmallPhotograph) -> Pixels:
    """Return photograph and rendering side by side, darkened where the pixels are not covered."""
    picture, covered = _beside(subject, look), look.small.covered_pixels()
    counts = True if covered is None else np.tile(covered.cpu().numpy(), (1, 2))[..., None]
    return np.where(counts, picture, picture // UNCOVERED)


def _depth(subject: InspectedSplat, look: SmallPhotograph) -> Pixels:
    """Return the rendering with the model's points: green where the rendered depth agrees, red where it does not."""
    is_off = surface.depth_errors(subject, look) > surface.OFF
    picture = Pillow.fromarray(to_pixels(subject.shown(look).colors))
    brush, (y, x) = ImageDraw.Draw(picture), look.cells()
    for at, down, off in zip(x.tolist(), y.tolist(), is_off.tolist(), strict=True):
        brush.ellipse((at - 1, down - 1, at + 1, down + 1), fill=RED if off else GREEN)
    return np.asarray(picture)


def _front(subject: InspectedSplat, look: SmallPhotograph) -> Pixels:
    """Return the photograph, and a rendering of only the Gaussians that stand in front of its points."""
    _, front = surface.standing_in_front(subject, look)
    drawn = np.zeros_like(_photo(look))
    if bool(front.any()):
        drawn = to_pixels(rasterize(subject.part(front), look.small.view, subject.options).colors)
    return np.concatenate([_photo(look), drawn], axis=1)


def _holes(subject: InspectedSplat, look: SmallPhotograph) -> Pixels:
    """Return the rendering from half a baseline to the right of a photograph's camera, with holes in red."""
    shown = subject.shown_from(surface.beside(subject, look, 0.5))
    picture = to_pixels(shown.colors)
    picture[(shown.alphas < surface.HOLE).cpu().numpy()] = RED
    return picture


DRAWN: Mapping[str, Callable[[InspectedSplat, SmallPhotograph], Pixels]] = {
    "depth": _depth,
    **dict.fromkeys(("haze", "veil", "floaters"), _front),
    "holes": _holes,
    "fidelity": _covered,
    **dict.fromkeys(("blurred", "exposure", "misregistered"), _beside),
}
"""Function that draws the picture of a figure, by the figure's name; the map of `coverage` is drawn by the report."""
WORST = {"haze": ("cover", max), "floaters": ("cover", max), "fidelity": ("psnr_covered", min)}
"""Score, and `max` or `min`, by which the photograph to show is chosen for a figure that names no photographs."""
