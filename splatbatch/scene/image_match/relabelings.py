"""Hypotheses of what photographs are if they do not match their images: turned, cropped, renamed, undistorted.

Each is a `Relabeling`, with a description for findings, and with a remedy where a finding names one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations, islice
from pathlib import Path

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.groups import grouped
from splatbatch.scene.colmap.files import ModelError, shown
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.image_match.match_context import MatchContext, Relabeling
from splatbatch.scene.image_match.ncc_patches import Places
from splatbatch.scene.image_match.pairs import GROUPS, pairs_of
from splatbatch.scene.photos.headers import Size
from splatbatch.scene.photos.undistort import is_distorted, undistorted_camera

_MOST = 12  # folders or models that are looked into
_DEPTH = 4  # of folders below the scene that models are looked for in
_NAMES = "Give every photograph its own name again: poses belong to names, not to places in a list."
UNDISTORT_BOTH = (
    "python -c \"import pycolmap; pycolmap.undistort_images('undistorted', 'MODEL', 'IMAGES')\" makes undistorted"
    " photographs and their model together, from the distorted ones"
)


def _whatever_the_sizes(change: Places, _camera: Size, _photo: Size) -> Places:
    return change


def _about_the_centre(camera: Size, photo: Size) -> Places:
    ratio = np.array(camera) / np.array(photo)
    return lambda shares: (shares - 0.5) * ratio + 0.5


def _of_its_size(camera: Camera) -> Camera:
    return replace(camera, width=round(2 * camera.cx), height=round(2 * camera.cy))


def _centred(camera: Camera) -> Camera:
    middle = {"cx": camera.width / 2, "cy": camera.height / 2}
    return replace(camera, params=tuple(middle.get(name, value) for name, value in camera.named_params()))


def _straight(camera: Camera) -> Camera | None:
    try:
        return undistorted_camera(camera) if is_distorted(camera) else None
    except SceneError:
        return None


def _unbent(camera: Camera) -> Camera | None:
    return replace(camera, model="PINHOLE", params=camera.pinhole) if _straight(camera) else None


TURNED = tuple(
    Relabeling(
        words,
        f"Turn the photographs back (magick mogrify {option} FILES), or make a model from them as they are.",
        place=partial(_whatever_the_sizes, change),
    )
    for words, option, change in (
        ("turned by 180 degrees", "-rotate 180", lambda s: 1 - s),
        ("mirrored, left for right", "-flop", lambda s: s * (-1, 1) + (1, 0)),
        ("mirrored, top for bottom", "-flip", lambda s: s * (1, -1) + (0, 1)),
        ("turned by 90 degrees clockwise", "-rotate 270", lambda s: np.stack([1 - s[:, 1], s[:, 0]], axis=1)),
        ("turned by 90 degrees counterclockwise", "-rotate 90", lambda s: np.stack([s[:, 1], 1 - s[:, 0]], axis=1)),
    )
)
"""The five hypotheses that photographs were turned by 180 or 90 degrees, or mirrored."""
CROPPED = Relabeling("cropped about the centre", place=_about_the_centre)
"""The hypothesis that photographs were cropped about the centre, or padded, without being resized."""
LEFT_BEHIND = (
    Relabeling("resized", camera=_of_its_size),
    Relabeling("cropped about the centre", camera=_centred),
)
"""Two hypotheses: photographs were resized, or cropped about the centre, and K was left as it was before.

The first one's `camera` raises SceneError for a camera without a principal point. The second one's raises KeyError for
an unknown model, and ValueError for a wrong number of parameters.
"""
UNDISTORTED = tuple(
    Relabeling("undistorted already, but the camera still has the distortion", camera=camera)
    for camera in (_straight, _unbent)
)
"""Two hypotheses that photographs were undistorted already: with COLMAP's new K, and with K unchanged.

