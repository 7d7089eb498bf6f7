"""What the report says of the whole scene: its partition from above, where cameras stand, how well patches meet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from splatbatch.errors import SceneError
from splatbatch.identity import FileFacts
from splatbatch.plain_text import counted
from splatbatch.report.facts import CameraPlace, CoreBox, CutScene, Grade, ReportedSeam
from splatbatch.report.quality import quality_of_scene
from splatbatch.store.layout import OutputFolder
from splatbatch.store.records.evaluation import SceneEvaluation, SeamMeasured
from splatbatch.store.records.merge import Merge

if TYPE_CHECKING:
    from splatbatch.scene.partition.record import Partition
    from splatbatch.scene.partition.seams import Seam

SEAM_FIGURES = ("photographs", "PSNR dB", "between dB", "colour /255", "depth step %", "density")
EVEN = (1.0, 0.01)
SLIGHT = (2.0, 0.02)
"""Colour offset in 1/255, and depth step: up to here nobody sees a seam; up to here who looks for it does."""
DIGITS = 9
"""Of a place: centimetres in UTM, and all that a scene of any unit needs."""


def scene_facts(output: OutputFolder, patches: Path) -> CutScene | None:
    """Return what there is to say of a scene that was cut into patches; None where none was."""
    from splatbatch.scene.partition.record import partition_of

    try:
        partition = partition_of(patches)
    except SceneError as error:
        return CutScene(problem=error.message)
    if partition is None:
        return None
    merged, measured = output.scene.merged.read(), output.scene.read_evaluation()
    if merged and (damage := output.scene.merged.damage(merged, FileFacts(reads=False))):
        return CutScene(problem=f"{damage}. Merge again: splatbatch merge.")
    found = measured or SceneEvaluation()
    return CutScene(
        cores=tuple(
            CoreBox(core.name, place_from_above(core.bounds.lower), place_from_above(core.bounds.upper))
            for core in partition.cores
        ),
        cameras=_cameras(partition, found, output),
        seams=_seams(partition, found),
        evaluation=replace(measured, photos={}, seams=()) if measured else None,
        is_stale=measured is not None and _is_older(output, merged, measured),
        quality=quality_of_scene(output.scene),
    )


def _is_older(output: OutputFolder, merged: Merge | None, measured: SceneEvaluation) -> bool:
    """Return whether the scene was merged again since it was measured."""
    if merged and merged.sha256 and measured.splat_sha256:
        return merged.sha256 != measured.splat_sha256
    try:  # an earlier version merged or measured it
        return output.scene.splat.stat().st_mtime_ns > output.scene.evaluation.stat().st_mtime_ns
    except OSError:
        return False


def _cameras(partition: Partition, found: SceneEvaluation, output: OutputFolder) -> tuple[CameraPlace, ...]:
    """Return where photographs were taken from, those that are held out with what they show of the scene."""
    import numpy as np

    from splatbatch.scene.colmap.reconstruction import read_images

    try:
        images = read_images(partition.source)
    except SceneError:
        return ()
    places = partition.in_axes(np.array([image.center() for image in images]).reshape(-1, 3))
    merged = output.scene.merged.read()
    recorded = partition.test if merged is None or merged.held_out is None else merged.held_out
    held_out = found.photos.keys() or {*recorded}
    cameras = []
    for image, place in zip(images, places.tolist(), strict=True):
        if np.isfinite(place).all():
            name = image.name if image.name in held_out else ""
            psnr = found.photos[name].psnr if name in found.photos else None
            cameras.append(CameraPlace(place_from_above(place), name, psnr))
    return tuple(cameras)


def _seams(partition: Partition, found: SceneEvaluation) -> tuple[ReportedSeam, ...]:
    from splatbatch.scene.partition.seams import seams_of

    measured = {seam.name: seam for seam in found.seams}
    return tuple(_seam(seam, measured.get(seam.name)) for seam in seams_of(partition))


def _seam(seam: Seam, measured: SeamMeasured | None) -> ReportedSeam:
    """Return a seam with the line that it is from above; none where it lies level."""
    found = measured or SeamMeasured(seam.one.name, seam.other.name, problem="not measured yet")
    low = [max(a, b) for a, b in zip(seam.one.bounds.lower, seam.other.bounds.lower, strict=True)]
    high = [min(a, b) for a, b in zip(seam.one.bounds.upper, seam.other.bounds.upper, strict=True)]
    low[seam.axis] = high[seam.axis] = seam.at
    is_there = seam.axis < 2 and low[1 - seam.axis] < high[1 - seam.axis]
    line = (place_from_above(low), place_from_above(high)) if is_there else None
    told = {one.name: getattr(found, one.name) for one in fields(found)}
    return ReportedSeam(**told, line=line, grade=grade(found))


def grade(seam: SeamMeasured) -> Grade:
    """Return how well two patches meet: even, slight, step; unknown where nobody has measured it."""
    color, depth = seam.color_offset, seam.depth_step
    if color is None or depth is None:
        return "unknown"
    if color <= EVEN[0] and abs(depth) <= EVEN[1]:
        return "even"
    return "slight" if color <= SLIGHT[0] and abs(depth) <= SLIGHT[1] else "step"


def place_from_above(values: Iterable[float]) -> tuple[float, float]:
    """Return the first two of some coordinates, rounded."""
    x, y, *_ = (float(f"{float(value):.{DIGITS}g}") for value in values)
    return x, y


def in_words(scene: CutScene) -> str:
    """Return what was measured of the merged scene in a sentence."""
    found = scene.evaluation
    if found is None:
        return "The merged scene has not been measured: splatbatch evaluate."
    total, across, within = found.total, found.across, found.within
    words = f"Merged: {_db(total.psnr)} on {counted(total.num_photos, 'held-out photograph')}"
    words += f", {_db(across.psnr)} on those across a seam, {_db(within.psnr)} on the others"
    words += f"; the patches' own splats {_db(total.own_psnr)}."
    return words + (" The scene was merged again since." if scene.is_stale else "")


def _db(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f} dB"


def seam_figures(seam: ReportedSeam) -> tuple[str, ...]:
    """Return the figures of a seam under `SEAM_FIGURES`; empty where they are unknown."""
    step = None if seam.depth_step is None else 100 * seam.depth_step
    known = ((seam.across.num_photos, "d"), (seam.across.psnr, ".2f"), (seam.psnr_between, ".2f"))
    more = ((seam.color_offset, ".2f"), (step, "+.2f"), (seam.density_ratio, ".2f"))
    return tuple("" if value is None else f"{value:{form}}" for value, form in (*known, *more))
