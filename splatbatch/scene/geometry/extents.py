"""Cameras against photographs and keypoints: does each K belong to a photograph of this size, or to one of another?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.survey import Reach
from splatbatch.scene.photos.sizes import Equal, FewPixels, Scaled, Size, relate, spell


@dataclass(frozen=True)
class Misfit:
    """K and keypoints belong to a photograph of another size than the camera's."""

    kind: Literal["k_left_behind", "size_alone"]
    what: str
    meant: Size | None
    """The size that K belongs to, where it is known to the pixel."""


def find_misfit(camera: Camera, photo: Size, reach: Reach) -> Misfit | None:
    """Return why a camera's K does not belong to its width and height; None if it does.

    Args:
        camera: whose K and keypoints agree.
        photo: the size of its photographs.
        reach: how far its keypoints reach over width and height.
    """
    if "cx" not in CAMERA_MODELS[camera.model].params or reach.num_keypoints < limits.REACH_KEYPOINTS:
        return None
    size = (camera.width, camera.height)
    if photo != size and not belongs(camera, size, reach) and belongs(camera, photo, reach):
        what = f"K and keypoints fit its photographs of {spell(photo)}, width and height of {spell(size)} do not"
        return Misfit("size_alone", what, photo)
    is_one_sided = reach.beyond_far > limits.ONE_SIDED * reach.beyond_near
    if reach.beyond_far > max(limits.OUTSIDE, limits.OUTSIDE_KEYPOINTS / reach.num_keypoints) and is_one_sided:
        return _left_behind(camera, reach, f"{100 * reach.beyond_far:.3g} % of the keypoints lie beyond them")
    share = common_share(camera)
    if share > 1 + limits.OFF_SHARE and max(reach.high[0] / camera.width, reach.high[1] / camera.height) < share:
        return _left_behind(camera, reach, f"the principal point lies at {50 * share:.4g} % of both sides")
    if is_small(camera, reach):
        width, height = reach.high
        return _left_behind(camera, reach, f"the keypoints reach over {width:.0f}x{height:.0f} px of them")
    return None


def belongs(camera: Camera, size: Size, reach: Reach) -> bool:
    """Return whether K has its principal point in the middle of a size, and the keypoints reach over it alone."""
    near = all(abs(c / s - 0.5) < limits.CENTRED for c, s in zip((camera.cx, camera.cy), size, strict=True))
    within = all(reach.high[axis] <= 1.02 * size[axis] for axis in (0, 1))
    return near and within


def common_share(camera: Camera) -> float:
    """Return by how much the size that K belongs to is larger than the camera's, alike in both sides; 1 if unlike."""
    shares = (2 * camera.cx / camera.width, 2 * camera.cy / camera.height)
    return sum(shares) / 2 if abs(shares[0] - shares[1]) < limits.SAME_SHARE else 1.0


def is_small(camera: Camera, reach: Reach) -> bool:
    """Return whether K and keypoints belong to a photograph that is smaller, by the same factor in both sides."""
    shares = (2 * camera.cx / camera.width, 2 * camera.cy / camera.height)
    reached = (reach.high[0] / camera.width, reach.high[1] / camera.height)
    is_alike = abs(shares[0] - shares[1]) < limits.CENTRED and max(shares) < 1 - 2 * limits.CENTRED
    return is_alike and max(reached) < limits.REACH and all(r <= 1.02 * s for r, s in zip(reached, shares, strict=True))


def _left_behind(camera: Camera, reach: Reach, why: str) -> Misfit:
    size, middle = (camera.width, camera.height), (2 * camera.cx, 2 * camera.cy)
    meant = (round(middle[0]), round(middle[1]))
    shares = [size[axis] / middle[axis] for axis in (0, 1)]
    is_exact = max(abs(middle[axis] - meant[axis]) for axis in (0, 1)) < 0.01 and isinstance(
        relate(meant, size), Scaled | FewPixels | Equal
    )
    if abs(shares[0] - shares[1]) < limits.CENTRED:
        how = f"resized by {sum(shares) / 2:.4g} or cropped alike on all sides"
    else:
        how = "cropped"
    what = (
        f"K and keypoints belong to photographs of about {spell(meant)}, not to {spell(size)} ({why}): "
        f"the photographs were {how}, width and height followed, K was left behind"
    )
    return Misfit("k_left_behind", what, meant if is_exact else None)
