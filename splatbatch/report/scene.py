"""Facts for the report about the whole scene: its map from above, and how well patches meet at seams."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from splatbatch.errors import SceneError
from splatbatch.hashing import FileFacts
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.evaluation import SceneEvaluation, SeamMeasurement
from splatbatch.output.records.merge import Merge
from splatbatch.output.records.metrics import deciding
from splatbatch.output.records.result import Result
from splatbatch.report.facts import CameraPosition, CoreBox, Grade, ReportedPartition, ReportedSeam, SceneMap
from splatbatch.report.quality import quality_of
from splatbatch.report.viewer.viewer import up_of
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.colmap.types import Image, centers_of
from splatbatch.scene.patches import Patch
from splatbatch.tasks.counts import behind_in_words
from splatbatch.tasks.shared_decisions.holdout import recorded_holdout
from splatbatch.text import plural

if TYPE_CHECKING:
    from splatbatch.scene.partition.border import Seam
    from splatbatch.scene.partition.record import Partition

SEAM_FIGURES = (
    "photographs",
    "PSNR dB",
    "PSNR between patches dB",
    "colour difference /255",
    "depth step %",
    "Gaussians ratio",
)
EVEN = (1.0, 0.01)
SLIGHT = (2.0, 0.02)
"""Limits of a seam's colour offset, in 1/255, and depth step, as a share of the depth, for the grade "slight".

A seam is invisible up to EVEN, which has the same two figures, and faint up to SLIGHT.
"""
UNLIKE = 2.0
"""Ratio of the numbers of Gaussians on both sides of a seam from which this ratio is named as a reason of a step."""
DIGITS = 9
"""Significant digits of a position: enough for centimetres in UTM coordinates."""
MOST_PATCHES = 400
"""Most patches for which a map is made by their cameras; with more, the report has no map."""
MOST_CAMERAS = 4000
"""Most cameras on a map made by cameras; of more, every n-th is drawn."""
MOST_BYTES = {"images.bin": 8 << 30, "images.txt": 64 << 20}
"""Largest size in bytes of all patches' lists of images together, by file name, for which a map is made.

Larger lists would delay the report, which then has no map.
"""
MIDDLE, FEW = (20, 80), 8
"""Percentiles of camera positions that bound a patch's box on each axis; up to FEW cameras are all inside the box.

Patches share many cameras: boxes around all of them would hide each other.
"""
LEAST_SIDE = 0.02
"""Least side of a patch's box on a map, as a share of the longer side of the map, for cameras that lie in a row."""
Places = npt.NDArray[np.float64]  # [N, 2]


def scene_facts(output: OutputFolder, patches: Path) -> ReportedPartition | None:
    """Return the facts about a scene that `splatbatch split` cut into patches; None if `patches` is no such folder.

    If partition.json cannot be read, or the merged splat is damaged, only `problem` is filled in.

    Args:
        output: the output folder.
        patches: folder of the patches, as `scene.patches` names it.

    Raises:
        LaterFormatError: a later version of splatbatch wrote a record of the scene or of a patch.
    """
    from splatbatch.scene.partition.border import seams_of
    from splatbatch.scene.partition.record import partition_of

    try:
        partition = partition_of(patches)
    except SceneError as error:
        return ReportedPartition(problem=error.message)
    if partition is None:
        return None
    merged, measured = output.scene.merged.read(), output.scene.read_evaluation()
    if merged and (damage := output.scene.merged.damage(merged, FileFacts(reads=False))):
        return ReportedPartition(problem=f"{damage}. Merge again: splatbatch merge.")
    found = measured or SceneEvaluation()
    seams = {seam.name: seam for seam in found.seams}
    return ReportedPartition(
        cores=tuple(
            CoreBox(core.name, place_from_above(core.bounds.lower), place_from_above(core.bounds.upper))
            for core in partition.cores
        ),
        cameras=_cameras(partition, found, output),
        seams=tuple(_seam(seam, seams.get(seam.name)) for seam in seams_of(partition)),
        evaluation=replace(measured, photos={}, seams=()) if measured else None,
        is_stale=measured is not None and _is_older(output, merged, measured),
        splat=str(output.scene.splat) if merged else "",
        behind=behind_in_words(merged) if merged else "",
        quality=quality_of(output.scene),
    )


def _is_older(output: OutputFolder, merged: Merge | None, measured: SceneEvaluation) -> bool:
    """Return whether the scene was merged again since it was measured."""
    if merged and merged.sha256 and measured.splat_sha256:
        return merged.sha256 != measured.splat_sha256
    try:  # an earlier version merged or measured it
        return output.scene.splat.stat().st_mtime_ns > output.scene.evaluation.stat().st_mtime_ns
    except OSError:
        return False


