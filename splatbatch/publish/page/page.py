"""The page as HTML: the viewer, a map, the figures; it asks nobody but the folder that it lies in."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from splatbatch import __version__
from splatbatch.plain_text import spell_place
from splatbatch.publish.page.plan import draw_plan
from splatbatch.publish.page.sky import Color
from splatbatch.publish.page.stage import Stage
from splatbatch.publish.source import Published
from splatbatch.report.page.html import Html, tag
from splatbatch.report.viewer.initial_camera import Vector
from splatbatch.scene.colmap.types import Floats
from splatbatch.splats.preview import rotated

VERSION = 1
"""Raise it when pages are made otherwise."""
NEEDLE = "M0 -16L5 2L0 -1L-5 2Z"
FIGURES = {
    "psnr": ("PSNR, held out", "{:.2f} dB"),
    "ssim": ("SSIM", "{:.3f}"),
    "num_photos": ("held-out photographs", "{:.0f}"),
}
SHARED = "base-uri 'none'; form-action 'none'"


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
class Facts:
    """What the page shows and says."""

    splat: Published
    stage: Stage
    boxes: Mapping[str, Floats]
    """Of the patches on the map, by name."""
    middles: Mapping[str, Floats]
    """Of the patches, in the splat's axes."""
    sky: Color
    crs: str = ""
    metres_per_unit: float | None = None
    """None: nobody knows."""
    has_sky: bool = False
    """Photographs say what colour it has."""
    photos: tuple[PhotoView, ...] = ()
    is_as_trained: bool = False
    """The content lies as it was trained: the page turns it so that its sky is above."""


def folder_page(facts: Facts, content: str) -> str:
    """Return index.html of a folder with viewer.js, page.js and page.css beside it."""
    policy = (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; connect-src 'self'"
        f" blob:; img-src 'self' data: blob:; worker-src 'self' blob:; {SHARED}"
    )
    head = [tag("link", rel="stylesheet", href="page.css"), tag("link", rel="icon", href="data:,")]
    scripts = [tag("script", src=name) for name in ("viewer.js", "page.js")]
    return _document(facts, content, policy, head, scripts)


def file_page(facts: Facts, content: str, packed: bytes, viewer: tuple[bytes, str]) -> str:
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


def _document(facts: Facts, content: str, policy: str, head: list[Html], scripts: list[Html]) -> str:
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


def _scene(facts: Facts, content: str) -> dict[str, Any]:
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


def _photo(stage: Stage, photo: PhotoView, middle: Floats) -> dict[str, Any]:
    """Return where a photograph was taken: the eye, what it looks to, as far away as the scene's middle."""
    away = max(float((middle - photo.eye) @ photo.forward), 1e-3)
    view = stage.in_viewer(np.stack([photo.eye, photo.eye + away * photo.forward])).ravel().round(6).tolist()
    return {"name": photo.name, "url": photo.url, "view": [*view, round(photo.fov_deg, 3)]}


def _half_turned(turn: Vector) -> list[float]:
    """Return a rotation w x y z, and then the viewer's own half turn around z, as its x y z w."""
    w, x, y, z = turn.tolist()
    return [-y, x, w, -z]


def _start(facts: Facts, middle: Floats) -> str:
    camera = facts.stage.camera
    return camera.looking_at(rotated(middle, facts.stage.turn)) if camera else ""


def _above(stage: Stage, middle: Floats, box: Floats) -> list[float]:
    """Return where one stands, and looks to, to see a patch as a whole: aslant from above, six numbers."""
    away = 1.1 * float(np.linalg.norm(box[1] - box[0]))
    eye = middle + away * (0.7 * stage.up - 0.7 * stage.plan[1])
    found: list[float] = stage.in_viewer(np.stack([eye, middle])).ravel().round(6).tolist()
    return found


def _about(facts: Facts) -> Html:
    splat = facts.splat
    rows = {"Gaussians": f"{splat.num_gaussians:,}"}
    if len(facts.boxes) > 1:
        rows["patches"] = str(len(facts.boxes))
    known = {
        "psnr": ("PSNR, held out", "{:.2f} dB"),
        "ssim": ("SSIM", "{:.3f}"),
        "num_photos": ("photographs", "{:.0f}"),
    }
    rows |= {label: form.format(splat.figures[key]) for key, (label, form) in known.items() if splat.figures.get(key)}
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


def _photos(facts: Facts) -> Html:
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
