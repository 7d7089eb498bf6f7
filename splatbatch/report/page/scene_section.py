"""The scene on the page: from above as SVG, and every seam with its figures; the workers, where there were several.

On the map are patches by state and PSNR, seams by their step, cameras, held-out ones by PSNR.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from splatbatch.output.records.metrics import deciding
from splatbatch.report import facts
from splatbatch.report.page.html import Attribute, Html, join, number, table, tag
from splatbatch.report.page.pictures import PictureBudget, views_of
from splatbatch.report.scene import SEAM_FIGURES, in_words, seam_figures
from splatbatch.report.units import SIGNS, duration
from splatbatch.report.viewer.viewer import Previews
from splatbatch.report.workers import HEADINGS
from splatbatch.text import plural

WIDTH_PX = 600
MOST_HEIGHT_PX, LEAST_HEIGHT_PX = 460, 120
MARGIN_PX = 14
FAINTEST, STRONGEST = 0.10, 0.42
"""Opacity of a patch's colour, of the poorest and of the best: writing on it stays legible."""
LEAST_RANGE_DB = 3.0
"""What is alike should look so."""
LEAST_LABEL_PX = 56
"""Of a patch's width, or of a seam: what is smaller says what it is under the cursor, in the tables and to readers."""
TINY = 1e-30
MOST_DOTS = 1500
"""Held-out cameras that have a dot of their own."""
Point = tuple[float, float]
GRADES = {"even": "even", "slight": "slight", "step": "a step", "unknown": ""}
WORDS = ("worker", "node", "job", "since", "is training")
MOST_WORKERS = 200
"""One that is killed and started anew is another one."""


@dataclass(frozen=True)
class MapScale:
    """From the partition's axes to the drawing, which has its origin at the top."""

    low: Point
    high: Point

    @property
    def px(self) -> float:
        """Return pixels for a unit of the scene."""
        width, height = self.high[0] - self.low[0], self.high[1] - self.low[1]
        return min((WIDTH_PX - 2 * MARGIN_PX) / max(width, TINY), (MOST_HEIGHT_PX - 2 * MARGIN_PX) / max(height, TINY))

    @property
    def size(self) -> Point:
        """Return the size of the drawing in pixels."""
        height = 2 * MARGIN_PX + self.px * (self.high[1] - self.low[1])
        return WIDTH_PX, max(LEAST_HEIGHT_PX, height)

    def of(self, place: Sequence[float]) -> Point:
        """Return where a place is drawn."""
        spare = WIDTH_PX - self.px * (self.high[0] - self.low[0])
        x = spare / 2 + self.px * (place[0] - self.low[0])
        y = self.size[1] - MARGIN_PX - self.px * (place[1] - self.low[1])
        return round(min(max(x, 3.0), WIDTH_PX - 3.0), 1), round(min(max(y, 3.0), self.size[1] - 3.0), 1)


def draw_map(scene: facts.SceneMap, patches: Sequence[facts.ReportedPatch], links: Mapping[str, str]) -> Html:
    """Return the map; what it shows by colours it also says by signs, strokes and in words."""
    scale = _scale(scene)
    states = _of_places(patches)
    shades = _shades([deciding(one) for one in states.values()])
    cores = [_core(core, states.get(core.patch), links, scale, shades) for core in scene.cores]
    width, height = scale.size
    drawing = tag(
        "svg",
        *(area for area, _ in cores),
        *_cameras(scene.cameras, scale),
        *(_seam(seam, seam.line, scale) for seam in scene.seams if seam.line),
        *(label for _, label in cores),
        viewBox=f"0 0 {width:g} {height:.1f}",
        role="group",
        aria_label=f"{plural(len(cores), 'patch', 'es')} from above, {plural(len(scene.seams), 'seam')}",
    )
    return tag("figure", drawing, tag("figcaption", *_legend(scene)), class_="map")


def _of_places(patches: Sequence[facts.ReportedPatch]) -> dict[str, facts.ReportedPatch]:
    """Return what stands for each place: its patch; in a sweep its best variant, or the first where none is trained."""
    found: dict[str, facts.ReportedPatch] = {}
    for patch in patches:
        place = patch.of_patch or patch.patch
        if place not in found or (deciding(patch) or 0.0) > (deciding(found[place]) or 0.0):
            found[place] = patch
    return found


