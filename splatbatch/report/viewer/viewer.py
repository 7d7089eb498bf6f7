"""The 3D viewer in the report's page: embedded once, unpacked on a click; previews of splats, and where to look from.

The first view of a splat is that of a photograph, if its model can be read, rotated so that the sky is up.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import shlex
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from splatbatch.errors import SceneError
from splatbatch.files import read_regular, write_whole
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import PREVIEW
from splatbatch.output.layout import OutputFolder
from splatbatch.report.facts import ReportedPatch
from splatbatch.report.pictures import PictureBudget, attempt_folder
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.colmap.types import Image
from splatbatch.scene.frame import shifted_image
from splatbatch.scene.rotations import rotate
from splatbatch.splats.preview import UNTURNED, Floats, make_preview, middle_of

Vector = npt.NDArray[np.float64]  # [3]; a quaternion, w x y z: [4]
VIEWER_UP = np.array([0.0, -1.0, 0.0])
"""The viewer's up direction in the axes of a preview, [3]: y points down there, as in a COLMAP camera."""
TO_VIEWER = np.array([-1.0, -1.0, 1.0])
"""Signs of x, y and z under the half turn around z by which the viewer rotates a splat, [3]."""
FLIGHT_WEIGHT = 0.1
"""Weight of the plane that the cameras lie in for the up direction, relative to their sideways axes (weight 1)."""
BUILT = ("web", "dist", "viewer.js.gz")
MOST_PREVIEW_BYTES = 4 << 20
"""Largest preview that is read, in bytes; larger files were not written by splatbatch."""
MOST_SPLAT_BYTES = 1 << 30
"""Largest splat file, in bytes, that a preview is made of; reading a larger file takes too long for a report."""
HOW = {
    "viewer": "No 3D: this installation lacks the viewer. Install a released wheel, or build the viewer with npm.",
    "gsply": "No 3D: gsply is not installed. Run pip install 'splatbatch[web]', then `splatbatch report`.",
}


@dataclass(frozen=True)
class InitialCamera:
    """A camera in the splat's axes, from which the 3D preview is first seen.

    `turn` is the rotation w x y z, of length 1, that turns the sky up. `eye` is the camera's centre; `up` (the sky) and
    `forward` are directions of length 1, all before that rotation.
    """

    turn: Vector
    up: Vector
    eye: Vector
    forward: Vector

    def looking_at(self, middle: Floats) -> str:
        """Return eye and target as six numbers, separated by blanks, in the viewer's axes, for the page's script.

        Args:
            middle: middle of the splat after the rotation `turn`, [3]; the target lies at its depth before the eye.
        """
        eye, forward = rotate(np.stack([self.eye, self.forward]), self.turn)
        depth = max(float((middle - eye) @ forward), 1e-3)
        return " ".join(f"{value:.6g}" for point in (eye, eye + depth * forward) for value in TO_VIEWER * point)


