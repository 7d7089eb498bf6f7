"""Flight plans: what to photograph next, where splats are weak or, before training, photographs are few."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.output.records.quality import Inspection
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_reconstruction
from splatbatch.scene.colmap.types import Floats, centers_of, triple
from splatbatch.scene.frame import shifted
from splatbatch.scene.next_flight import (
    Convert,
    CoverageSurvey,
    FlightCamera,
    FlightPlan,
    placed_cameras,
    suggest,
    up_of,
)
from splatbatch.scene.overlap import surface_cells
from splatbatch.scene.patches import list_names
from splatbatch.splats.blocks import sample_rows
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.task import of_patches

MOST_OBSTACLES = 200_000
"""About the largest number of points that a flight must avoid, of models and accepted splats.

Of more points an even sample is taken, which has up to twice as many.
"""
Cell = tuple[float, float, float, float]
"""Part of the scene's surface, in the splats' coordinates and units: x, y and z of its middle, and its side."""


def flight_of(batch: Batch, *, is_whole: bool = False) -> FlightPlan:
    """Return a plan of photographs that would help the patches of a batch; nothing is written.

    The plan is made for the parts of the surface (cells) that the inspections measured; for a patch without inspection,
    for those where its model has points. With `is_whole` the inspection of the merged scene is used, if there is one.

    Raises:
        SceneError: the patches have different offsets; a model cannot be read; no camera has a pose; or a patch has no
            inspection and hardly any points.
        LaterFormatError: a later version of splatbatch wrote an inspection or the record of a splat.
        ConfigError, TrainerError: scene.crs is no coordinate system, or pyproj is not installed.
    """
    tasks = of_patches(batch.tasks)
    offsets = {task.patch.offset for task in tasks}
    if len(offsets) > 1:
        raise SceneError(
            "these scenes have different offsets, and a flight plan covers one scene",
            "Name one scene: `splatbatch plan-capture p0`.",
        )
    subtracted, crs = offsets.pop(), batch.config.scene.crs or ""
    offset = np.array(subtracted)
    whole = batch.output.scene.read_inspection() if is_whole else None
    cells = {"scene": _inspected_cells(whole)} if whole else {}
    cameras, obstacles = dict[str, FlightCamera](), dict[str, list[Floats]]()
    read = lru_cache(maxsize=1)(read_reconstruction)  # the variants of a patch follow each other
    for task in tasks:
        model, folder = read(task.patch.sparse), batch.output.patch(task.name)
        placed = shifted(model, subtracted)
        if not whole:
            cells[task.name] = _inspected_cells(folder.read_inspection()) or _cells_of_points(model, offset)
        cameras |= placed_cameras(placed.images, model.cameras)
        obstacles[task.patch.name] = [placed.points.xyz]
        with suppress(OSError, ValueError):  # then the points of the model are enough
            obstacles[task.patch.name].append(sample_rows(folder.accepted_splat()[0]).astype(np.float64))
    if unknown := [name for name, known in cells.items() if not known]:
        few = f"{list_names(unknown, 5)}: not inspected, and the model has hardly any points to plan a flight by"
        raise SceneError(few, "Check the model: `splatbatch verify-dims --deep`. Or name the other patches.")
    if not cameras:
        raise SceneError(
            "no camera has a pose, so a flight cannot be planned", "Check the model: `splatbatch verify-dims`."
        )
    rows = np.array([cell for known in cells.values() for cell in known], dtype=np.float64)
    places, patches = rows[:, :3], [name for name, known in cells.items() for _ in known]
    up = up_of(places, [*cameras.values()], is_mapped=bool(crs))
    every = np.vstack([one for near in obstacles.values() for one in near])
    every = every[np.isfinite(every).all(axis=1)]
    survey = CoverageSurvey(places, rows[:, 3], [*cameras.values()], up, patches)
    plan = suggest(survey, every[:: max(1, len(every) // MOST_OBSTACLES)])
    to_globe: Convert | None = None
    if crs:
        from splatbatch.publish.tiles.geodesy import to_degrees  # which loads pyproj

        to_globe = to_degrees(crs, places.mean(axis=0) + offset)
    return replace(plan, name=", ".join(obstacles), offset=offset, to_globe=to_globe)


def _inspected_cells(inspection: Inspection | None) -> list[Cell]:
    cells = [one for one in inspection.cells if {"x", "y", "z", "size"} <= one.keys()] if inspection else []
    return [(one["x"], one["y"], one["z"], one["size"]) for one in cells]


def _cells_of_points(model: Reconstruction, offset: Floats) -> list[Cell]:
    """Return the cells in which points of a model lie, for a patch that is not inspected."""
    places, side = surface_cells(model.points.xyz, centers_of(model.images))
    return [(*triple(place - offset), side) for place in places]
