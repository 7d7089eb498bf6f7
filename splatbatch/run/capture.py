"""Flight plans: what to photograph next, where splats are weak or, before training, photographs are few."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.colmap.types import Floats, centers_of, triple
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
from splatbatch.tasks.task import Task, of_patches

MOST_OBSTACLES = 200_000


def flight_of(batch: Batch, *, is_whole: bool = False) -> FlightPlan:
    """Return a plan of photographs that would help the patches of a batch.

    Its cells are those of the inspections; of a patch without one, those with points of its model. With `is_whole` they
    are those of the merged scene, if that is inspected.

    Raises:
        SceneError: the patches have different frames; no camera has a pose; or a patch has no inspection and hardly
            any points.
        ConfigError, TrainerError: scene.crs is no CRS, or pyproj is not installed.
    """
    tasks = of_patches(batch.tasks)
    offsets = {task.patch.offset for task in tasks}
    if len(offsets) > 1:
        raise SceneError("these scenes have different frames", "Name one scene: `splatbatch plan-capture p0`.")
    offset, crs = np.array(offsets.pop()), batch.config.scene.crs or ""
    places, sizes, patches = _cells(batch, tasks, is_whole=is_whole)
    cameras, obstacles = _models(batch, tasks, offset)
    if not cameras:
        raise SceneError("no camera has a pose, and a flight plan needs the distance of photographs")
    up = up_of(places, cameras, is_mapped=bool(crs))
    plan = suggest(CoverageSurvey(places, sizes, cameras, up, patches), obstacles)
    to_globe: Convert | None = None
    if crs:
        from splatbatch.publish.tiles.geodesy import to_degrees  # which loads pyproj

        to_globe = to_degrees(crs, places.mean(axis=0) + offset)
    name = ", ".join(dict.fromkeys(task.patch.name for task in tasks))
    return replace(plan, name=name, offset=offset, to_globe=to_globe)


def _cells(batch: Batch, tasks: Sequence[Task], *, is_whole: bool) -> tuple[Floats, Floats, list[str]]:
    """Return the cells of patches in the splats' coordinates: places [n, 3], sizes [n], and the patch of each.

    A patch gives the cells of its inspection; a patch without one gives the cells in which points of its model lie.
    """
    found, patches, unknown = list[tuple[float, float, float, float]](), list[str](), list[str]()
    inspections = {task.name: batch.output.patch(task.name).read_inspection() for task in tasks}
    if is_whole and (whole := batch.output.scene.read_inspection()) is not None:
        inspections = {"scene": whole}
    of_name = {task.name: task for task in tasks}
    for name, inspection in inspections.items():
        cells = [one for one in inspection.cells if {"x", "y", "z", "size"} <= one.keys()] if inspection else []
        known = [(one["x"], one["y"], one["z"], one["size"]) for one in cells] or _cells_of_points(of_name.get(name))
        unknown += [name] if not known else []
        found += known
        patches += [name] * len(known)
    if unknown:
        few = f"{list_names(unknown, 5)}: not inspected, and the model has hardly any points to plan a flight by"
        raise SceneError(few, "Check the model: `splatbatch verify-dims --deep`. Or name the other patches.")
    rows = np.array(found, dtype=np.float64)
    return rows[:, :3], rows[:, 3], patches


def _cells_of_points(task: Task | None) -> list[tuple[float, float, float, float]]:
    if task is None:
        return []
    model = read_reconstruction(task.patch.sparse)
    places, side = surface_cells(model.points.xyz, centers_of(model.images))
    return [(*triple(place - np.array(task.patch.offset)), side) for place in places]


def _models(batch: Batch, tasks: Sequence[Task], offset: Floats) -> tuple[list[FlightCamera], Floats]:
    """Return the camera of each photograph, and the points that a flight must avoid, in the splats' coordinates.

    The points are those of the models and of the accepted splats: about `MOST_OBSTACLES`, evenly taken.
    """
    cameras = {}
    places = list[Floats]()
    for task in {task.patch.name: task for task in tasks}.values():
        model = read_reconstruction(task.patch.sparse)
        for image in model.images:
            for camera in placed_cameras([image], model.cameras):
                matrix = camera.matrix.copy()
                matrix[:3, 3] += matrix[:3, :3] @ offset
                cameras[image.name] = FlightCamera(matrix, camera.focal, camera.size)
        places.append(model.points.xyz - offset)
        with suppress(OSError, ValueError):  # then the points of the model are enough
            places.append(sample_rows(batch.output.patch(task.name).accepted_splat()[0]).astype(np.float64))
    every = np.vstack(places)
    every = every[np.isfinite(every).all(axis=1)]
    return list(cameras.values()), every[:: max(1, len(every) // MOST_OBSTACLES)]