def find_initial_camera(folder: AttemptFolder | None) -> InitialCamera | None:
    """Return the camera of the held-out view of median PSNR, else of the middle one of all images by name.

    None if there is no attempt, or the model that it was trained on cannot be read or has no images with finite poses.

    Args:
        folder: folder of the attempt that trained the splat; None: unknown.
    """
    images = _images(folder) if folder else []
    if not folder or not images:
        return None
    median = folder.read_views().get("median")
    wanted = median.name if median else ""
    chosen = next((image for image in images if image.name == wanted), images[len(images) // 2])
    up = up_of(images)
    return InitialCamera(turn_upright(up), up, chosen.center(), chosen.rotation()[2])


def _images(folder: AttemptFolder) -> Sequence[Image]:
    """Return the images of the model that an attempt was trained on, by name; none if it cannot be read any more."""
    settings = folder.read_settings()
    try:
        images = read_images(Path(settings.sparse)) if settings.sparse else []
        images = [shifted_image(image, settings.offset) for image in images if image.has_pose()]
    except (SceneError, OSError, ValueError):
        return []
    return sorted(images, key=lambda image: image.name)


def up_of(images: Sequence[Image]) -> Vector:
    """Return the estimated direction of the sky in the model's axes, [3], of length 1.

    Assumes that cameras are held level, and that people and drones keep their height. In a camera x points right, y
    down and z forward (COLMAP); the rows of its rotation are these axes in the world. The sky is perpendicular to every
    x axis. If all cameras face one way this is ambiguous; then the plane that the cameras lie in decides.

    Args:
        images: images of a model, all with finite poses.

    Raises:
        ValueError: there are no images.
    """
    rotations = np.stack([image.rotation() for image in images])  # [N, 3, 3]
    spread = np.stack([image.center() for image in images])
    spread -= spread.mean(axis=0)
    flight = spread.T @ spread / max(float((spread**2).sum()), 1e-12)
    sideways = np.mean([np.outer(right, right) for right in rotations[:, 0]], axis=0)
    up: Vector = np.linalg.eigh(sideways + FLIGHT_WEIGHT * flight).eigenvectors[:, 0]
    # choose the sign by which cameras look down or have their upper edge up
    return up if up @ -rotations[:, 1:].mean(axis=(0, 1)) >= 0 else -up


def turn_upright(up: Vector) -> Vector:
    """Return the shortest rotation, a quaternion w x y z of length 1, that takes `up` to the viewer's up direction.

    Args:
        up: direction of the sky in the splat's axes, [3], of length 1.
    """
    turn = np.array([1 + up @ VIEWER_UP, *np.cross(up, VIEWER_UP)])
    length = float(np.linalg.norm(turn))
    # upside down: half a turn around z
    return turn / length if length > 1e-6 else np.array([0.0, 0.0, 0.0, 1.0])


@cache
def viewer_gz() -> bytes:
    """Return the viewer's script, gzipped; empty if it was not built. Only the first call reads the file."""
    try:
        return files("splatbatch.report.viewer").joinpath(*BUILT).read_bytes()
    except OSError:
        return b""


@cache
def viewer_script() -> str:
    """Return the text of the viewer's script, whose hash the page's Content-Security-Policy allows.

    Empty if it was not built or is damaged.
    """
    try:
        return gzip.decompress(viewer_gz()).decode() if viewer_gz() else ""
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return ""


def what_is_missing() -> str:
    """Return how to install the viewer or package that 3D previews lack, as one line; empty if nothing is missing."""
    if not viewer_script():
        return HOW["viewer"]
    return HOW["gsply"] if find_spec("gsply") is None else ""


class SplatStage(NamedTuple):
    """A splat's 3D preview in the page, with the line `words` that says how to view the whole splat.

    `preview` is the file in base64 and `size` its size, as "2.1 MB"; both are empty if only the line is shown.
    `camera` is eye and target as six numbers; None: the page chooses a view, or there is no preview.
    """

    words: str
    size: str = ""
    camera: str | None = None
    preview: str = ""


def stage_of(output: OutputFolder, patch: ReportedPatch, budget: PictureBudget) -> SplatStage | None:
    """Return the 3D preview of a patch, as `stage` does; None if the patch has no splat, or the page no previews."""
    if not patch.splat:
        return None
    return stage(patch.patch, output.patch(patch.patch).splat, attempt_folder(output, patch), budget)


def stage(name: str, splat: Path, attempt: AttemptFolder | None, budget: PictureBudget) -> SplatStage | None:
    """Return the 3D preview of a splat, seen from a camera of an attempt.

    A preview file beside the splat is used, and written if it is missing, older than the splat or damaged. None if the
    page shows no previews: the budget is 0, or the viewer or gsply is missing. If the preview cannot be made or exceeds
    the budget, the result has only the line with the command `splatbatch view`.

    Args:
        name: name of the patch, or "scene", for that command.
        splat: path of the splat.
        attempt: folder of the attempt that has the camera; None: the page chooses a view.
        budget: bytes of previews that the page may take; it shrinks by the preview.
    """
    if not budget.size or what_is_missing():
        return None
    words = f"the whole splat: splatbatch view {shlex.quote(name)}"
    initial_camera = find_initial_camera(attempt)
    preview = _read(splat, initial_camera.turn if initial_camera else UNTURNED)
    if not preview or not budget.take(preview):
        return SplatStage(words)
    camera = initial_camera.looking_at(middle_of(preview)) if initial_camera else None
    return SplatStage(words, f"{max(0.1, len(preview) / 1e6):.1f} MB", camera, base64.b64encode(preview).decode())


def _read(splat: Path, turn: Floats) -> bytes:
    """Return the preview beside a splat; it is made again if it is older or damaged. Empty if it cannot be made."""
    beside = splat.with_name(PREVIEW)
    try:
        facts = splat.stat()
        is_new = beside.exists() and beside.stat().st_mtime_ns >= facts.st_mtime_ns
        if is_new and (preview := _kept(beside)):
            return preview
        if facts.st_size > MOST_SPLAT_BYTES:
            return b""
        preview = make_preview(splat, turn)
    except Exception:  # noqa: BLE001 - gsply compiles itself and may raise any error; the report must be written
        return b""
    with contextlib.suppress(OSError):  # not writable: the preview is made again next time
        write_whole(beside, lambda file: file.write(preview))
    return preview


def _kept(path: Path) -> bytes:
    """Return a preview from its file if it is a valid PLY of allowed size; empty otherwise."""
    try:
        preview = read_regular(path, MOST_PREVIEW_BYTES)
        if not preview.startswith(b"ply\n"):
            return b""
        middle_of(preview)
    except (OSError, ValueError):
        return b""
    return preview
