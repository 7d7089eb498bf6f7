"""What an inspection found of a splat: its grade, what to do, every figure, pictures, and maps from above."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from splatbatch.plain_text import counted
from splatbatch.report.facts import Quality
from splatbatch.report.page.html import Html, join, table, tag
from splatbatch.report.page.quality.certificate import certificate_page
from splatbatch.report.page.quality.pictures import Pictures
from splatbatch.report.page.quality.plots import falloff_curve
from splatbatch.report.quality import FIGURES, exceeded, figure_row, held_out_in_words
from splatbatch.store.records.quality import Certificate, grade_in_words

MAP_PX = 240
CELL_PX = 10


def quality_section(quality: Quality | None, pictures: Pictures) -> Iterator[Html]:
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
    shown = pictures.all_of({f"{one.name}: {one.meaning}": one.picture for one in over})
    shown += pictures.all_of(quality.thumbnails)
    if shown:
        yield tag("div", *shown, class_="views")
    yield tag("details", tag("summary", "Inspection"), *_figures(quality))
    if quality.certificate:
        yield certificate_page(Certificate.from_record(quality.certificate), quality.cameras)


def _figures(quality: Quality) -> Iterator[Html]:
    rows = [tag("tr", *(tag("td", word) for word in figure_row(one))) for one in quality.figures]
    yield table(FIGURES, rows, ("figure", "state", "what"))
    if words := held_out_in_words(quality):
        yield tag("p", words, class_="quiet")
    if (curve := falloff_curve(quality.holdout)) is not None:
        yield curve
    yield from _map(quality)


def _map(quality: Quality) -> Iterator[Html]:
    """Yield the cells of the scene from above: dark where many photographs see them, red where too few do."""
    cells = [cell for cell in quality.cells if {"x", "y", "photos", "weak"} <= cell.keys()]
    if not cells:
        return
    x, y = [cell["x"] for cell in cells], [cell["y"] for cell in cells]
    side = max(max(x) - min(x), max(y) - min(y)) or 1.0
    most = max(cell["photos"] for cell in cells) or 1.0
    dots = [_dot(cell, (min(x), max(y)), MAP_PX / side, most) for cell in cells]
    box = f"-{CELL_PX} -{CELL_PX} {MAP_PX + 2 * CELL_PX} {MAP_PX + 2 * CELL_PX}"
    num_weak = sum(cell["weak"] > 0 for cell in cells)
    words = f"{counted(len(cells), 'cell')} from above; {num_weak} of them seen by fewer than three"
    yield tag("svg", join(dots), viewBox=box, width=MAP_PX, height=MAP_PX, role="img", aria_label=words)
    yield tag("p", f"{words} photographs, in red.", class_="quiet")


def _dot(cell: Mapping[str, float], corner: tuple[float, float], scale: float, most: float) -> Html:
    place = {"cx": f"{scale * (cell['x'] - corner[0]):.1f}", "cy": f"{scale * (corner[1] - cell['y']):.1f}"}
    style = {"fill": "#c33"} if cell["weak"] else {"fill": "currentColor", "opacity": f"{cell['photos'] / most:.2f}"}
    return tag("circle", tag("title", counted(int(cell["photos"]), "photograph")), r=CELL_PX // 2, **place, **style)
