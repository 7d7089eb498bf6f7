"""The page as HTML: the viewer, a map, the figures; it loads nothing from outside its folder."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from splatbatch import __version__
from splatbatch.errors import OutputError, TrainerError
from splatbatch.files import write_text, write_whole
from splatbatch.output.folders import BACKDROP
from splatbatch.publish.convert import ConversionJob, ConvertedFile, convert
from splatbatch.publish.formats import FORMATS, FormatReader
from splatbatch.publish.page.html import Html, tag
from splatbatch.publish.source import SCENE, PublishedSplat, SourcePart
from splatbatch.publish.stage import Color, UprightScene, box_on, places_of, set_stage, sky_of
from splatbatch.publish.tiles.geodesy import on_globe
from splatbatch.publish.tool import SplatTransform
from splatbatch.report.viewer.viewer import HOW, Vector, viewer_gz, viewer_script
from splatbatch.scene.colmap.types import Floats
from splatbatch.splats.preview import rotated
from splatbatch.text import spell_place

VERSION = 2
"""Raise it when pages are made otherwise."""
MOST_BYTES = 50_000_000
"""Of the splat in a page of one file: browsers hold it twice while they open it."""
MOST_AT_ONCE = 5_000_000
"""Gaussians that are read at once; a larger scene is streamed patch by patch, in one page."""
CONTENT = "splat"
NO_SKY = "no photograph shows the sky: the page has a plain one"
NEEDLE = "M0 -16L5 2L0 -1L-5 2Z"
SHARED = "base-uri 'none'; form-action 'none'"
SIZE, MARGIN = 200.0, 8.0
NICE = (1, 2, 5, 10)
LEAST_LABEL = 26.0
"""Of a box's width: what is narrower says its name under the cursor."""
FIGURES = {
    "psnr_covered": ("PSNR, held out, covered pixels", "{:.2f} dB"),
    "psnr": ("PSNR, held out", "{:.2f} dB"),
    "ssim": ("SSIM", "{:.3f}"),
    "num_photos": ("photographs", "{:.0f}"),
}
"""What the page says of a splat's figures, each in words and as it is spelled."""


@dataclass(frozen=True)
class PhotoView:
    """A photograph that the page shows beside the splat, seen from where it was taken."""

    name: str
    url: str
    eye: Floats
    """In the splat's axes."""
    forward: Floats
    fov_deg: float
    """From its lower to its upper edge."""


@dataclass(frozen=True)
class PageFacts:
    """What the page shows and says."""

    splat: PublishedSplat
    stage: UprightScene
    boxes: Mapping[str, Floats]
    """Of the patches on the map, by name."""
    middles: Mapping[str, Floats]
    """Of the patches, in the splat's axes."""
    sky: Color
    crs: str = ""
    metres_per_unit: float | None = None
    """None: unknown."""
    has_sky: bool = False
    """Photographs say what colour it has."""
    photos: tuple[PhotoView, ...] = ()
    is_as_trained: bool = False
    """The content lies as it was trained: the page turns it so that its sky is above."""


@dataclass(frozen=True)
class ViewerPage:
    """A page that was written, aside."""

    aside: Path
    """A file, or a folder."""
    splat: ConvertedFile
    """What is in it."""
    notes: tuple[str, ...]


def write_page(splat: PublishedSplat, crs: str, work: Path, tool: SplatTransform) -> ViewerPage:
    """Write the page of a splat aside.

    Raises:
        TrainerError: the viewer is not built.
        OutputError: the splat cannot be read, or not be written for the viewer.
        ConfigError: the CRS is none, or the scene lies outside its area.
    """
    if not viewer_script():
        raise TrainerError("html: the viewer is not built", HOW["viewer"])
    facts = facts_of(splat, crs, splat.parts)
    notes = () if facts.has_sky else (NO_SKY,)
    whole = SourcePart(splat.name, splat.path, 0, splat.num_gaussians, splat.sha256)
    if splat.name != SCENE:
        job, written = _packed(ConversionJob(whole, FORMATS["sog"], work / "sog"), facts, tool)
        if job.aside.stat().st_size <= MOST_BYTES:
            text = file_page(facts, "scene.sog", job.aside.read_bytes(), (viewer_gz(), viewer_script()))
            write_text(work / "page.html", text)
            return ViewerPage(work / "page.html", written, (*notes, *written.notes))
    pieces = splat.parts if splat.num_gaussians > MOST_AT_ONCE else ()
    job, written = _packed(ConversionJob(whole, FORMATS["streamed"], work / "streamed", pieces), facts, tool)
    folder = work / "page"
    folder.mkdir()
    job.aside.rename(folder / CONTENT)
    write_text(folder / "index.html", folder_page(facts, f"{CONTENT}/{job.form.suffix}"))
    write_whole(folder / "viewer.js", lambda file: file.write(viewer_script().encode()))
    for name in ("page.css", "page.js"):
        write_text(folder / name, asset(name))
    return ViewerPage(folder, written, (*notes, *written.notes))


