"""The web page of a splat: 3D viewer, map of the patches, figures; it loads nothing from outside its folder."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment

from splatbatch import __version__
from splatbatch.errors import TrainerError
from splatbatch.files import write_text, write_whole
from splatbatch.output.folders import BACKDROP
from splatbatch.publish.convert import ConversionJob, ConvertedFile, convert
from splatbatch.publish.formats import FORMATS, FormatReader
from splatbatch.publish.rows import reading
from splatbatch.publish.source import PublishedSplat
from splatbatch.publish.stage import Color, UprightScene, box_on, places_of, set_stage, sky_of
from splatbatch.publish.tiles.geodesy import on_globe
from splatbatch.publish.tool import SplatTransform
from splatbatch.report.html import asset, digest, templates_of
from splatbatch.report.viewer.viewer import HOW, Vector, viewer_gz, viewer_script
from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.rotations import rotate
from splatbatch.tasks.inspection import SCENE
from splatbatch.text import spell_place

VERSION = 2
"""Version of the content of pages; raise it when that changes, so that `publish` writes all pages again."""
MOST_BYTES = 50_000_000
"""Largest .sog in bytes that is embedded in a page of one file; browsers hold its content twice while opening it."""
MOST_AT_ONCE = 5_000_000
"""Most Gaussians of a splat that is read back from its page; a larger scene is also converted patch by patch."""
CONTENT = "splat"
PACKAGE = "splatbatch.publish"
NO_SKY = "no photograph shows the sky: the page has a plain grey sky"
SHARED = "base-uri 'none'; form-action 'none'"
SIZE, MARGIN = 200.0, 8.0
NICE = (1, 2, 5, 10)
LOOKS_DOWN = -0.5
"""Upward part of a viewing direction below which it counts as steeply down: more than 30 degrees below the horizon."""


@dataclass(frozen=True)
class PhotoView:
    """A photograph that the page can show beside the splat, and the camera position it was taken from."""

    name: str
    file: Path
    eye: Floats
    """Position of the camera, [3], in the splat's coordinates."""
    forward: Floats
    """Viewing direction of the camera in the splat's axes, [3], of length 1."""
    fov_deg: float
    """Vertical field of view in degrees."""


@dataclass(frozen=True)
class PageFacts:
    """Everything that the page shows: splat, orientation, map, colour of the sky, coordinate system, photographs.

    `crs` is the name of the coordinate reference system; empty: the place on Earth is unknown.
    """

    splat: PublishedSplat
    stage: UprightScene
    boxes: Mapping[str, Floats]
    """Box of each patch on the map, by its name: lower and upper corner, [2, 2], in units of the scene."""
    middles: Mapping[str, Floats]
    """Median position of each patch's Gaussians, by its name: [3], in the splat's coordinates."""
    sky: Color
    crs: str = ""
    metres_per_unit: float | None = None
    """Metres that one unit of the scene is long; None if the scene has no coordinate reference system."""
    has_sky: bool = False
    """Whether the colour `sky` was measured on photographs; otherwise it is a neutral grey."""
    photos: tuple[PhotoView, ...] = ()
    """Photographs that the page can show; it asks for the n-th, from 0, as "photo/n". Empty: none are offered."""
    is_as_trained: bool = False
    """Whether the splat's file has the trained orientation; the page then rotates the splat so that the sky is up."""


def write_page(splat: PublishedSplat, crs: str, work: Path, tool: SplatTransform) -> tuple[Path, ConvertedFile]:
    """Write the web page of a splat into the folder `work`; return its path, and the conversion of the splat inside.

    A patch whose .sog has at most MOST_BYTES becomes one HTML file. Any other splat becomes a folder with index.html,
    which streams it. The notes of the conversion also tell if no photograph shows the sky.

    Args:
        splat: the splat.
        crs: coordinate reference system of the scene, as "EPSG:32632"; empty: the place on Earth is unknown.
        work: existing, empty folder.
        tool: splat-transform, which converts the splat.

    Raises:
        TrainerError: the viewer is not built, or a program or package that is needed is not installed.
        OutputError: the splat cannot be read, or cannot be converted for the viewer.
        ConfigError: the CRS is not known, is not usable, or does not fit the place of the scene.
        OSError: the page cannot be written.
    """
    if not viewer_script():
        raise TrainerError("format html: the viewer is not built", HOW["viewer"])
    facts = facts_of(splat, crs)
    notes = () if facts.has_sky else (NO_SKY,)
    whole = splat.whole()
    if splat.name != SCENE:
        job, written = _packed(ConversionJob(whole, FORMATS["sog"], work / "sog"), facts, tool)
        if job.aside.stat().st_size <= MOST_BYTES:
            text = file_page(facts, "scene.sog", job.aside.read_bytes(), (viewer_gz(), viewer_script()))
            write_text(work / "page.html", text)
            return work / "page.html", replace(written, notes=(*notes, *written.notes))
    pieces = splat.parts if splat.num_gaussians > MOST_AT_ONCE else ()
    job, written = _packed(ConversionJob(whole, FORMATS["streamed"], work / "streamed", pieces), facts, tool)
    folder = work / "page"
    folder.mkdir()
    job.aside.rename(folder / CONTENT)
    write_text(folder / "index.html", folder_page(facts, f"{CONTENT}/{job.form.suffix}"))
    write_whole(folder / "viewer.js", lambda file: file.write(viewer_script().encode()))
    for name in ("page.css", "page.js"):
        write_text(folder / name, asset(name, PACKAGE))
    return folder, replace(written, notes=(*notes, *written.notes))


