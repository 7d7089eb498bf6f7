"""The patches of a batch from above where no partition says where they lie: each is where its cameras stand."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from splatbatch.errors import SceneError
from splatbatch.report.facts import CameraPlace, CoreBox, Overview
from splatbatch.report.scene.merged import place_from_above
from splatbatch.report.viewer.initial_camera import up_of
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.colmap.types import Image
from splatbatch.scene.patches import Patch
from splatbatch.store.layout import OutputFolder
from splatbatch.store.records.result import Result

MOST_PATCHES = 400
MOST_CAMERAS = 4000
"""Drawn; of more, every second or third one."""
MOST_BYTES = {"images.bin": 8 << 30, "images.txt": 64 << 20}
"""Of the lists of images, of which the binary ones are skipped through: the report is not to wait for its map."""
MIDDLE, FEW = (20, 80), 8
"""Percent of its cameras between which a patch's box lies, along each side; of a few it takes in all. Patches overlap
by many cameras: boxes around them all would hide each other."""
LEAST_SIDE = 0.02
"""Of the whole: cameras in a row are a patch, too."""
Places = npt.NDArray[np.float64]  # [N, 2]


def overview(output: OutputFolder, patches: Sequence[Patch]) -> Overview | None:
    """Return boxes of patches and places of cameras from above, None with nothing to draw.

    Args:
        output: where the results lie, which say what held-out photographs show.
        patches: in one world; their models are read.
    """
    if not 0 < len(patches) <= MOST_PATCHES or any(_num_bytes(patches, name) > MOST_BYTES[name] for name in MOST_BYTES):
        return None
    images = {patch.name: found for patch in patches if (found := _images(patch))}
    if not images:
        return None
    axes = _axes([image for found in images.values() for image in found])
    places = {name: np.stack([image.center() for image in found]) @ axes.T for name, found in images.items()}
    whole = np.concatenate(list(places.values()))
    least = LEAST_SIDE * float(max(np.ptp(whole, axis=0).max(), 1e-9))
    cores = tuple(_box(name, found, least) for name, found in places.items())
    lacking = tuple(patch.name for patch in patches if patch.name not in images)
    held_out = {name: _held_out(output, name) for name in images}
    return Overview(cores, _cameras(images, places, held_out), lacking=lacking)


def _num_bytes(patches: Sequence[Patch], name: str) -> int:
    total = 0
    for patch in patches:
        with contextlib.suppress(OSError):
            total += (patch.sparse / name).stat().st_size
    return total


def _images(patch: Patch) -> list[Image]:
    """Return the images of a patch that have a pose; none where its model cannot be read."""
    try:
        found = read_images(patch.sparse)
    except (SceneError, OSError, ValueError):
        return []
    return [one for one in found if np.isfinite(one.center()).all() and np.isfinite(one.rotation()).all()]


def _axes(images: Sequence[Image]) -> Places:
    """Return two level directions as rows, the first along the longer side, so that the sky is above the drawing."""
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
    return {name: figures.psnr for name, figures in result.metrics.photos().items()}


def _cameras(
    images: Mapping[str, Sequence[Image]],
    places: Mapping[str, Places],
    held_out: Mapping[str, Mapping[str, float | None]],
) -> tuple[CameraPlace, ...]:
    """Return where photographs were taken, each once, those that are held out with what they show."""
    seen: dict[str, CameraPlace] = {}
    for name, found in images.items():
        for image, place in zip(found, places[name], strict=True):
            psnr = held_out[name].get(image.name)
            is_held_out = image.name in held_out[name]
            if image.name not in seen or is_held_out:
                seen[image.name] = CameraPlace(place_from_above(place), image.name if is_held_out else "", psnr)
    cameras = tuple(seen.values())
    return cameras[:: max(1, -(-len(cameras) // MOST_CAMERAS))]