def page_name(name: str, place: Path) -> str:
    """Return what the page of a splat is called, a file or a folder."""
    return f"{name}.html" if place.is_file() else f"{name}-page"


def _packed(job: ConversionJob, facts: PageFacts, tool: SplatTransform) -> tuple[ConversionJob, ConvertedFile]:
    """Write a splat for the viewer, turned so that its sky is above."""
    job.work.mkdir()
    reader: FormatReader = "tool" if job.part.num_gaussians <= MOST_AT_ONCE else "nothing"
    stage = facts.stage
    form = replace(job.form, turn=stage.tool_turn, turn_back=stage.tool_turn_back, reader=reader)
    turned = replace(job, form=form)
    return turned, convert(turned, tool)


def facts_of(splat: PublishedSplat, crs: str, every: tuple[SourcePart, ...]) -> PageFacts:
    """Return what the page shows of a splat, with these parts on its map.

    Raises:
        OutputError: the splat cannot be read.
    """
    stage = set_stage(splat, crs)
    parts = [part for part in every if part.num_gaussians and part.name != BACKDROP] or list(every)
    try:
        places = {part.name: places_of(part) for part in parts}
    except (OSError, ValueError) as error:
        raise OutputError(f"{splat.path}: {error}", "Train or merge it again.") from error
    middles = {name: np.median(found, axis=0) for name, found in places.items()}
    sky, is_known = sky_of(splat, stage.up)
    scale = None
    if crs:
        scale = on_globe(crs, np.median([*middles.values()], axis=0) + np.array(splat.offset)).scale
    boxes = {name: box_on(stage.plan, found) for name, found in places.items()}
    return PageFacts(splat, stage, boxes, middles, sky, crs, scale, has_sky=is_known)


def folder_page(facts: PageFacts, content: str) -> str:
    """Return index.html of a folder with viewer.js, page.js and page.css beside it."""
    policy = (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; connect-src 'self'"
        f" blob:; img-src 'self' data: blob:; worker-src 'self' blob:; {SHARED}"
    )
    head = [tag("link", rel="stylesheet", href="page.css"), tag("link", rel="icon", href="data:,")]
    scripts = [tag("script", src=name) for name in ("viewer.js", "page.js")]
    return _document(facts, content, policy, head, scripts)


def file_page(facts: PageFacts, content: str, packed: bytes, viewer: tuple[bytes, str]) -> str:
    """Return a page that holds everything: the splat, and the viewer as it is packed and as its hash is taken."""
    style, script = asset("page.css"), asset("page.js")
    policy = (
        f"default-src 'none'; script-src {digest(script)} {digest(viewer[1])} 'wasm-unsafe-eval'; style-src"
        f" 'unsafe-inline'; connect-src data: blob:; img-src data: blob:; worker-src blob:; {SHARED}"
    )
    templates = [
        tag("template", Html(base64.b64encode(data).decode()), id=name)
        for name, data in (("viewer", viewer[0]), ("splat", packed))
    ]
    head = [tag("style", Html(style)), tag("link", rel="icon", href="data:,")]
    return _document(facts, content, policy, head, [*templates, tag("script", Html(script))])


