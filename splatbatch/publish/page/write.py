"""Writes the page: a folder for any static server, or one file for a splat that is small enough."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from splatbatch.errors import MissingPartError, OutputError
from splatbatch.files import write_text, write_whole
from splatbatch.publish.convert import Job, Written, convert
from splatbatch.publish.formats import FORMATS, Reader
from splatbatch.publish.page.page import Facts, asset, file_page, folder_page
from splatbatch.publish.page.sky import sky_of
from splatbatch.publish.page.stage import box_on, places_of, set_stage
from splatbatch.publish.source import SCENE, Part, Published
from splatbatch.publish.tiles.geodesy import on_globe
from splatbatch.publish.tool import Tool
from splatbatch.report.viewer.viewer import HOW, viewer_gz, viewer_script
from splatbatch.store.folders import BACKDROP

MOST_BYTES = 50_000_000
"""Of the splat in a page of one file: browsers hold it twice while they open it."""
MOST_AT_ONCE = 5_000_000
"""Gaussians that are read at once; a larger scene is streamed patch by patch, in one page."""
CONTENT = "splat"
NO_SKY = "no photograph shows the sky: the page has a plain one"


@dataclass(frozen=True)
class Page:
    """A page that was written, aside."""

    aside: Path
    """A file, or a folder."""
    splat: Written
    """What is in it."""
    notes: tuple[str, ...]


def write_page(splat: Published, crs: str, work: Path, tool: Tool) -> Page:
    """Write the page of a splat aside.

    Raises:
        MissingPartError: the viewer is not built.
        OutputError: the splat cannot be read, or not be written for the viewer.
        ConfigError: the CRS is none, or the scene lies outside its area.
    """
    if not viewer_script():
        raise MissingPartError("html: the viewer is not built", HOW["viewer"])
    facts = facts_of(splat, crs, splat.parts)
    notes = () if facts.has_sky else (NO_SKY,)
    whole = Part(splat.name, splat.path, 0, splat.num_gaussians, splat.sha256)
    if splat.name != SCENE:
        job, written = _packed(Job(whole, FORMATS["sog"], work / "sog"), facts, tool)
        if job.aside.stat().st_size <= MOST_BYTES:
            text = file_page(facts, "scene.sog", job.aside.read_bytes(), (viewer_gz(), viewer_script()))
            write_text(work / "page.html", text)
            return Page(work / "page.html", written, (*notes, *written.notes))
    pieces = splat.parts if splat.num_gaussians > MOST_AT_ONCE else ()
    job, written = _packed(Job(whole, FORMATS["streamed"], work / "streamed", pieces), facts, tool)
    folder = work / "page"
    folder.mkdir()
    job.aside.rename(folder / CONTENT)
    write_text(folder / "index.html", folder_page(facts, f"{CONTENT}/{job.form.suffix}"))
    write_whole(folder / "viewer.js", lambda file: file.write(viewer_script().encode()))
    for name in ("page.css", "page.js"):
        write_text(folder / name, asset(name))
    return Page(folder, written, (*notes, *written.notes))


def page_name(name: str, place: Path) -> str:
    """Return what the page of a splat is called, a file or a folder."""
    return f"{name}.html" if place.is_file() else f"{name}-page"


def _packed(job: Job, facts: Facts, tool: Tool) -> tuple[Job, Written]:
    """Write a splat for the viewer, turned so that its sky is above."""
    job.work.mkdir()
    reader: Reader = "tool" if job.part.num_gaussians <= MOST_AT_ONCE else "nothing"
    stage = facts.stage
    form = replace(job.form, turn=stage.tool_turn, turn_back=stage.tool_turn_back, reader=reader)
    turned = replace(job, form=form)
    return turned, convert(turned, tool)


def facts_of(splat: Published, crs: str, every: tuple[Part, ...]) -> Facts:
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
    return Facts(splat, stage, boxes, middles, sky, crs, scale, has_sky=is_known)