def _cameras(partition: Partition, found: SceneEvaluation, output: OutputFolder) -> tuple[CameraPosition, ...]:
    """Return the camera positions of the partition's photographs; held-out ones with name and PSNR."""
    try:
        images = read_images(partition.source)
    except SceneError:
        return ()
    places = partition.in_axes(centers_of(images))
    held_out = found.photos.keys() or {*recorded_holdout(output, [core.name for core in partition.cores])}
    cameras = []
    for image, place in zip(images, places.tolist(), strict=True):
        if np.isfinite(place).all():
            name = image.name if image.name in held_out else ""
            psnr = deciding(found.photos[name]) if name in found.photos else None
            cameras.append(CameraPosition(place_from_above(place), name, psnr))
    return tuple(cameras)


def _seam(seam: Seam, measured: SeamMeasurement | None) -> ReportedSeam:
    """Return a seam with its measurement and its line from above; a horizontal seam has no line."""
    found = measured or SeamMeasurement(seam.one.name, seam.other.name, problem="not measured yet")
    low = [max(a, b) for a, b in zip(seam.one.bounds.lower, seam.other.bounds.lower, strict=True)]
    high = [min(a, b) for a, b in zip(seam.one.bounds.upper, seam.other.bounds.upper, strict=True)]
    low[seam.axis] = high[seam.axis] = seam.at
    is_there = seam.axis < 2 and low[1 - seam.axis] < high[1 - seam.axis]
    line = (place_from_above(low), place_from_above(high)) if is_there else None
    return ReportedSeam(**vars(found), line=line, grade=grade(found))


def grade(seam: SeamMeasurement) -> Grade:
    """Return the grade of a seam: "even" within the limits EVEN, "slight" within SLIGHT, "step" beyond.

    "unknown" if colour offset or depth step was not measured.
    """
    color, depth = seam.color_offset, seam.depth_step
    if color is None or depth is None:
        return "unknown"
    if color <= EVEN[0] and abs(depth) <= EVEN[1]:
        return "even"
    return "slight" if color <= SLIGHT[0] and abs(depth) <= SLIGHT[1] else "step"


def why_it_steps(seam: SeamMeasurement) -> str:
    """Return the differences between both sides of a seam that exceed the limits SLIGHT, as text; empty: none does.

    With such a difference, a ratio of Gaussians from UNLIKE on is named, too.
    """
    color, depth, ratio = seam.color_offset, seam.depth_step, seam.density_ratio
    found = []
    if color is not None and color > SLIGHT[0]:
        found.append(f"colours differ by {color:.1f} of 255")
    if depth is not None and abs(depth) > SLIGHT[1]:
        found.append(f"{seam.one if depth > 0 else seam.other} lies {100 * abs(depth):.1f} % farther from the cameras")
    if found and ratio and max(ratio, 1 / ratio) >= UNLIKE:
        found.append(
            f"{seam.one if ratio > 1 else seam.other} has {max(ratio, 1 / ratio):.1f} times as many Gaussians there"
        )
    return ", ".join(found)


def place_from_above(values: Iterable[float]) -> tuple[float, float]:
    """Return the first two coordinates, x and y, as a place on a map, rounded to DIGITS significant digits.

    Raises:
        ValueError: there are fewer than two coordinates.
    """
    x, y, *_ = (float(f"{float(value):.{DIGITS}g}") for value in values)
    return x, y


def in_words(scene: ReportedPartition) -> str:
    """Return the evaluation of the merged scene as sentences: PSNR in dB on the whole and across seams.

    Without an evaluation, the sentence names the command that makes one.
    """
    found = scene.evaluation
    behind = f" {scene.behind}" if scene.behind else ""
    if found is None:
        return f"The merged scene has not been measured. Run splatbatch evaluate.{behind}"
    total, across, within = found.total, found.across, found.within
    on_covered = f"{_db(total.psnr_covered)} on covered pixels, " if total.psnr_covered is not None else ""
    photographs = plural(total.num_photos, "held-out photograph")
    words = (
        f"PSNR of the merged scene: {on_covered}{_db(total.psnr)} on {photographs}, {_db(across.psnr)} on those across "
        f"a seam between patches, {_db(within.psnr)} on the others; of the patches' own splats: {_db(total.own_psnr)}."
    )
    return words + (" Merged again after that: run splatbatch evaluate." if scene.is_stale else "") + behind


def _db(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f} dB"