def _scale(scene: facts.SceneMap) -> MapScale:
    """Return what shows all cores, and cameras as far as they stand no farther out than half of that."""
    lower, upper = [core.lower for core in scene.cores], [core.upper for core in scene.cores]
    low, high = ([pick(one[axis] for one in ends) for axis in range(2)] for pick, ends in ((min, lower), (max, upper)))
    for axis in range(2):
        room = (high[axis] - low[axis]) / 2
        seen = [one.at[axis] for one in scene.cameras]
        low[axis] = max(low[axis] - room, min([low[axis], *seen]))
        high[axis] = min(high[axis] + room, max([high[axis], *seen]))
    return MapScale((low[0], low[1]), (high[0], high[1]))


def _shades(psnrs: Sequence[float | None]) -> tuple[float, float]:
    known = [psnr for psnr in psnrs if psnr is not None]
    return (min(*known, max(known) - LEAST_RANGE_DB), max(known)) if known else (0.0, 0.0)


def _core(
    core: facts.CoreBox,
    patch: facts.ReportedPatch | None,
    links: Mapping[str, str],
    scale: MapScale,
    shades: tuple[float, float],
) -> tuple[Html, Html]:
    """Return the area of a patch, a link to it, and what is written on it, which is said of the link in words."""
    place, state = core.patch, patch.state if patch else "waiting"
    name, psnr = (patch.patch, deciding(patch)) if patch else (place, None)
    (x0, y1), (x1, y0) = scale.of(core.lower), scale.of(core.upper)
    said = f"{psnr:.2f} dB" if psnr is not None else state
    words = f"{name}: {state}{f', {said}' if psnr is not None else ''}"
    box: dict[str, float] = {"x": x0, "y": y0, "width": round(x1 - x0, 1), "height": round(y1 - y0, 1)}
    parts = (tag("title", words), tag("rect", class_="core", fill_opacity=_opacity(psnr, shades), **box))
    middle: dict[str, Attribute] = {"x": round((x0 + x1) / 2, 1), "text_anchor": "middle"}
    sign = tag("text", f"{SIGNS.get(state, '')} {place}", class_="label", y=round((y0 + y1) / 2 - 2, 1), **middle)
    below = tag("text", said, class_="figure", y=round((y0 + y1) / 2 + 13, 1), **middle)
    label = tag("g", sign, below, aria_hidden="true") if x1 - x0 >= LEAST_LABEL_PX else Html("")
    if name not in links:
        return tag("g", *parts, class_=f"patch {state}", role="img", aria_label=words), label
    return tag("a", *parts, class_=f"patch {state}", href=f"#{links[name]}", aria_label=words), label


def _opacity(psnr: float | None, shades: tuple[float, float]) -> float:
    low, high = shades
    if psnr is None:
        return FAINTEST
    share = (psnr - low) / (high - low) if high > low else 1.0
    return round(FAINTEST + share * (STRONGEST - FAINTEST), 3)


def _cameras(cameras: Sequence[facts.CameraPosition], scale: MapScale) -> list[Html]:
    """Return a stroke for all cameras that are trained on, and a dot for each that is held out."""
    training = [scale.of(one.at) for one in cameras if not one.name]
    held_out = [one for one in cameras if one.name]
    chosen = held_out[:: max(1, math.ceil(len(held_out) / MOST_DOTS))]
    shades = _shades([one.psnr for one in chosen])
    path = "".join(f"M{x:g} {y:g}h0" for x, y in training)
    return [tag("path", class_="cameras", d=path, aria_hidden="true"), *(_dot(one, scale, shades) for one in chosen)]


def _dot(camera: facts.CameraPosition, scale: MapScale, shades: tuple[float, float]) -> Html:
    (x, y), psnr = scale.of(camera.at), camera.psnr
    words = f"{camera.name}, held out" + (f": {psnr:.2f} dB" if psnr is not None else "")
    low, high = shades
    radius = 3.5 if psnr is None or high <= low else 3 + 4 * (high - psnr) / (high - low)
    return tag("circle", tag("title", words), class_="test", cx=x, cy=y, r=round(radius, 1))


def _seam(seam: facts.ReportedSeam, line: tuple[Point, Point], scale: MapScale) -> Html:
    (x0, y0), (x1, y1) = map(scale.of, line)
    words = _seam_words(seam)
    drawn = tag("line", tag("title", words), class_=f"seam {seam.grade}", x1=x0, y1=y0, x2=x1, y2=y1)
    if seam.grade not in ("slight", "step") or math.hypot(x1 - x0, y1 - y0) < LEAST_LABEL_PX:
        return drawn
    at: dict[str, Attribute] = {
        "x": round((x0 + x1) / 2, 1),
        "y": round((y0 + y1) / 2 - 26, 1),
        "text_anchor": "middle",
    }
    return tag("g", drawn, tag("text", _step(seam), class_="figure seam", **at))


