"""What is changed in one model: a change for each camera, and for each size that its photographs have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from splatbatch.scene.colmap.reconstruction import Reconstruction, read_reconstruction
from splatbatch.scene.geometry.survey import Survey, survey
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.folders import Folders, Found
from splatbatch.scene.photos.header_cache import Headers
from splatbatch.scene.photos.photo import Photo
from splatbatch.scene.photos.sizes import Size
from splatbatch.scene.repair.camera_change import Change, How, Refusal
from splatbatch.scene.repair.evidence import choose_change

_Groups = list[tuple[Size, list[int]]]
"""The sizes that photographs have, and the images of each by their row."""


@dataclass(frozen=True)
class Plan:
    """The changes of one model, and which of them each image gets."""

    patch: Patch
    model: Reconstruction
    changes: tuple[Change, ...]
    of_image: Mapping[int, Change]


def plan_model(patch: Patch, cameras: list[int], how: How, reasons: list[str]) -> Plan:
    """Return the plan for one model; what speaks against it is added to `reasons`."""
    model = read_reconstruction(patch.sparse)
    if not cameras:
        return Plan(patch, model, (), {})
    found, sizes = survey(model), _sizes(patch, model)
    pairs = [pair for number in cameras for pair in _of_camera(found, _groups(found, number, sizes, reasons), how)]
    reasons += [f"{patch.name}: {one.what} → {one.remedy}" for one, _ in pairs if isinstance(one, Refusal)]
    moved = [(one, rows) for one, rows in pairs if isinstance(one, Change) and one.moves_pixels]
    next_id = max(model.cameras) + 1
    changes: list[Change] = []
    of_image: dict[int, Change] = {}
    for change, rows in moved:
        own = change if _is_whole(found, change, rows) else replace(change, after=replace(change.after, id=next_id))
        next_id = max(next_id, own.after.id + 1)
        changes.append(own)
        of_image |= {found.views.images[row].id: own for row in rows}
    return Plan(patch, model, tuple(changes), of_image)


def _of_camera(found: Survey, groups: _Groups, how: How) -> list[tuple[Change | Refusal, list[int]]]:
    return [(choose_change(found, rows, size, how), rows) for size, rows in groups]


def _is_whole(found: Survey, change: Change, rows: list[int]) -> bool:
    """Return whether these are all images of the camera: if not, the others keep it."""
    return len(rows) == sum(image.camera_id == change.before.id for image in found.views.images)


def _sizes(patch: Patch, model: Reconstruction) -> dict[int, Size]:
    """Return the sizes of the photographs that can be read, by image id."""
    folders, headers = Folders(), Headers()
    places = {image.id: folders.locate(patch.images, image.name) for image in model.images}
    headers.read(place.path for place in places.values() if isinstance(place, Found))
    read = {number: headers.of(place.path) for number, place in places.items() if isinstance(place, Found)}
    return {number: header.size for number, header in read.items() if isinstance(header, Photo)}


def _groups(found: Survey, camera_id: int, sizes: Mapping[int, Size], reasons: list[str]) -> _Groups:
    """Return the images of a camera by the size of their photographs; unreadable ones go with the largest group."""
    groups: dict[Size, list[int]] = defaultdict(list)
    unread: list[int] = []
    for row, image in enumerate(found.views.images):
        if image.camera_id == camera_id:
            (groups[sizes[image.id]] if image.id in sizes else unread).append(row)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    if ordered:
        ordered[0][1].extend(unread)
    else:
        reasons.append(f"camera {camera_id}: none of its photographs can be read → Bring the photographs back.")
    return ordered
