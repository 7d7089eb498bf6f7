"""Drawings of an inspection for the page: pictures, PSNR over distance, maps of cameras and of coverage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from splatbatch.files import fault_of_name
from splatbatch.output.records.quality import Certificate
from splatbatch.report.facts import SplatQuality
from splatbatch.report.maps import MOST_DOTS, Dot, Drawing, Point
from splatbatch.report.pictures import PictureBudget, data_url, read_picture
from splatbatch.text import plural

SIZE_PX, MARGIN_PX = 220, 16
POOREST, BEST = 0.25, 1.0
"""Opacity, 0 to 1, of the dots of the held-out views with the lowest and the highest PSNR."""
OF_TRAINING = {"fill": "none", "stroke": "currentColor"}
CELLS_PX, CELL_PX = 240, 5
Figures = Mapping[str, Mapping[str, float]]
"""Figures of photographs, by photograph, then by figure: psnr in dB, distance, x and y of the camera, piece.

"distance" is to the nearest trained photograph in baselines, median distances of neighbouring trained photographs.
"piece" is 1 where the photographs around are held out, too. Figures that were not measured are absent.
"""


def pictures_of(quality: SplatQuality | None, budget: PictureBudget) -> list[tuple[str, str]]:
    """Return the pictures of an inspection as pairs of data URL and caption, those of exceeded figures first.

    Pictures that are missing, damaged or beyond the budget are left out.

    Args:
        quality: the inspection; None: the splat was not inspected, and the result is empty.
        budget: bytes of pictures that the page may take; it shrinks by the returned pictures.
    """
    if quality is None:
        return []
    named = {f"{one.name}: {one.meaning}": one.picture for one in quality.exceeded}
    return [*_pictures(quality, named, budget), *_pictures(quality, quality.thumbnails, budget)]


def _pictures(quality: SplatQuality, named: Mapping[str, str], budget: PictureBudget) -> Iterator[tuple[str, str]]:
    """Yield pictures by caption; names that leave the folder and files that are not WebP are skipped."""
    for words, name in named.items():
        data = read_picture(Path(quality.pictures) / name, b"RIFF") if not fault_of_name(name) else b""
        if data[8:12] == b"WEBP" and budget.take(data):
            yield data_url(data, "webp"), words


def falloff_curve(held_out: Figures) -> Drawing | None:
    """Return a chart of PSNR in dB over distance, with a dot for each held-out view; at most MOST_DOTS of them.

    Distance is to the nearest trained photograph, in baselines: median distances of neighbouring trained photographs.
    None if fewer than three views have both figures. Red marks views whose neighbours are held out, too.
    """
    known = {name: one for name, one in held_out.items() if {"psnr", "distance"} <= one.keys()}
    if len(known) < 3:
        return None
    far, good = ([one[key] for one in known.values()] for key in ("distance", "psnr"))
    low, high, most = min(good), max(good), max(far) or 1.0
    dots: list[Dot] = [
        (
            MARGIN_PX + SIZE_PX * one["distance"] / most,
            MARGIN_PX + SIZE_PX / 2 * (high - one["psnr"]) / ((high - low) or 1.0),
            3,
            f"{name}: PSNR {one['psnr']:.2f} dB, {one['distance']:.2f} camera spacings from a trained photograph",
            {"fill": "#c33" if one.get("piece") else "currentColor"},
        )
        for name, one in list(known.items())[:MOST_DOTS]
    ]
    words = (
        f"PSNR {low:.1f} to {high:.1f} dB of held-out photographs, over their distance from trained photographs: 0 to "
        f"{most:.1f} times the usual spacing of cameras"
    )
    axis = f"M{MARGIN_PX} {MARGIN_PX}V{MARGIN_PX + SIZE_PX // 2}H{MARGIN_PX + SIZE_PX}"
    return _drawing(dots, (SIZE_PX, SIZE_PX // 2), words, axis)


def holdout_map(cameras: Figures, held_out: Figures) -> Drawing | None:
    """Return a map of camera positions from above; None if fewer than two positions are known.

    A dot of a held-out photograph is the more opaque, the higher its PSNR. Red marks those whose neighbours are held
    out, too. At most MOST_DOTS photographs are drawn.

    Args:
        cameras: positions of all photographs.
        held_out: PSNR and positions of the held-out photographs, which replace their entries in `cameras`.
    """
    places = {name: (one["x"], one["y"]) for name, one in {**cameras, **held_out}.items() if {"x", "y"} <= one.keys()}
    if len(places) < 2:
        return None
    points, size = _from_above([*places.values()], SIZE_PX)
    psnrs = [one["psnr"] for one in held_out.values() if "psnr" in one] or [0.0]
    low, span = min(psnrs), (max(psnrs) - min(psnrs)) or 1.0
    dots: list[Dot] = []
    for name, (x, y) in list(zip(places, points, strict=True))[:MOST_DOTS]:
        at, one = (MARGIN_PX + x, MARGIN_PX + y), held_out.get(name, {})
        if "psnr" not in one:
            dots.append((*at, 2, name, OF_TRAINING))
            continue
        opacity = POOREST + (BEST - POOREST) * (one["psnr"] - low) / span
        look = {"fill": "#c33" if one.get("piece") else "#27c", "opacity": f"{opacity:.2f}"}
        dots.append((*at, 5, f"{name}: PSNR {one['psnr']:.2f} dB", look))
    words = f"{plural(len(places), 'photograph')} from above, {len(held_out)} of them held out"
    return _drawing(dots, size, words)


def _from_above(places: Sequence[Point], size_px: float) -> tuple[list[Point], Point]:
    """Return places of a map in pixels, north up, and its width and height, of which the larger is `size_px`."""
    (left, right), (bottom, top) = ((min(one), max(one)) for one in zip(*places, strict=True))
    scale = size_px / (max(right - left, top - bottom) or 1.0)
    points = [(scale * (x - left), scale * (top - y)) for x, y in places]
    return points, (scale * (right - left), scale * (top - bottom))


def _drawing(dots: list[Dot], size: tuple[float, float], words: str, axis: str = "") -> Drawing:
    width, height = (round(side + 2 * MARGIN_PX) for side in size)
    return Drawing(width, height, words, tuple(dots), axis)


def cell_map(quality: SplatQuality) -> Drawing | None:
    """Return a map from above of the cells that an inspection divides the scene into; None if no cell has a place.

    Cells that fewer than three photographs see are red; other cells are the darker, the more photographs see them.
    """
    cells = [cell for cell in quality.cells if {"x", "y", "photos", "weak"} <= cell.keys()]
    if not cells:
        return None
    points, _ = _from_above([(cell["x"], cell["y"]) for cell in cells], CELLS_PX)
    most = max(cell["photos"] for cell in cells) or 1.0
    dots: list[Dot] = [
        (
            *at,
            CELL_PX,
            plural(int(cell["photos"]), "photograph"),
            {"fill": "#c33"} if cell["weak"] else {"fill": "currentColor", "opacity": f"{cell['photos'] / most:.2f}"},
        )
        for cell, at in zip(cells, points, strict=True)
    ]
    num_weak = sum(cell["weak"] > 0 for cell in cells)
    words = f"{plural(len(cells), 'cell')} of the scene from above; {num_weak} seen by fewer than three photographs"
    return Drawing(CELLS_PX, CELLS_PX, words, tuple(dots))


def certificate_of(quality: SplatQuality) -> Certificate:
    """Return the certificate of an inspected splat; a blank one, without grade and seal, if the splat has none."""
    return Certificate.from_record(quality.certificate)
