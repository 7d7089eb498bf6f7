"""Observations of point colours: which photograph sees which points, in what colour, over one or several models.

Each photograph is decoded once, at reduced size, in threads. The colours read at its keypoints (samples) are cached.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.files import open_regular, write_whole
from splatbatch.processes import num_cores
from splatbatch.scene.colmap.files import ModelError
from splatbatch.scene.colmap.indexed_model import Ids
from splatbatch.scene.colmap.reconstruction import read_cameras, read_images, walk_points2d
from splatbatch.scene.colmap.types import NO_POINT3D, Camera, Floats, Image, Ints
from splatbatch.scene.colors.solve import ColorObservations
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.folders import MASK_COUNTS, find_masks, stored_photographs
from splatbatch.scene.photos.headers import opened_photograph, pixels_of

LEAST = 50
"""Fewest observations from which the gain of a photograph is computed.

A single observation is right within about 10 %, the mean of 50 within 1.5 %.
"""
MOST = 2_000_000
"""Most observations kept for all patches together; of more, whole tracks are dropped. A million takes 500 MB.

Many patches may keep more, by `LEAST_EACH`.
"""
MOST_EACH = 1_000
"""Most observations per photograph, in the mean, for all patches together; more would only delay the trainings.

The flight caliterra has 3,300. With 2,000, half of its gains move by 0.13 % or less, none by more than 0.7 %.
"""
LEAST_EACH = 200
"""Least limit on the observations per photograph of a patch, in the mean, even if the total then exceeds `MOST`.

Above a limit every second track is dropped, so that only half as many may be left.
"""
SPREADING = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio (Knuth): ids that follow each other land far apart
LEAST_SHARED = 5
"""Fewest points that two photographs must share to count as linked; one or two points may be a false match."""
MOST_NEIGHBOURS = 10
"""Most photographs that a photograph is compared with: those that share the most points with it."""
Samples = NDArray[np.uint16]
"""Colours at the keypoints of a photograph, [N, 3]: 256 times the mean of the pixels around each; 0: not usable.

Pixels that are masked, dark or clipped are not usable, nor are keypoints outside the photograph.
"""
LONG_SIDE_PX = 640
"""Length below which the longer side of a JPEG is never reduced when it is decoded (to a half, quarter or eighth)."""
DARKEST, BRIGHTEST = 8, 243
"""Range of usable pixel values, 0 to 255: darker values are noise and rounding, brighter ones may be clipped."""
STRETCH = 0.02
"""Largest relative difference between a photograph's scale in x and in y to its camera that counts as rounding.

