"""`plan-capture`: what to photograph next, as a list, GeoJSON or KML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import typer

from splatbatch.commands.output import open_console, open_table, print_json
from splatbatch.errors import ConfigError, OutputError, SceneError
from splatbatch.files import write_text
from splatbatch.plain_text import counted, one_line
from splatbatch.scene.capture.flight import Convert, Flight
from splatbatch.scene.capture.suggest import suggest
from splatbatch.scene.capture.survey import Floats, Shot, Survey, shots_of, up_of
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.splats.blocks import sample_means
from splatbatch.store.folders.patch import PatchFolder
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.task import Task

SCENE = "scene"
"""Names all patches together."""
FORMATS = (".geojson", ".json", ".kml")
MOST_OBSTACLES = 200_000
MOST_SHOWN = 60
COLUMNS = ("view", "position", "heading", "pitch", "above target", "covers")


def plan_capture(config: Path | None, names: Sequence[str], to: Path | None, *, as_json: bool) -> None:
    """Say which photographs would help the weak cells of some patches; exit with 0, also where none are needed.

    Raises:
        ConfigError: the file is neither GeoJSON nor KML.
        SceneError: nothing of it is inspected.
        OutputError: the file cannot be written.
    """
    if to and to.suffix.lower() not in FORMATS:
        raise ConfigError(f"--to {to}: neither GeoJSON nor KML", "Name it *.geojson or *.kml.")
    batch = open_batch(config, [name for name in names if name != SCENE])
    if to:
        batch.see_apart("--to", to, to.parent)
    flight = flight_of(batch)
    if to:
        _write(flight, to)
    if as_json:
        print_json({"views": flight.records(), "weak_cells": len(flight.plan.cells), "left": len(flight.plan.left)})
        return
    _show(flight)
    if to:
        typer.echo(one_line(f"written: {to}"))


def flight_of(batch: Batch) -> Flight:
    """Return what to photograph next of the patches of a batch.

    Raises:
        SceneError: one is not inspected, or they lie in frames of their own.
        ConfigError, MissingPartError: scene.crs is no CRS, or pyproj is not installed.
    """
    tasks = [task for task in batch.tasks if not task.patch.is_backdrop]
    offsets = {task.patch.offset for task in tasks}
    if len(offsets) > 1:
        raise SceneError("these scenes stand by themselves, each in its own frame", "Name one: plan-capture p0.")
    offset, crs = np.array(offsets.pop()), batch.config.scene.crs or ""
    places, sizes, patches = _cells(batch, tasks)
    shots, obstacles = _models(batch, tasks, offset)
    if not shots:
        raise SceneError("no camera with a pose: nothing tells from how far photographs are taken")
    up = up_of(places, shots, is_mapped=bool(crs))
    plan = suggest(Survey(places, sizes, shots, up, patches), obstacles)
    to_globe = _to_globe(crs, places.mean(axis=0) + offset) if crs else None
    return Flight(plan, ", ".join(dict.fromkeys(task.patch.name for task in tasks)), offset, crs, to_globe)


def _cells(batch: Batch, tasks: Sequence[Task]) -> tuple[Floats, Floats, list[str]]:
    """Return the cells of patches, as they were inspected, in the splats' coordinates: places, sizes, patches."""
    found, patches, lacking = [], [], []
    for task in tasks:
        inspection = batch.output.patch(task.name).read_inspection()
        cells = [one for one in inspection.cells if {"x", "y", "z", "size"} <= one.keys()] if inspection else []
        if not cells:
            lacking.append(task.name)
        found += [(one["x"], one["y"], one["z"], one["size"]) for one in cells]
        patches += [task.name] * len(cells)
    if lacking:
        who, command = ", ".join(lacking[:5]), f"splatbatch inspect {' '.join(lacking[:5])}"
        raise SceneError(f"{who}: not inspected, so that nobody knows where it is weak", f"Run `{command}`.")
    rows = np.array(found, dtype=np.float64)
    return rows[:, :3], rows[:, 3], patches


def _models(batch: Batch, tasks: Sequence[Task], offset: Floats) -> tuple[list[Shot], Floats]:
    """Return all cameras, each photograph once, and what may be in the way, in the splats' coordinates."""
    shots: dict[str, Shot] = {}
    places: list[Floats] = []
    for task in {task.patch.name: task for task in tasks}.values():
        model = read_reconstruction(task.patch.sparse)
        for image in model.images:
            for shot in shots_of([image], model.cameras):
                shots[image.name] = _moved(shot, offset)
        places += [model.points.xyz - offset, _gaussians(batch.output.patch(task.name))]
    every = np.vstack(places)
    every = every[np.isfinite(every).all(axis=1)]
    return list(shots.values()), every[:: max(1, len(every) // MOST_OBSTACLES)]


def _gaussians(folder: PatchFolder) -> Floats:
    result = folder.read_result()
    try:
        found: Floats = sample_means(folder.splat_of(result) if result else folder.splat).astype(np.float64)
    except (OSError, ValueError):  # the points of the model are there all the same
        return np.zeros((0, 3))
    return found


def _moved(shot: Shot, offset: Floats) -> Shot:
    matrix = shot.matrix.copy()
    matrix[:3, 3] += matrix[:3, :3] @ offset
    return Shot(matrix, shot.focal, shot.size)


def _to_globe(crs: str, middle: Floats) -> Convert:
    from splatbatch.publish.tiles.geodesy import to_degrees  # which loads pyproj

    return to_degrees(crs, middle)


def _write(flight: Flight, to: Path) -> None:
    try:
        write_text(to, flight.to_kml() if to.suffix.lower() == ".kml" else flight.to_geojson())
    except OSError as error:
        raise OutputError(f"--to {to}: cannot be written ({error.strerror})", "Name a file in a folder.") from error


def _show(flight: Flight) -> None:
    plan = flight.plan
    if not plan.cells:
        typer.echo("every cell is seen often enough, from far enough apart: no photograph is needed")
        return
    table = open_table(COLUMNS, ("view", "position"))
    for view in flight.records()[:MOST_SHOWN]:
        place = ", ".join(f"{one:.10g}" for one in view["position"])
        figures = (f"{view['heading_deg']:g}", f"{view['pitch_deg']:g}", f"{view['above_target']:g}")
        table.add_row(view["name"], place, *figures, counted(len(view["covers"]), "cell"))
    open_console().print(table)
    kinds = [cell.why for cell in plan.cells]
    told = ", ".join(f"{kinds.count(why)} {why}" for why in dict.fromkeys(kinds))
    covers = f"{counted(len(plan.views), 'photograph')} for {counted(len(plan.cells), 'weak cell')} ({told})"
    typer.echo(one_line(f"{covers}, from {plan.distance:.4g} away; headings clockwise from the model's y axis"))
    if plan.left:
        typer.echo(one_line(f"{counted(len(plan.left), 'cell')} would still lack some: nothing is free around there"))