def _packed(job: ConversionJob, facts: PageFacts, tool: SplatTransform) -> tuple[ConversionJob, ConvertedFile]:
    """Convert a splat for the viewer, rotated so that the sky is up; one above MOST_AT_ONCE is not read back."""
    job.work.mkdir()
    reader: FormatReader = "tool" if job.part.num_gaussians <= MOST_AT_ONCE else "nothing"
    stage = facts.stage
    turned = replace(job, form=replace(job.form, turn=stage.tool_turn, turn_back=stage.tool_turn_back, reader=reader))
    return turned, convert(turned, tool)


def facts_of(splat: PublishedSplat, crs: str) -> PageFacts:
    """Return what the page shows of a splat, with its parts (one per patch) on the map, without photographs.

    Parts without Gaussians and the backdrop are left off the map, unless no other part exists.

    Args:
        splat: the splat.
        crs: coordinate reference system of the scene, as "EPSG:32632"; empty: the place on Earth is unknown.

    Raises:
        OutputError: the splat cannot be read.
        ConfigError: the CRS is not known, is not usable, or does not fit the place of the scene.
        TrainerError: a CRS is given, and pyproj is not installed.
    """
    stage = set_stage(splat, crs)
    parts = [part for part in splat.parts_with_any() if part.name != BACKDROP] or splat.parts
    with reading(splat.path):
        places = {part.name: places_of(part) for part in parts}
    middles = {name: np.median(found, axis=0) for name, found in places.items()}
    sky, is_known = sky_of(splat, stage.up)
    middle = np.median([*middles.values()], axis=0)
    scale = on_globe(crs, middle + np.array(splat.offset)).scale if crs else None
    boxes = {name: box_on(stage.plan, found) for name, found in places.items()}
    return PageFacts(splat, stage, boxes, middles, sky, crs, scale, has_sky=is_known)


def folder_page(facts: PageFacts, content: str) -> str:
    """Return the text of index.html for a page that is a folder: it loads viewer.js, page.js and page.css from there.

    Args:
        facts: what the page shows.
        content: path of the splat's file relative to index.html.
    """
    policy = (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; connect-src 'self'"
        f" blob:; img-src 'self' data: blob:; worker-src 'self' blob:; {SHARED}"
    )
    return _document(facts, content, policy)


def file_page(facts: PageFacts, content: str, packed: bytes, viewer: tuple[bytes, str]) -> str:
    """Return the HTML of a page that is one file and loads nothing.

    Args:
        facts: what the page shows.
        content: file name of the splat, by whose ending the viewer knows the format.
        packed: content of the splat file, which is embedded in base64.
        viewer: the viewer's script gzipped, which is embedded, and as text, whose hash the page's policy allows.
    """
    script = asset("page.js", PACKAGE)
    policy = (
        f"default-src 'none'; script-src {digest(script)} {digest(viewer[1])} 'wasm-unsafe-eval'; style-src"
        f" 'unsafe-inline'; connect-src data: blob:; img-src data: blob:; worker-src blob:; {SHARED}"
    )
    spelled = {"packed": base64.b64encode(packed).decode(), "viewer": base64.b64encode(viewer[0]).decode()}
    return _document(facts, content, policy, script=script, style=asset("page.css", PACKAGE), **spelled)


def _document(facts: PageFacts, content: str, policy: str, **held: str) -> str:
    """Return the HTML of a page; `held` are the contents that a page of one file embeds, for the template."""
    plan = draw_plan(facts.boxes, facts.metres_per_unit)
    shown = {"facts": facts, "scene": _scene(facts, content), "plan": plan, "policy": policy, "packed": ""}
    return page_templates().get_template("page.html.j2").render(shown | held)


@cache
def page_templates() -> Environment:
    """Return the Jinja environment with the templates of the page and its map; repeated calls return the same one."""
    made = templates_of(PACKAGE)
    made.globals |= {"version": __version__, "spell_place": spell_place, "MARGIN": MARGIN}
    return made