A photograph beyond it has another shape than its camera, and is left out. A difference of one pixel is allowed.
"""
SCALE = 256
_DOWN, _RIGHT = (one.ravel() for one in np.mgrid[-2:3, -2:3])  # a JPEG smears the colours of clipped pixels so far
_NEAR = (np.abs(_DOWN) <= 1) & (np.abs(_RIGHT) <= 1)
_VERSION = "2"  # raise it when pixels are sampled differently


@dataclass(frozen=True, eq=False)
class TrackedPhoto:
    """A photograph of one or several models, with those of its keypoints that belong to a 3D point."""

    name: str
    path: Path
    camera: Camera
    xy: Floats  # [N, 2] in pixels of the camera
    points: Ints  # [N], numbers of points, over all models
    rotation: Floats  # [3, 3], from world to camera; NaN where the pose is none
    mask: Path | None = None
    """Path of its mask, an image of any size; None: it has none."""
    problem: str = ""
    """Why the photograph cannot be used; empty if there is no reason."""


def shots_of(patches: Iterable[Patch]) -> dict[str, TrackedPhoto]:
    """Return the photographs of patches by name, with the observations of all patches merged.

    Only points that at least two photographs see are kept; empty without photographs. Images whose camera the
    model lacks are left out. Models that cannot be read are skipped, unless all are. Two files of one name but
    different size give the photograph a `problem`. Of very many observations, whole tracks are dropped (`MOST`,
    `MOST_EACH`, `LEAST_EACH`).

    Raises:
        ModelError: no model can be read; the error of the first is raised.
    """
    found: dict[str, TrackedPhoto] = {}
    num_points = 0
    patches, errors = tuple(patches), list[ModelError]()
    models = list[tuple[Patch, Mapping[int, Camera], Sequence[Image]]]()
    for patch in patches:
        try:
            models.append((patch, read_cameras(patch.sparse), read_images(patch.sparse)))
        except ModelError as error:  # the audit's to report: the others are solved without it
            errors.append(error)
    names = [image.name for _, _, images in models for image in images]
    most_each = min(MOST, MOST_EACH * len(set(names))) / max(1, len(names))
    for patch, cameras, images in models:
        try:
            shots = _shots_of(patch, cameras, images, round(max(most_each, LEAST_EACH) * len(images)))
        except ModelError as error:
            errors.append(error)
            continue
        for shot in shots:
            moved = replace(shot, points=shot.points + num_points)
            found[shot.name] = _together(found[shot.name], moved) if shot.name in found else moved
        num_points = 1 + max((int(shot.points.max()) for shot in found.values() if len(shot.points)), default=-1)
    if errors and len(errors) == len(patches):
        raise errors[0]
    if not found:
        return {}
    counts = np.bincount(np.concatenate([np.unique(shot.points) for shot in found.values()]))
    shared = {name: counts[shot.points] > 1 for name, shot in found.items()}
    return {
        name: replace(shot, xy=shot.xy[shared[name]], points=shot.points[shared[name]]) for name, shot in found.items()
    }


def _shots_of(patch: Patch, cameras: Mapping[int, Camera], images: Sequence[Image], most: int) -> list[TrackedPhoto]:
    keypoints = _keypoints(patch.sparse, most)
    folder, _ = stored_photographs(patch.images)
    masks = find_masks(patch.masks, [image.name for image in images])
    shots = [
        TrackedPhoto(
            image.name,
            folder / image.name,
            cameras[image.camera_id],
            *keypoints[image.id],
            image.rotation(),
            masks.get(image.name),
        )
        for image in images
        if image.camera_id in cameras
    ]
    # ids go up to 2 to the 64th
    ids = np.concatenate([np.zeros(0, np.uint64), *(shot.points for shot in shots)])
    numbers = np.unique(ids, return_inverse=True)[1].astype(np.int64)
    ends = np.cumsum([len(shot.points) for shot in shots], dtype=np.int64)
    parts = np.split(numbers, ends)  # the last, behind all of them, is empty
    return [replace(shot, points=part) for shot, part in zip(shots, parts, strict=False)]


def _keypoints(sparse: Path, most: int) -> dict[int, tuple[Floats, Any]]:
    """Return the keypoints with a point of each image, and their point ids; about `most` in all at most.

    Where there are more, every second track is dropped, repeatedly; never are all keypoints in memory.
    """
    kept, total, halvings = dict[int, tuple[Floats, Ids]](), 0, 0
    for image_id, seen in walk_points2d(sparse):
        xy, ids = seen.xy, seen.point3d_ids
        has_point = (ids != NO_POINT3D) & np.isfinite(xy).all(axis=1)
        kept[image_id] = _thinned((xy[has_point], ids[has_point]), halvings)
        total += len(kept[image_id][1])
        while total > most:
            halvings += 1
            kept = {one: _thinned(pair, halvings) for one, pair in kept.items()}
            total = sum(len(ids) for _, ids in kept.values())
    return kept


def _thinned(seen: tuple[Floats, Ids], halvings: int) -> tuple[Floats, Ids]:
    """Return the keypoints of one track in 2^halvings; the same tracks in every photograph."""
    if not halvings:
        return seen
    stays = (seen[1] * SPREADING) >> np.uint64(64 - halvings) == 0
    return seen[0][stays], seen[1][stays]


def _together(first: TrackedPhoto, second: TrackedPhoto) -> TrackedPhoto:
    if first.path != second.path and not _is_same_file(first.path, second.path):
        return replace(first, problem=f"another photograph has the same name: {second.path}")
    xy, points = np.concatenate([first.xy, second.xy]), np.concatenate([first.points, second.points])
    return replace(first, xy=xy, points=points)


def _is_same_file(first: Path, second: Path) -> bool:
    """Return whether two files have the same size, or one of them cannot be read."""
    try:
        return first.stat().st_size == second.stat().st_size
    except OSError:
        return True


@dataclass(frozen=True, eq=False)
class LinkedObservations:
    """Observations of photographs in groups; photographs of two groups are not linked by shared points."""

    seen: ColorObservations
    group: Ints  # [num_photos], -1 for a photograph that is left alone
    shared: Any  # [num_photos, num_photos], sparse: points that two of them share


def link(seen: ColorObservations) -> LinkedObservations:
    """Return the observations of photographs that have at least `LEAST` (50), with the group of each photograph.

    Photographs that share `LEAST_SHARED` (5) points, directly or through others, are in one group. A point that two
    groups see becomes two points; points that a single photograph sees are dropped.
    """
    from scipy.sparse.csgraph import connected_components

    num = len(seen.camera)
    while True:
        matrix = _incidence(seen)
        shared = (matrix @ matrix.T).tocsr()
        enough = np.bincount(seen.photo, minlength=num) >= LEAST
        groups = connected_components(shared >= LEAST_SHARED, directed=False)[1].astype(np.int64)
        some = seen.only(enough[seen.photo])
        pairs = some.point * (int(groups.max()) + 1) + groups[some.photo]
        # a point that two groups see becomes two points; only points that two photographs see are kept
        some = replace(some, point=np.unique(pairs, return_inverse=True)[1].astype(np.int64))
        kept = some.only(np.asarray(_incidence(some).sum(axis=0)).ravel()[some.point] > 1)
        if len(kept.photo) == len(seen.photo):
            group = np.full(num, -1, np.int64)
            group[enough] = np.unique(groups[enough], return_inverse=True)[1]
            return LinkedObservations(kept, group, shared)
        seen = kept


def _incidence(seen: ColorObservations) -> Any:
    """Return a matrix of ones where a photograph sees a point, [photos, points]."""
    from scipy.sparse import csr_matrix

    shape = (len(seen.camera), int(seen.point.max(initial=-1)) + 1)
    matrix = csr_matrix((np.ones(len(seen.photo), np.float32), (seen.photo, seen.point)), shape)
    matrix.data[:] = 1  # entries for the same place are added up
    return matrix


def neighbours_median(values: Floats, shared: Any, is_in: NDArray[np.bool_]) -> Floats:
    """Return the median of the values of each photograph's neighbours, [num_photos]; NaN without neighbours.

    Neighbours are the ten photographs, or fewer, that share the most points with it, each at least five points.

    Args:
        values: a value per photograph, [num_photos].
        shared: sparse matrix of the points that two photographs share, [num_photos, num_photos].
        is_in: photographs that count, [num_photos]; all others get NaN.
    """
    means = np.full(len(values), np.nan)
    for one in np.flatnonzero(is_in):
        start, end = shared.indptr[one : one + 2]
        others, counts = shared.indices[start:end], shared.data[start:end]
        chosen = (others != one) & is_in[others] & (counts >= LEAST_SHARED)
        order = np.argsort(-counts[chosen])[:MOST_NEIGHBOURS]
        if len(order):
            means[one] = np.median(values[others[chosen][order]])
    return means


def read_samples(shots: Iterable[TrackedPhoto], cache: Path | None = None) -> tuple[dict[str, Samples], dict[str, str]]:
    """Return the samples of photographs by name, and for photographs without samples the reason by name.

    Photographs that are not cached are decoded in threads. Raises nothing: a file that cannot be read has a reason, a
    corrupt cache is ignored, and failing to write the cache is no error.

    Args:
        shots: the photographs.
        cache: file of the cache, which then holds the samples of these photographs alone; None: nothing is kept. An
            entry is valid until the photograph, its path, mask or keypoints, or the size of its camera change.
    """
    of_name, known = {shot.name: shot for shot in shots}, _load(cache)
    with warnings.catch_warnings(), ThreadPoolExecutor(num_cores()) as pool:
        warnings.simplefilter("ignore")  # Pillow's: what matters about a file becomes its problem
        found = dict(zip(of_name, pool.map(partial(_sampled, known), of_name.values()), strict=True))
    problems = {name: one for name, one in found.items() if isinstance(one, str)}
    sampled = {name: one for name, one in found.items() if not isinstance(one, str)}
    used = dict(sampled.values())
    if cache and used and used.keys() != known.keys():
        keys, samples = np.array(list(used)), np.concatenate(list(used.values()))
        lengths = np.array([len(one) for one in used.values()], np.int64)
        with contextlib.suppress(OSError, ValueError):
            write_whole(cache, lambda file: np.savez(file, keys=keys, lengths=lengths, samples=samples))
    return {name: samples for name, (_, samples) in sampled.items()}, problems


def _sampled(known: Mapping[str, Samples], shot: TrackedPhoto) -> tuple[str, Samples] | str:
    """Return the key of a photograph in the cache with its samples, or why it has none."""
    try:
        key = _key(shot)
        samples = known.get(key)
        return key, sample(shot) if samples is None or len(samples) != len(shot.xy) else samples
    except FileNotFoundError:
        return "missing"
    except IncomparablePhotograph as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - Pillow's plug-ins raise whatever the bytes lead them to
        return f"cannot be decoded ({str(error).splitlines()[0] if str(error) else type(error).__name__})"


class IncomparablePhotograph(Exception):
    """Error: a photograph does not have the shape of its camera, so that keypoints have no place in it."""


def sample(shot: TrackedPhoto) -> Samples:
    """Return the mean of the 3 x 3 pixels around each keypoint of a photograph, as `Samples`.

    Raises:
        IncomparablePhotograph: the photograph does not have the shape of its camera.
        OSError: the photograph or its mask cannot be read or decoded; for some broken files Pillow raises other errors.
        ZeroDivisionError: the camera has a width or height of 0.
    """
    with opened_photograph(shot.path) as file:
        ratio = (file.size[0] / shot.camera.width, file.size[1] / shot.camera.height)
        if abs(ratio[0] / ratio[1] - 1) > STRETCH and max(abs(file.size[0] / ratio[1] - shot.camera.width), 0) > 1:
            raise IncomparablePhotograph(f"{file.size[0]}x{file.size[1]} pixels: not the aspect ratio of its camera")
        share = LONG_SIDE_PX / max(file.size)
        if share < 1:
            file.draft("RGB", (int(file.size[0] * share), int(file.size[1] * share)))
        pixels = np.asarray(pixels_of(file))
    size = np.array([pixels.shape[1], pixels.shape[0]])
    places = np.floor(shot.xy * (size / shot.camera.size))
    is_inside = np.all((places >= 0) & (places < size), axis=1)
    x, y = np.where(is_inside[:, None], places, 0).astype(np.int64).T
    rows, columns = (
        np.clip(one + around[:, None], 0, most - 1) for one, around, most in ((y, _DOWN, size[1]), (x, _RIGHT, size[0]))
    )
    found = np.take(pixels.reshape(-1, 3), rows * size[0] + columns, axis=0)  # [25, N, 3]
    near = found[_NEAR]
    counts = is_inside & (near.min(axis=0).min(axis=1) >= DARKEST) & (found.max(axis=0).max(axis=1) <= BRIGHTEST)
    if shot.mask is not None:  # which must keep all pixels around a keypoint
        with opened_photograph(shot.mask) as file:
            mask = np.asarray(pixels_of(file, "L"))
        around = (np.stack([columns, rows], axis=2)[_NEAR] + 0.5) / size * (mask.shape[1], mask.shape[0])  # [9, N, 2]
        column, row = np.moveaxis(around.astype(np.int64), 2, 0)
        counts &= (mask[row, column] >= MASK_COUNTS).all(axis=0)
    return np.where(counts[:, None], near.sum(axis=0, dtype=np.uint32) * SCALE // 9, 0).astype(np.uint16)


def _key(shot: TrackedPhoto) -> str:
    """Return a hash of all that a photograph's samples depend on. Raises OSError if the file is missing."""
    stats = [os.stat(path) for path in (shot.path, shot.mask) if path]  # noqa: PTH116 - as the cache of headers does
    facts = [(one.st_size, one.st_mtime_ns) for one in stats]
    told = f"{_VERSION} {shot.path} {facts} {shot.camera.width}x{shot.camera.height}".encode(errors="surrogateescape")
    return hashlib.sha256(told + np.ascontiguousarray(shot.xy).tobytes()).hexdigest()[:32]


def _load(path: Path | None) -> dict[str, Samples]:
    if path is None:
        return {}
    try:
        with open_regular(path) as kept, np.load(kept, allow_pickle=False) as file:
            keys, lengths, samples = (file[name] for name in ("keys", "lengths", "samples"))
            parts = np.split(samples.astype(np.uint16).reshape(-1, 3), np.cumsum(lengths)[:-1])
            return dict(zip(keys.tolist(), parts, strict=True))
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        return {}