@cache
def asset(name: str) -> str:
    """Return the text of the page's style, or of its script."""
    return files("splatbatch.publish.page").joinpath(name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """Return a script's hash, as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _document(facts: PageFacts, content: str, policy: str, head: list[Html], scripts: list[Html]) -> str:
    first = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", facts.splat.name),
    ]
    data = json.dumps(_scene(facts, content)).replace("<", "\\u003c")
    body = [
        tag("div", id="stage"),
        tag("div", tag("span"), id="bar"),
        _about(facts),
        tag("div", draw_plan(facts.boxes, facts.metres_per_unit), id="where", class_="panel"),
        *([_photos(facts)] if facts.photos else []),
        *([_compass()] if facts.stage.north is not None else []),
        tag("script", Html(data), id="scene", type="application/json"),
        *scripts,
    ]
    return f"<!doctype html>\n{tag('html', tag('head', *first, *head), tag('body', *body), lang='en')}\n"


def _scene(facts: PageFacts, content: str) -> dict[str, Any]:
    """Return what the script is told: where things are in the viewer's axes."""
    stage = facts.stage
    middle = np.median([*facts.middles.values()], axis=0)
    turned = stage.in_viewer(middle[None])[0]
    start = [float(value) for value in _start(facts, middle).split()] if stage.camera else []
    return {
        "content": content,
        "sky": [round(value, 4) for value in facts.sky],
        "start": start,
        "plan": stage.in_viewer(stage.plan).round(9).tolist(),
        "middle": turned.round(6).tolist(),
        "patches": [
            {"name": name, "view": _above(stage, facts.middles[name], facts.boxes[name])} for name in facts.boxes
        ],
        "photos": [_photo(stage, one, middle) for one in facts.photos],
        "rotation": _half_turned(stage.turn) if facts.is_as_trained else None,
    }


def _photo(stage: UprightScene, photo: PhotoView, middle: Floats) -> dict[str, Any]:
    """Return where a photograph was taken: the eye, what it looks to, as far away as the scene's middle."""
    away = max(float((middle - photo.eye) @ photo.forward), 1e-3)
    view = stage.in_viewer(np.stack([photo.eye, photo.eye + away * photo.forward])).ravel().round(6).tolist()
    return {"name": photo.name, "url": photo.url, "view": [*view, round(photo.fov_deg, 3)]}


def _half_turned(turn: Vector) -> list[float]:
    """Return a rotation w x y z, and then the viewer's own half turn around z, as its x y z w."""
    w, x, y, z = turn.tolist()
    return [-y, x, w, -z]


def _start(facts: PageFacts, middle: Floats) -> str:
    camera = facts.stage.camera
    return camera.looking_at(rotated(middle, facts.stage.turn)) if camera else ""


def _above(stage: UprightScene, middle: Floats, box: Floats) -> list[float]:
    """Return where one stands, and looks to, to see a patch as a whole: aslant from above, six numbers."""
    away = 1.1 * float(np.linalg.norm(box[1] - box[0]))
    eye = middle + away * (0.7 * stage.up - 0.7 * stage.plan[1])
    found: list[float] = stage.in_viewer(np.stack([eye, middle])).ravel().round(6).tolist()
    return found


def _about(facts: PageFacts) -> Html:
    splat = facts.splat
    rows = {"Gaussians": f"{splat.num_gaussians:,}"}
    if len(facts.boxes) > 1:
        rows["patches"] = str(len(facts.boxes))
    figures = splat.figures
    rows |= {label: form.format(figures[key]) for key, (label, form) in FIGURES.items() if figures.get(key)}
    if facts.crs:
        rows["coordinates"] = facts.crs
    cells = [tag("tr", tag("td", name), tag("td", value)) for name, value in rows.items()]
    place = [tag("p", f"The splat's origin lies at {spell_place(splat.offset)}.")] if any(splat.offset) else []
    return tag(
        "details",
        tag("summary", tag("h1", splat.name, style="display:inline")),
        tag("table", tag("tbody", *cells)),
        *place,
        *(tag("p", one) for one in splat.warnings),
        tag("p", "drag: turn, right button: move, wheel: nearer", id="said"),
        tag("button", "back to the start", id="back", type="button"),
        tag("p", f"splatbatch {__version__}, viewer by PlayCanvas (MIT)"),
        id="about",
        class_="panel",
        open=True,
    )


def _photos(facts: PageFacts) -> Html:
    """Return the photographs to choose from; the chosen one is shown beside the splat."""
    choices = [tag("option", one.name, value=str(index)) for index, one in enumerate(facts.photos)]
    first = tag("option", "a photograph …", value="", selected=True)
    picture = tag("img", alt="the photograph", hidden=True)
    return tag("div", tag("select", first, *choices, aria_label="photograph"), picture, id="photo", class_="panel")


def _compass() -> Html:
    south = tag("path", d=NEEDLE, transform="rotate(180)", fill="#cbd5e1")
    needle = tag("g", tag("path", d=NEEDLE, fill="#f87171"), south)
    text = tag("text", "N", y=-16, text_anchor="middle", font_size=6, fill="#f3f4f6")
    return tag("div", tag("svg", needle, text, viewBox="-24 -24 48 48"), id="compass", role="img", aria_label="North")


def draw_plan(boxes: Mapping[str, Floats], metres_per_unit: float | None) -> Html:
    """Return the map of patches, each a box [2, 2]; with metres for a unit it has an arrow to the north and a scale.

    The script moves its marker `.here`, by the attributes: units of the scene at the left and at the bottom, and the
    size of a unit.
    """
    corners = np.concatenate([*boxes.values()])
    low, high = corners.min(axis=0), corners.max(axis=0)
    unit = (SIZE - 2 * MARGIN) / max(float((high - low).max()), 1e-12)
    width, height = (2 * MARGIN + unit * (high - low)).tolist()
    corner = np.array([low[0], high[1]])
    on_sheet = {name: MARGIN + unit * np.abs(np.array([box[0, 0], box[1, 1]]) - corner) for name, box in boxes.items()}
    patches = [
        _patch(name, index, on_sheet[name], unit * (box[1] - box[0])) for index, (name, box) in enumerate(boxes.items())
    ]
    here = tag("path", class_="here", d="M0 -7L4.5 5L0 2L-4.5 5Z")
    foot = 24.0 if metres_per_unit else 0.0
    known = [_scale_bar(unit / metres_per_unit, width, height), _north(width)] if metres_per_unit else []
    return tag(
        "svg",
        *patches,
        here,
        *known,
        id="plan",
        viewBox=f"0 0 {width:.1f} {height + foot:.1f}",
        role="group",
        aria_label="Map of the patches",
        data_left=f"{float(low[0]) - MARGIN / unit:.9g}",
        data_top=f"{float(high[1]) + MARGIN / unit:.9g}",
        data_unit=f"{unit:.9g}",
    )


def _patch(name: str, index: int, at_px: Floats, size_px: Floats) -> Html:
    (x, y), (wide, tall) = at_px.tolist(), size_px.tolist()
    rect = tag("rect", x=round(x, 1), y=round(y, 1), width=round(wide, 1), height=round(tall, 1))
    at = {"x": round(x + wide / 2, 1), "y": round(y + tall / 2 + 4, 1)}
    label = tag("text", name, text_anchor="middle", **at) if wide >= LEAST_LABEL else Html("")
    return tag("g", tag("title", name), rect, label, class_="patch", role="button", tabindex="0", data_patch=str(index))


def _scale_bar(px_per_metre: float, width: float, height: float) -> Html:
    """Return a bar of a round number of metres, at most half of the map long."""
    longest = width / 2 / px_per_metre
    power = 10.0 ** math.floor(math.log10(longest))
    metres = max(step * power for step in NICE if step * power <= longest)
    length, y = metres * px_per_metre, height + 8
    line = tag("path", d=f"M{MARGIN} {y - 4:.1f}v4h{length:.1f}v-4")
    words = f"{metres / 1000:g} km" if metres >= 1000 else f"{metres:g} m"
    return tag("g", line, tag("text", words, x=round(MARGIN + length + 5, 1), y=round(y + 2, 1)), class_="scale")


def _north(width: float) -> Html:
    x = width - MARGIN - 8
    return tag("g", tag("path", d=f"M{x:.1f} 34V12m-5 8l5 -9l5 9"), tag("text", "N", x=x - 4, y=46), class_="north")
