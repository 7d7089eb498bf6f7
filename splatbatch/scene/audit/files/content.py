"""What photographs show: at the keypoints they have the greys of the points, unless they are others' photographs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from splatbatch.scene.audit.findings import Finding, Sink
from splatbatch.scene.audit.photos import Shot
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.survey import Look
from splatbatch.scene.photos.folders import Found
from splatbatch.scene.photos.greys import correlation, decode_grey, greys_at
from splatbatch.scene.photos.photo import Photo
from splatbatch.scene.photos.sizes import Equal, Scaled, relate

_REMEDY = "Give every photograph its own name again: names, not places in a list, tie photographs to poses."
_NEIGHBOURS = (-2, -1, 1, 2)


def check_content(looks: Sequence[Look], shots: list[Shot], scribe: Sink) -> Iterator[Finding]:
    """Yield photographs that do not show what their images see, where others do or it is known whose they are."""
    ordered = {shot.image.id: (index, shot) for index, shot in enumerate(shots) if _is_usable(shot)}
    known = [look for look in looks if look.image_id in ordered and look.greys.std() >= limits.LEAST_CONTRAST]
    own = {look.image_id: likeness(look, ordered[look.image_id][1]) for look in known}
    has_good = any(value >= limits.ALIKE for value in own.values())
    for look in known:
        value, (index, shot) = own[look.image_id], ordered[look.image_id]
        if not value < limits.UNLIKE:
            continue
        others = [*(shots[index + step] for step in _NEIGHBOURS if 0 <= index + step < len(shots))]
        others += [ordered[other.image_id][1] for other in known if other is not look]
        name, seen = shown(shot.image.name), f"its pixels have nothing of its points (correlation {value:.2f})"
        partner = _partner(look, others)
        if partner is not None:
            message = f"{seen}; {shown(partner.image.name)} shows them: photographs are exchanged"
            yield scribe.note("photos_exchanged", name, message, _REMEDY)
        elif has_good:
            message = f"{seen}, other photographs have: another photograph, or this one turned, mirrored or cropped"
            yield scribe.note("other_content", name, message, "Look at it; copy it again from where COLMAP saw it.")


def likeness(look: Look, shot: Shot) -> float:
    """Return how the greys of points and pixels go together: 1 alike, 0 unrelated, NaN if that cannot be told."""
    assert isinstance(shot.place, Found)  # noqa: S101 - see _is_usable
    pixels = greys_at(decode_grey(shot.place.path), look.xy / (shot.camera.width, shot.camera.height))
    usable = np.isfinite(pixels)
    if usable.sum() < limits.LEAST_LOOK or pixels[usable].std() < limits.LEAST_CONTRAST:
        return float("nan")
    return correlation(pixels, look.greys)


def _partner(look: Look, others: Sequence[Shot]) -> Shot | None:
    found: Mapping[str, Shot] = {other.image.name: other for other in others if _is_usable(other)}
    return next((other for other in found.values() if likeness(look, other) >= limits.ALIKE), None)


def _is_usable(shot: Shot) -> bool:
    if not isinstance(shot.place, Found) or not isinstance(shot.header, Photo):
        return False
    camera = (shot.camera.width, shot.camera.height)
    return min(camera) > 0 and isinstance(relate(camera, shot.header.size), Equal | Scaled)
