"""Whether a crop was about the centre: the greys of points and pixels agree best where photographs were really cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.colmap.types import Camera, Floats
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.survey import Look, survey
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.folders import Folders, Found
from splatbatch.scene.photos.greys import Greys, correlation, decode_grey, greys_at

_STEPS_PX = (4, 1)  # of the search: coarse, then fine
_MOST_PX = 160
_CLEARLY = 0.1
"""A correlation that is higher by so much is no accident: greys decorrelate within 2 to 10 px of real photographs."""


def centre_missed_by(copy: Patch, reach_px: Floats) -> tuple[int, int] | None:
    """Return by how many pixels in x and y the photographs of a cropped copy lie off; None if not, or unknown.

    Args:
        copy: the corrected model, with the photographs.
        reach_px: the farthest that they can be off: what was cut from each side, [2].
    """
    model, folders = read_reconstruction(copy.sparse), Folders()
    names = {image.id: image for image in model.images}
    seen: list[tuple[Look, Camera, Greys]] = []
    for look in survey(model).looks:
        place = folders.locate(copy.images, names[look.image_id].name)
        picture = decode_grey(place.path, least_side=1 << 20) if isinstance(place, Found) else None
        if picture is not None and look.greys.std() >= limits.LEAST_CONTRAST:
            seen.append((look, model.cameras[names[look.image_id].camera_id], picture))
    if not seen:
        return None
    best, start = (0, 0), _likeness(seen, (0, 0))
    for step in _STEPS_PX:
        reach = np.minimum(reach_px, _MOST_PX) if step == _STEPS_PX[0] else np.array([step, step])
        across, down = (_places(int(reach[axis]), step, best[axis]) for axis in (0, 1))
        best = max(product(across, down), key=lambda offset: _likeness(seen, offset))
    is_better = _likeness(seen, best) >= max(limits.ALIKE, start + _CLEARLY)
    return best if is_better and best != (0, 0) else None


def _places(reach: int, step: int, middle: int) -> list[int]:
    return [middle + place for place in range(-(reach // step) * step, reach + 1, step)]


def _likeness(seen: Sequence[tuple[Look, Camera, Greys]], offset: tuple[int, int]) -> float:
    """Return the mean correlation with keypoints moved by an offset in pixels; -1 where there is none."""
    found = [
        correlation(greys_at(picture, (look.xy + offset) / (camera.width, camera.height)), look.greys)
        for look, camera, picture in seen
    ]
    known = [value for value in found if np.isfinite(value)]
    return float(np.mean(known)) if known else -1.0
