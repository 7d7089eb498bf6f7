"""Where one stands when a splat opens in 3D: where a photograph was taken, with the sky above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from splatbatch.errors import SceneError
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.colmap.types import Image
from splatbatch.scene.frame import shifted_image
from splatbatch.splats.preview import Floats, rotated
from splatbatch.store.attempt_folder import AttemptFolder

Vector = npt.NDArray[np.float64]  # [3]; a quaternion, w x y z: [4]
VIEWER_UP = np.array([0.0, -1.0, 0.0])
"""What the viewer shows as up, in our axes: those of COLMAP's first camera."""
TO_VIEWER = np.array([-1.0, -1.0, 1.0])
"""The viewer turns a splat by half a turn around z."""
FLIGHT_WEIGHT = 0.1
"""Of the plane the cameras lie in, against that they are level: the second is surer."""


@dataclass(frozen=True)
class InitialCamera:
    """A camera in the world of the splat, and the rotation that puts the sky above it."""

    turn: Vector
    up: Vector
    eye: Vector
    forward: Vector

    def looking_at(self, middle: Floats) -> str:
        """Return "eye target", six numbers in the viewer's axes; the target lies as far as the middle of the splat."""
        eye, forward = rotated(np.stack([self.eye, self.forward]), self.turn)
        depth = max(float((middle - eye) @ forward), 1e-3)
        return " ".join(f"{value:.6g}" for point in (eye, eye + depth * forward) for value in TO_VIEWER * point)


def find_initial_camera(folder: AttemptFolder | None) -> InitialCamera | None:
    """Return where the median held-out photograph of an attempt was taken, else a middle one; None if unknown."""
    images = _images(folder) if folder else []
    if not folder or not images:
        return None
    median = folder.read_views().median
    wanted = median.name if median else ""
    chosen = next((image for image in images if image.name == wanted), images[len(images) // 2])
    up = up_of(images)
    return InitialCamera(turn_upright(up), up, chosen.center(), chosen.rotation()[2])


def _images(folder: AttemptFolder) -> Sequence[Image]:
    """Return the images that an attempt was trained on, as far as they still lie there."""
    settings = folder.read_settings()
    try:
        images = read_images(Path(settings.sparse)) if settings.sparse else []
        images = [shifted_image(image, settings.offset) for image in images]
    except (SceneError, OSError, ValueError):
        return []
    sound = [image for image in images if np.isfinite(image.rotation()).all() and np.isfinite(image.center()).all()]
    return sorted(sound, key=lambda image: image.name)


def up_of(images: Sequence[Image]) -> Vector:
    """Return the direction of the sky, of length 1: cameras are held level, and people and drones keep their height.

    x points right, y down and z forward in a camera (COLMAP); the rows of its rotation are these in the world. The sky
    is across from every x, and, where all cameras face one way and leave it open, across from the plane they fly in.
    """
    rotations = np.stack([image.rotation() for image in images])  # [N, 3, 3]
    spread = np.stack([image.center() for image in images])
    spread -= spread.mean(axis=0)
    flight = spread.T @ spread / max(float((spread**2).sum()), 1e-12)
    sideways = np.mean([np.outer(right, right) for right in rotations[:, 0]], axis=0)
    up: Vector = np.linalg.eigh(sideways + FLIGHT_WEIGHT * flight).eigenvectors[:, 0]
    # cameras look down, or hold their upper edge up
    return up if up @ -rotations[:, 1:].mean(axis=(0, 1)) >= 0 else -up


def turn_upright(up: Vector) -> Vector:
    """Return the shortest rotation that takes `up`, of length 1, to the viewer's up."""
    turn = np.array([1 + up @ VIEWER_UP, *np.cross(up, VIEWER_UP)])
    length = float(np.linalg.norm(turn))
    # upside down: half a turn around z
    return turn / length if length > 1e-6 else np.array([0.0, 0.0, 0.0, 1.0])