They do not apply to cameras without distortion, too wide for a pinhole, or of a model that is not supported.
"""


def of_names(compared: MatchContext) -> Iterator[Relabeling]:
    """Yield the hypotheses that names are shifted by one image, or exchanged between two sub-folders.

    Names are shifted in each sub-folder, or over all. At most twelve pairs of folders are tried.
    """
    by_folder = grouped((image.name.rpartition("/")[0], row) for row, image in enumerate(compared.images))
    for groups in (by_folder.values(), [list(range(len(compared.images)))] if len(by_folder) > 1 else []):
        for step, word in ((1, "next"), (-1, "previous")):
            other = {row: group[(at + step) % len(group)] for group in groups for at, row in enumerate(group)}
            yield Relabeling(
                f"those of the {word} image by name: names are shifted by one",
                _NAMES,
                path={row: compared.paths.get(to) for row, to in other.items()},
            )
    rows = {image.name: row for row, image in enumerate(compared.images)}
    for one, other_folder in islice(combinations(by_folder, 2), _MOST):
        swap = {
            row: compared.paths.get(rows[name])
            for row, image in enumerate(compared.images)
            for name in [_moved(image.name, one, other_folder)]
            if name in rows
        }
        words = f"those of {shown(one)}/ and {shown(other_folder)}/ exchanged"
        yield Relabeling(words, "Exchange the two folders.", path=swap)


def _moved(name: str, one: str, other: str) -> str:
    folder, _, base = name.rpartition("/")
    return {one: f"{other}/{base}".lstrip("/"), other: f"{one}/{base}".lstrip("/")}.get(folder, "")


def of_image(compared: MatchContext, row: int) -> Relabeling:
    """Return the hypothesis that the photograph of one image, given by its row, lies under the names of others.

    Every image is compared with that file.
    """
    return Relabeling(
        f"that of {shown(compared.images[row].name)}",
        _NAMES,
        path=dict.fromkeys(compared.rows, compared.paths.get(row)),
    )


def of_folders(compared: MatchContext, images: Path) -> Iterator[Relabeling]:
    """Yield the hypotheses that the right photographs lie under the same names in a folder beside `images`.

    Only folders that hold a file for every compared image count; none if the folder above cannot be listed.

    Args:
        compared: images that are compared.
        images: folder of the photographs, whose neighbours (the first 48 by name) are searched. In each, a sub-folder
            with the name of `images` is searched, too.

    Raises:
        PermissionError: a folder beside `images` must not be entered.
    """
    names = [compared.images[row].name for row in compared.rows]
    try:
        beside = sorted(
            path for path in images.resolve().parent.iterdir() if path.is_dir() and path != images.resolve()
        )
    except OSError:
        return
    for place in (place for folder in beside[: 4 * _MOST] for place in (folder, folder / images.name)):
        if names and all((place / name).is_file() for name in names):
            paths = {row: str(place / image.name) for row, image in enumerate(compared.images)}
            words = f"not those of {shown(str(place))}, which fit"
            yield Relabeling(words, f"Set scene.images to {place}.", path=paths)


def models_near(sparse: Path, compared: MatchContext) -> Iterator[tuple[Path, MatchContext]]:
    """Yield other models near `sparse` with some of the same photographs but other cameras, each with its folder.

    With each comes a context that compares the same photographs by that model. Up to twelve models are looked into;
    models that cannot be read are skipped.

    Args:
        sparse: folder of the model, which is not yielded itself.
        compared: images of that model with their photographs.
    """
    files = {compared.images[row].name: (path, compared.sizes[row]) for row, path in compared.paths.items()}
    known = {image.name: compared.cameras[image.camera_id] for image in compared.images}
    for folder in _folders_of_models(sparse):
        try:
            model = read_reconstruction(folder, tracks=True)
        except (ModelError, OSError):
            continue
        pairs_known = [(model.cameras[one.camera_id], known[one.name]) for one in model.images if one.name in known]
        if any((own.model, own.params) != (other.model, other.params) for own, other in pairs_known):
            rows = {row for row, image in enumerate(model.images) if image.name in files}
            pairs = [pair for pair in pairs_of(model, GROUPS) if pair.one in rows and pair.other in rows]
            yield folder, MatchContext.of_files(model.images, model.cameras, files, pairs, compared.pictures)


def _folders_of_models(sparse: Path) -> list[Path]:
    own = sparse.resolve()
    root = own.parents[1] if own.name.isdecimal() and len(own.parents) > 1 else own.parent
    found: list[Path] = []
    for start in dict.fromkeys((root, root.parent)):
        for parent, folders, files in os.walk(start):
            place = Path(parent)
            if len(place.relative_to(start).parts) >= _DEPTH:
                folders.clear()
            folders[:] = [name for name in sorted(folders) if not name.startswith(("images", ".", "attempt-"))][
                : 4 * _MOST
            ]
            if {"cameras.bin", "cameras.txt"} & set(files) and place not in (own, *found):
                found.append(place)
            if len(found) >= _MOST:
                return found
    return found