def _scene(facts: PageFacts, content: str) -> dict[str, Any]:
    """Return the data for page.js: cameras, patches and photographs in the viewer's axes."""
    stage = facts.stage
    middle = np.median([*facts.middles.values()], axis=0)
    return {
        "content": content,
        "sky": [round(value, 4) for value in facts.sky],
        "start": _start(facts, middle),
        "plan": stage.in_viewer(stage.plan).round(9).tolist(),
        "patches": [
            {"name": name, "view": _above(stage, facts.middles[name], facts.boxes[name])} for name in facts.boxes
        ],
        "photos": [_photo(stage, one, f"photo/{n}", middle) for n, one in enumerate(facts.photos)],
        "rotation": _half_turned(stage.turn) if facts.is_as_trained else None,
    }


def _photo(stage: UprightScene, photo: PhotoView, url: str, middle: Floats) -> dict[str, Any]:
    """Return the camera of a photograph in the viewer's axes: eye, target, vertical field of view.

    The target lies in the viewing direction, at the depth of the scene's middle.
    """
    away = max(float((middle - photo.eye) @ photo.forward), 1e-3)
    view = stage.in_viewer(np.stack([photo.eye, photo.eye + away * photo.forward])).ravel().round(6).tolist()
    return {"name": photo.name, "url": url, "view": [*view, round(photo.fov_deg, 3)]}


def _half_turned(turn: Vector) -> list[float]:
    """Return a rotation w x y z followed by the viewer's half turn around z, in the viewer's order x y z w."""
    w, x, y, z = turn.tolist()
    return [-y, x, w, -z]


def _start(facts: PageFacts, middle: Floats) -> list[float]:
    """Return the viewer's first view, eye and target; empty if no camera is known.

    A camera that looks down steeply (LOOKS_DOWN) is moved back until it sees the whole splat.
    """
    if (camera := facts.stage.camera) is None:
        return []
    if camera.forward @ facts.stage.up < LOOKS_DOWN:
        away = np.linalg.norm(np.ptp(np.concatenate([*facts.boxes.values()]), axis=0))
        camera = replace(camera, eye=middle - away * camera.forward)
    return [float(value) for value in camera.looking_at(rotate(middle, facts.stage.turn)).split()]


def _above(stage: UprightScene, middle: Floats, box: Floats) -> list[float]:
    """Return a view of a whole patch from obliquely above: eye and target, six numbers in the viewer's axes."""
    away = 1.1 * float(np.linalg.norm(box[1] - box[0]))
    eye = middle + away * (0.7 * stage.up - 0.7 * stage.plan[1])
    found: list[float] = stage.in_viewer(np.stack([eye, middle])).ravel().round(6).tolist()
    return found


@dataclass(frozen=True)
class PatchPlan:
    """The map of patches from above, to be drawn as SVG; `width` and `height` are in pixels."""

    width: float
    height: float
    left: float
    """Position of the left edge along the map's x axis, in units of the scene."""
    top: float
    """Position of the upper edge along the map's y axis, which points up, in units of the scene."""
    unit: float
    """Pixels per unit of the scene."""
    patches: Mapping[str, tuple[float, float, float, float]]
    """Rectangle of each patch in pixels, by its name: left edge, upper edge, width, height."""
    scale: tuple[float, float] | None
    """Scale bar: a round number of metres, and its length in pixels; None if the length of a unit is unknown."""


def draw_plan(boxes: Mapping[str, Floats], metres_per_unit: float | None) -> PatchPlan:
    """Return the map of patches from above, with a scale bar if the length of a unit is known.

    Args:
        boxes: lower and upper corner of each patch on the map, [2, 2], in units of the scene; at least one.
        metres_per_unit: metres that a unit of the scene is long; None: unknown.

    Raises:
        ValueError: there is no box.
    """
    corners = np.concatenate([*boxes.values()])
    low, high = corners.min(axis=0), corners.max(axis=0)
    unit = (SIZE - 2 * MARGIN) / max(float((high - low).max()), 1e-12)
    width, height = (2 * MARGIN + unit * (high - low)).tolist()
    corner = np.array([low[0], high[1]])
    patches = {}
    for name, box in boxes.items():
        place = MARGIN + unit * np.abs(np.array([box[0, 0], box[1, 1]]) - corner)
        patches[name] = (*place.tolist(), *(unit * (box[1] - box[0])).tolist())
    scale = _scale_bar(unit / metres_per_unit, width / 2) if metres_per_unit else None
    left, top = float(low[0]) - MARGIN / unit, float(high[1]) + MARGIN / unit
    return PatchPlan(width, height, left, top, unit, patches, scale)


def _scale_bar(px_per_metre: float, most_px: float) -> tuple[float, float]:
    """Return the largest round number of metres that is at most `most_px` long on the map, and its length in pixels."""
    longest = most_px / px_per_metre
    power = 10.0 ** math.floor(math.log10(longest))
    metres = max(step * power for step in NICE if step * power <= longest)
    return metres, metres * px_per_metre