def seam_figures(seam: ReportedSeam) -> tuple[str, ...]:
    """Return the figures of a seam as text, one for each heading of SEAM_FIGURES; unknown figures are empty.

    The number of photographs is "0" for a seam that was not measured.
    """
    step = None if seam.depth_step is None else 100 * seam.depth_step
    known = ((seam.across.num_photos, "d"), (seam.across.psnr, ".2f"), (seam.psnr_between, ".2f"))
    more = ((seam.color_offset, ".2f"), (step, "+.2f"), (seam.density_ratio, ".2f"))
    return tuple("" if value is None else f"{value:{form}}" for value, form in (*known, *more))


def overview(output: OutputFolder, patches: Sequence[Patch]) -> SceneMap | None:
    """Return the map of patches that no `splatbatch split` made: boxes around most of their cameras.

    Patches whose models have no readable cameras are named in `lacking`. None if no model has any, or there are more
    than MOST_PATCHES patches or MOST_BYTES of images.

    Args:
        output: the output folder, for the PSNR of held-out photographs.
        patches: patches whose COLMAP models share one coordinate system.

    Raises:
        LaterFormatError: a later version of splatbatch wrote result.json of a patch.
    """
    if not 0 < len(patches) <= MOST_PATCHES or any(_num_bytes(patches, name) > MOST_BYTES[name] for name in MOST_BYTES):
        return None
    images = {patch.name: found for patch in patches if (found := _images(patch))}
    if not images:
        return None
    axes = _axes([image for found in images.values() for image in found])
    places = {name: np.stack([image.center() for image in found]) @ axes.T for name, found in images.items()}
    least = LEAST_SIDE * float(max(np.ptp(np.concatenate([*places.values()]), axis=0).max(), 1e-9))
    cores = tuple(_box(name, found, least) for name, found in places.items())
    lacking = tuple(patch.name for patch in patches if patch.name not in images)
    held_out = {name: _held_out(output, name) for name in images}
    return SceneMap(cores, _cameras_of_patches(images, places, held_out), lacking=lacking)


def _num_bytes(patches: Sequence[Patch], name: str) -> int:
    total = 0
    for patch in patches:
        with contextlib.suppress(OSError):
            total += (patch.sparse / name).stat().st_size
    return total


def _images(patch: Patch) -> list[Image]:
    """Return the images of a patch with a finite pose; none if its model cannot be read."""
    try:
        found = read_images(patch.sparse)
    except (SceneError, OSError, ValueError):
        return []
    return [one for one in found if one.has_pose()]


def _axes(images: Sequence[Image]) -> Places:
    """Return the axes of the map as rows, [2, 3]: two horizontal directions, the first along the longer side."""
    chosen = images[:: max(1, len(images) // 2000)]
    up = up_of(chosen)
    centers = np.stack([image.center() for image in chosen])
    level = centers - centers.mean(axis=0)
    level -= np.outer(level @ up, up)
    along = np.linalg.eigh(level.T @ level + 1e-12 * np.eye(3)).eigenvectors[:, 2]
    along = along - (along @ up) * up
    length = float(np.linalg.norm(along))
    along = along / length if length > 1e-6 else np.linalg.svd(up[None])[2][1]
    return np.stack([along, np.cross(up, along)])


def _box(patch: str, places: Places, least: float) -> CoreBox:
    low, high = np.percentile(places, MIDDLE, axis=0) if len(places) > FEW else (places.min(axis=0), places.max(axis=0))
    room = np.maximum(least - (high - low), 0) / 2
    return CoreBox(patch, place_from_above(low - room), place_from_above(high + room))


def _held_out(output: OutputFolder, patch: str) -> Mapping[str, float | None]:
    result = output.patch(patch).read_result() or Result()
    return {name: deciding(figures) for name, figures in result.metrics.photos().items()}


def _cameras_of_patches(
    images: Mapping[str, Sequence[Image]],
    places: Mapping[str, Places],
    held_out: Mapping[str, Mapping[str, float | None]],
) -> tuple[CameraPosition, ...]:
    """Return the camera position of each photograph once, at most MOST_CAMERAS; held-out ones with name and PSNR."""
    seen: dict[str, CameraPosition] = {}
    for name, found in images.items():
        for image, place in zip(found, places[name], strict=True):
            psnr = held_out[name].get(image.name)
            is_held_out = image.name in held_out[name]
            if image.name not in seen or is_held_out:
                seen[image.name] = CameraPosition(place_from_above(place), image.name if is_held_out else "", psnr)
    cameras = tuple(seen.values())
    return cameras[:: max(1, -(-len(cameras) // MOST_CAMERAS))]
