"""A patch against the source it was cut from, by image name: have cameras or poses changed since?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from splatbatch.scene.audit.findings import Finding, Sink
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.colmap.types import Camera, Image
from splatbatch.scene.geometry.views import rotations_of

_RECUT = "Cut the patch again from today's source."
_SAME = 1e-6  # relative: far above a rounding to 32 bits, far below a thousandth of a pixel
_SAME_ANGLE = 1e-4  # radians, 0.006 degrees
_SAME_PLACE = 1e-4  # of the extent of the source's cameras


@dataclass(frozen=True)
class Source:
    """The source reconstruction, ready to be compared with."""

    images: dict[str, Image]
    cameras: Mapping[int, Camera]
    extent: float
    """Diagonal of the box around the camera centres, in units of the model."""


def as_source(images: tuple[Image, ...], cameras: Mapping[int, Camera]) -> Source:
    """Return the images and cameras of the source, ready for comparing patches with them."""
    places = np.array([image.translation for image in images], dtype=np.float64).reshape(-1, 3)
    with np.errstate(all="ignore"):
        centers = -np.einsum("iba,ib->ia", rotations_of(images), places)
    centers = centers[np.isfinite(centers).all(axis=1)]
    extent = float(np.linalg.norm(np.ptp(centers, axis=0))) if len(centers) else 0.0
    return Source({image.name: image for image in images}, cameras, extent)


def check_drift(
    images: tuple[Image, ...], cameras: Mapping[int, Camera], source: Source, scribe: Sink
) -> Iterator[Finding]:
    """Yield cameras and poses that differ from the source's, and images that it does not have."""
    seen: set[tuple[int, int]] = set()
    for image in images:
        original = source.images.get(image.name)
        if original is None:
            yield scribe.note("not_in_source", shown(image.name), "the source reconstruction has no such image", _RECUT)
            continue
        yield from _check_pose(image, original, source.extent, scribe)
        pair = (image.camera_id, original.camera_id)
        if pair not in seen:
            seen.add(pair)
            yield from _check_camera(cameras[pair[0]], source.cameras[pair[1]], scribe)


def _check_camera(camera: Camera, original: Camera, scribe: Sink) -> Iterator[Finding]:
    if (camera.model, camera.width, camera.height) != (original.model, original.width, original.height):
        message = f"{_spell(camera)} in the patch, {_spell(original)} in the source"
    elif any(
        not math.isclose(*pair, rel_tol=_SAME, abs_tol=_SAME)
        for pair in zip(camera.params, original.params, strict=False)
    ):
        ours, theirs = (", ".join(f"{value:.7g}" for value in each.params) for each in (camera, original))
        message = f"parameters {ours} in the patch, {theirs} in the source"
    else:
        return
    yield scribe.note("camera_drift", f"camera {camera.id}", message, _RECUT)


def _check_pose(image: Image, original: Image, extent: float, scribe: Sink) -> Iterator[Finding]:
    if (image.quat, image.translation) == (original.quat, original.translation):
        return
    with np.errstate(all="ignore"):
        moved = float(np.linalg.norm(image.center() - original.center()))
        # From the chord of the rotation matrices, which stays exact where the arc cosine of the trace does not.
        chord = float(np.linalg.norm(image.rotation() - original.rotation()))
    turned = 2 * math.asin(min(1.0, chord / math.sqrt(8))) if math.isfinite(chord) else math.nan
    if turned > _SAME_ANGLE or moved > _SAME_PLACE * extent:
        share = f"{100 * moved / extent:.2g} % of the scene" if extent else "the source has one place only"
        message = f"{moved:.3g} units ({share}) and {math.degrees(turned):.2g} degrees away from its pose in the source"
        yield scribe.note("pose_drift", shown(image.name), message, _RECUT)


def _spell(camera: Camera) -> str:
    return f"{camera.model} {camera.width}x{camera.height}"