def _seam_words(seam: facts.ReportedSeam) -> str:
    if seam.grade == "unknown":
        return f"{seam.name}: {seam.problem or 'not measured yet'}"
    return f"{seam.name}: {seam.grade}, {_step(seam)}"


def _step(seam: facts.ReportedSeam) -> str:
    return f"{seam.color_offset:.1f}/255, {100 * abs(seam.depth_step or 0.0):.1f} % of depth"


def _legend(scene: facts.SceneMap) -> list[str]:
    words = "Patches from above; the stronger the colour, the better. "
    words += "Small dots: cameras; rings: held-out ones, the larger the poorer. Seams: "
    kinds = (("even", "even"), ("slight", "slight"), ("step", "a step"), ("unknown", "not measured"))
    grades = {seam.grade for seam in scene.seams}
    samples = [
        tag("span", tag("svg", tag("line", class_=f"seam {kind}", x1=0, x2=34, y1=6, y2=6), viewBox="0 0 34 12"), text)
        for kind, text in kinds
        if kind in grades
    ]
    return [words, *samples] if samples else [words.removesuffix("Seams: ")]


def merged_scene(report: facts.Report, previews: Previews, budget: PictureBudget) -> Html:
    """Return the merged splat: what it is worth, where it lies, how it looks, how its patches meet."""
    scene = report.scene
    if not scene:
        return Html("")
    if scene.problem:
        return tag("p", scene.problem, class_="mark")
    parts, whole = [tag("h2", "The scene"), tag("p", in_words(scene))], previews.output.scene
    if scene.splat:
        pictured = (one for one in reversed(whole.evaluating.attempts()) if one.read_views().ranked())
        attempt = None if scene.is_stale else next(pictured, None)
        parts += [tag("p", scene.splat, class_="quiet files"), previews.stage("scene", whole.splat, attempt)]
        if views := list(views_of(attempt, budget)):
            parts += [tag("div", *views, class_="views")]
    if scene.seams:
        counts = Counter(GRADES[seam.grade] or "not measured" for seam in scene.seams)
        words = ", ".join(f"{num} {name}" for name, num in counts.items())
        parts.append(tag("p", tag("a", plural(len(scene.seams), "seam"), href="#seams"), f": {words}."))
    return tag("section", *parts, aria_label="The scene")


def scene_section(report: facts.Report) -> Html:
    """Return how the patches of a scene meet; nothing where none was cut."""
    scene = report.scene
    if not scene or scene.problem:
        return Html("")
    parts = [tag("p", note, class_="mark") for note in _lacking(scene)]
    if scene.seams:
        rows = [_row(seam) for seam in scene.seams]
        seams = table(("seam", "meets", *SEAM_FIGURES, "note"), rows, ("seam", "meets", "note"), name="Seams")
        parts.append(tag("div", seams, id="seams"))
    return join(parts)


def _lacking(scene: facts.ReportedPartition) -> list[str]:
    lacking = scene.evaluation.lacking if scene.evaluation else {}
    return [f"{name}: {why}: its seams were not measured" for name, why in lacking.items()]


def _row(seam: facts.ReportedSeam) -> Html:
    figures = [tag("td", words, class_="number", data_value=words or None) for words in seam_figures(seam)]
    meets = tag("span", GRADES[seam.grade], class_=f"grade {seam.grade}")
    return tag("tr", tag("td", seam.name), tag("td", meets), *figures, tag("td", seam.problem))


def workers_section(workers: Sequence[facts.ReportedWorker]) -> Html:
    """Return the workers as a table that sorts; nothing where one has done all."""
    if len(workers) < 2:
        return Html("")
    shown = sorted(workers, key=lambda one: (one.has_ended, -one.trained))[:MOST_WORKERS]
    rows = table(HEADINGS, [_worker_row(one) for one in workers if one in shown], WORDS, name="Workers")
    left = len(workers) - len(shown)
    return tag("div", rows, tag("p", f"{left:,} more are in report.json.", class_="quiet") if left else Html(""))


def _worker_row(one: facts.ReportedWorker) -> Html:
    seconds = tag("td", duration(one.seconds), class_="number", data_value=one.seconds)
    figures = [number(count, "d") for count in (one.attempts, one.trained)]
    words = [tag("td", word) for word in (one.worker, one.node, one.job, one.since)]
    now = "has ended" if one.has_ended else ", ".join(one.running)
    return tag("tr", *words, *figures, seconds, tag("td", now))
