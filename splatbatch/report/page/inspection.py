"""What an inspection found of a splat: grade, figures with limits, pictures, maps from above, and its certificate."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from splatbatch.files import fault_of_name
from splatbatch.output.records.quality import Certificate, grade_in_words
from splatbatch.report.facts import SplatQuality
from splatbatch.report.page.html import Html, join, rows_of, table, tag
from splatbatch.report.page.pictures import PictureBudget, data_url, read_picture
from splatbatch.report.quality import FIGURES, exceeded, figure_row, held_out_in_words
from splatbatch.text import plural

SIZE_PX, MARGIN_PX = 220, 16
POOREST, BEST = 0.25, 1.0
"""Opacity of a held-out view's dot, of the poorest and of the best."""
MOST_DOTS = 1500
LINE = {"fill": "none", "stroke": "currentColor"}
MOST_INPUTS = 300
WORDS = ("figure", "state", "what", "", "file", "sha256", "made with")
MAP_PX = 240
CELL_PX = 10


def _pictures(quality: SplatQuality, named: Mapping[str, str], budget: PictureBudget) -> Iterator[Html]:
    """Yield pictures by the words below them, as far as the page has room; anybody may have changed their names."""
    for words, name in named.items():
        data = read_picture(Path(quality.pictures) / name, b"RIFF") if not fault_of_name(name) else b""
        if data[8:12] == b"WEBP" and budget.take(len(data) * 4 // 3):
            caption = tag("figcaption", words, class_="quiet")
            yield tag("figure", tag("img", src=data_url(data, "webp"), alt=words, loading="lazy"), caption)


def falloff_curve(held_out: Mapping[str, Mapping[str, float]]) -> Html | None:
    """Return the PSNR of held-out views over their distance in baselines; None for fewer than three."""
    known = {name: one for name, one in held_out.items() if {"psnr", "distance"} <= one.keys()}
    if len(known) < 3:
        return None
    far, good = ([one[key] for one in known.values()] for key in ("distance", "psnr"))
    low, high, most = min(good), max(good), max(far) or 1.0
    dots = []
    for name, one in list(known.items())[:MOST_DOTS]:
        x = MARGIN_PX + SIZE_PX * one["distance"] / most
        y = MARGIN_PX + SIZE_PX / 2 * (high - one["psnr"]) / ((high - low) or 1.0)
        words = f"{name}: {one['psnr']:.2f} dB, {one['distance']:.2f} baselines away"
        dots.append(_dot((x, y), words, {"fill": "#c33" if one.get("piece") else "currentColor"}))
    axis = tag("path", d=f"M{MARGIN_PX} {MARGIN_PX}V{MARGIN_PX + SIZE_PX // 2}H{MARGIN_PX + SIZE_PX}", **LINE)
    words = f"PSNR {low:.1f} to {high:.1f} dB of held-out views over their distance, 0 to {most:.1f} baselines"
    return _drawing([axis, *dots], (SIZE_PX, SIZE_PX // 2), words)


def holdout_map(cameras: Mapping[str, Mapping[str, float]], held_out: Mapping[str, Mapping[str, float]]) -> Html | None:
    """Return from where photographs were taken, seen from above: held-out ones the stronger the better they are."""
    places = {name: (one["x"], one["y"]) for name, one in {**cameras, **held_out}.items() if {"x", "y"} <= one.keys()}
    if len(places) < 2:
        return None
    left, top = min(x for x, _ in places.values()), max(y for _, y in places.values())
    right, bottom = max(x for x, _ in places.values()), min(y for _, y in places.values())
    scale = SIZE_PX / (max(right - left, top - bottom) or 1.0)
    psnrs = [one["psnr"] for one in held_out.values() if "psnr" in one] or [0.0]
    low, span = min(psnrs), (max(psnrs) - min(psnrs)) or 1.0
    dots = []
    for name, (x, y) in list(places.items())[:MOST_DOTS]:
        at, one = (MARGIN_PX + scale * (x - left), MARGIN_PX + scale * (top - y)), held_out.get(name, {})
        if "psnr" not in one:
            dots.append(_dot(at, name, LINE, 2))
            continue
        opacity = POOREST + (BEST - POOREST) * (one["psnr"] - low) / span
        look = {"fill": "#c33" if one.get("piece") else "#27c", "opacity": f"{opacity:.2f}"}
        dots.append(_dot(at, f"{name}: {one['psnr']:.2f} dB", look, 5))
    words = f"{plural(len(places), 'photograph')} from above, {len(held_out)} of them held out"
    return _drawing(dots, (scale * (right - left), scale * (top - bottom)), words)


def _dot(at: tuple[float, float], words: str, look: Mapping[str, str], radius: int = 3) -> Html:
    return tag("circle", tag("title", words), cx=f"{at[0]:.1f}", cy=f"{at[1]:.1f}", r=radius, **look)


def _drawing(parts: Iterable[Html], size: tuple[float, float], words: str) -> Html:
    width, height = (round(side + 2 * MARGIN_PX) for side in size)
    drawn = tag("svg", join(parts), viewBox=f"0 0 {width} {height}", width=width, height=height, role="img")
    return tag("figure", drawn, tag("figcaption", f"{words}.", class_="quiet"))


def certificate_page(said: Certificate, cameras: Mapping[str, Mapping[str, float]]) -> Html:
    """Return all that a certificate says, folded."""
    grade = grade_in_words(said.grade).replace("grade", "Grade", 1)
    parts = [
        tag("p", f"{grade}. Check it: splatbatch inspect --check {said.patch}", class_="quiet"),
        table(("", "sha256"), rows_of(_hashes(said)), WORDS),
        table(FIGURES, rows_of(map(figure_row, said.figures)), WORDS),
    ]
    if (drawn := holdout_map(cameras, said.holdout)) is not None:
        parts.append(drawn)
    parts += [table(("made with", "version"), rows_of(sorted(said.made_with.items())), (*WORDS, "version"))]
    parts += [
        *_inputs(said),
        tag(
            "details",
            tag("summary", "Settings"),
            tag("pre", json.dumps(said.settings, indent=1, sort_keys=True, default=str)),
        ),
    ]
    return tag("details", tag("summary", "Certificate"), *parts, class_="certificate")


def _hashes(said: Certificate) -> Iterator[tuple[str, str]]:
    count = "" if said.num_gaussians is None else f", {said.num_gaussians:,} Gaussians"
    yield f"splat.ply{count}", said.splat
    yield "settings", said.settings_hash
    yield "this certificate", said.seal


def _inputs(said: Certificate) -> Iterator[Html]:
    listed = sorted(said.inputs.items())[:MOST_INPUTS]
    more = len(said.inputs) - len(listed)
    note = [tag("p", f"For {more:,} more, see certificate.json.", class_="quiet")] if more else []
    files = table(("file", "sha256"), rows_of(listed), WORDS)
    yield tag("details", tag("summary", f"{plural(len(said.inputs), 'file')} that it was made from"), files, *note)


def quality_section(quality: SplatQuality | None, budget: PictureBudget) -> Iterator[Html]:
    """Yield what there is to see; nothing where nobody has inspected the splat."""
    if quality is None:
        return
    over = exceeded(quality)
    names = f" ({', '.join(one.name for one in over)})" if over else ""
    said = f"{grade_in_words(quality.grade).replace('grade', 'Grade', 1)}{names}"
    yield tag("p", said, class_="mark" if over else "quiet")
    yield from (tag("p", f"{one.name}: {one.advice}", class_="quiet") for one in over)
    if quality.dropped:
        yield tag("p", f"Photographs left out: {quality.dropped}.", class_="quiet")
    named = {f"{one.name}: {one.meaning}": one.picture for one in over}
    if shown := [*_pictures(quality, named, budget), *_pictures(quality, quality.thumbnails, budget)]:
        yield tag("div", *shown, class_="views")
    yield tag("details", tag("summary", "Inspection"), *_figures(quality))
    if quality.certificate:
        yield certificate_page(Certificate.from_record(quality.certificate), quality.cameras)


def _figures(quality: SplatQuality) -> Iterator[Html]:
    yield table(FIGURES, rows_of(map(figure_row, quality.figures)), ("figure", "state", "what"))
    if words := held_out_in_words(quality):
        yield tag("p", words, class_="quiet")
    if (curve := falloff_curve(quality.holdout)) is not None:
        yield curve
    yield from _map(quality)


def _map(quality: SplatQuality) -> Iterator[Html]:
    """Yield the cells of the scene from above: dark where many photographs see them, red where too few do."""
    cells = [cell for cell in quality.cells if {"x", "y", "photos", "weak"} <= cell.keys()]
    if not cells:
        return
    x, y = [cell["x"] for cell in cells], [cell["y"] for cell in cells]
    side = max(max(x) - min(x), max(y) - min(y)) or 1.0
    most = max(cell["photos"] for cell in cells) or 1.0
    dots = [_cell_dot(cell, (min(x), max(y)), MAP_PX / side, most) for cell in cells]
    box = f"-{CELL_PX} -{CELL_PX} {MAP_PX + 2 * CELL_PX} {MAP_PX + 2 * CELL_PX}"
    num_weak = sum(cell["weak"] > 0 for cell in cells)
    words = f"{plural(len(cells), 'cell')} from above; {num_weak} of them seen by fewer than three"
    yield tag("svg", join(dots), viewBox=box, width=MAP_PX, height=MAP_PX, role="img", aria_label=words)
    yield tag("p", f"{words} photographs, in red.", class_="quiet")


def _cell_dot(cell: Mapping[str, float], corner: tuple[float, float], scale: float, most: float) -> Html:
    place = {"cx": f"{scale * (cell['x'] - corner[0]):.1f}", "cy": f"{scale * (corner[1] - cell['y']):.1f}"}
    style = {"fill": "#c33"} if cell["weak"] else {"fill": "currentColor", "opacity": f"{cell['photos'] / most:.2f}"}
    return tag("circle", tag("title", plural(int(cell["photos"]), "photograph")), r=CELL_PX // 2, **place, **style)
