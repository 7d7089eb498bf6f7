"""Which photograph sees which points, and in what colour: the keypoints of tracks, of one model or of several together.

Each photograph is decoded once, small, in threads, and remembered.
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
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.files import open_regular, write_whole
from splatbatch.scene.colmap.files import ModelError
from splatbatch.scene.colmap.indexed_model import Ids
from splatbatch.scene.colmap.reconstruction import read_cameras, read_images, walk_points2d
from splatbatch.scene.colmap.types import NO_POINT3D, Camera, Floats, Image, Ints
from splatbatch.scene.colors.solve import ColorObservations
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.folders import MASK_COUNTS, find_masks, stored_photographs
from splatbatch.scene.photos.headers import opened_photograph, pixels_of

LEAST = 50
"""Observations from which a gain can be told: one is right within about 10 %, the mean of 50 within 1.5 %."""
MOST = 2_000_000
"""Observations that are kept, of all patches together; of more, whole tracks are left out: 500 MB for each million."""
MOST_EACH = 2_000
"""Observations that a photograph keeps in the mean, at most, in all patches together: trainings wait for the solution.
caliterra has 3,300. Left with 1,000, half of its gains move by 0.1 % or less, none by more than 0.6 %."""
LEAST_EACH = 200
"""Observations that each photograph of a patch keeps in the mean, whatever that comes to."""
SPREADING = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio (Knuth): ids that follow each other land far apart
LEAST_SHARED = 5
"""Points that two photographs share before they are linked: one or two may be a false match."""
MOST_NEIGHBOURS = 10
"""With which a photograph is compared: those that share the most points with it."""
Samples = NDArray[np.uint16]
"""[N, 3], 256 times the mean of the pixels around each keypoint; 0: left out, as masked, dark or clipped."""
LONG_SIDE_PX = 640
"""Photographs are decoded no smaller than this, if they are as large: a JPEG's own halves, quarters and eighths."""
DARKEST, BRIGHTEST = 8, 243
"""Of 255: what is darker is noise and rounding, what is brighter may be clipped."""
STRETCH = 0.02
"""The sides of a photograph may be scaled by factors this much apart: rounding; more is another shape."""
SCALE = 256
_DOWN, _RIGHT = (one.ravel() for one in np.mgrid[-2:3, -2:3])  # a JPEG smears the colours of clipped pixels so far
_NEAR = (np.abs(_DOWN) <= 1) & (np.abs(_RIGHT) <= 1)
_VERSION = "2"  # raise it when pixels are sampled differently


@dataclass(frozen=True, eq=False)
class TrackedPhoto:
    """A photograph with the keypoints of its tracks."""

    name: str
    path: Path
    camera: Camera
    xy: Floats  # [N, 2] in pixels of the camera
    points: Ints  # [N], numbers of points, over all models
    rotation: Floats  # [3, 3], from world to camera; NaN where the pose is none
    mask: Path | None = None
    problem: str = ""
    """Why nothing can be told of it, whatever is seen."""


def shots_of(patches: Iterable[Patch]) -> dict[str, TrackedPhoto]:
    """Return the photographs of patches by name; what several patches see of one is put together.

    Only points that two photographs see are kept.

    Raises:
        ModelError: every model is missing, unreadable, cut or garbage.
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
    shots = []
    for image in images:
        if image.camera_id in cameras:
            place, mask = folder / image.name, masks.get(image.name)
            xy, points = keypoints[image.id]
            shots.append(TrackedPhoto(image.name, place, cameras[image.camera_id], xy, points, image.rotation(), mask))
    # ids go up to 2 to the 64th
    ids = np.concatenate([np.zeros(0, np.uint64), *(shot.points for shot in shots)])
    numbers = np.unique(ids, return_inverse=True)[1].astype(np.int64)
    ends = np.cumsum([len(shot.points) for shot in shots], dtype=np.int64)[:-1]
    return [replace(shot, points=part) for shot, part in zip(shots, np.split(numbers, ends), strict=True)]


def _keypoints(sparse: Path, most: int) -> dict[int, tuple[Floats, Any]]:
    """Return the keypoints of each image that have a point, with its id, in all about as many as may be, at most.

    Where there are more, every second track is left out, and again: never are all keypoints in memory.
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
    """Return the keypoints of one track in 2^halvings, the same ones in every photograph."""
    if not halvings:
        return seen
    stays = (seen[1] * SPREADING) >> np.uint64(64 - halvings) == 0
    return seen[0][stays], seen[1][stays]


def _together(first: TrackedPhoto, second: TrackedPhoto) -> TrackedPhoto:
    if first.path != second.path and not _is_same_file(first.path, second.path):
        return replace(first, problem=f"another photograph has its name: {second.path}")
    xy, points = np.concatenate([first.xy, second.xy]), np.concatenate([first.points, second.points])
    return replace(first, xy=xy, points=points)


def _is_same_file(first: Path, second: Path) -> bool:
    """Return whether two files seem to be the same, or one of them is not there to tell."""
    try:
        return first.stat().st_size == second.stat().st_size
    except OSError:
        return True


@dataclass(frozen=True, eq=False)
class LinkedObservations:
    """Observations that hang together, and what was left out for that."""

    seen: ColorObservations
    group: Ints  # [num_photos], -1 for a photograph that is left alone
    shared: Any  # [num_photos, num_photos], sparse: points that two of them share


def link(seen: ColorObservations) -> LinkedObservations:
    """Return observations of photographs with enough of them, whose tracks stay within a group."""
    from scipy.sparse.csgraph import connected_components

    num = len(seen.camera)
    while True:
        matrix = _incidence(seen)
        shared = (matrix @ matrix.T).tocsr()
        enough = np.bincount(seen.photo, minlength=num) >= LEAST
        groups = connected_components(shared >= LEAST_SHARED, directed=False)[1].astype(np.int64)
        some = seen.only(enough[seen.photo])
        pairs = some.point * (int(groups.max()) + 1) + groups[some.photo]
        # a point that two groups see has become two points; those count that two photographs see
        some = replace(some, point=np.unique(pairs, return_inverse=True)[1].astype(np.int64))
        kept = some.only(np.asarray(_incidence(some).sum(axis=0)).ravel()[some.point] > 1)
        if len(kept.photo) == len(seen.photo):
            group = np.full(num, -1, np.int64)
            group[enough] = np.unique(groups[enough], return_inverse=True)[1]
            return LinkedObservations(kept, group, shared)
        seen = kept


def _incidence(seen: ColorObservations) -> Any:
    """Return which photograph sees which point, once for each pair, [photos, points]."""
    from scipy.sparse import csr_matrix

    shape = (len(seen.camera), int(seen.point.max(initial=-1)) + 1)
    matrix = csr_matrix((np.ones(len(seen.photo), np.float32), (seen.photo, seen.point)), shape)
    matrix.data[:] = 1  # entries for the same place are added up
    return matrix


def neighbours_mean(values: Floats, shared: Any, is_in: NDArray[np.bool_]) -> Floats:
    """Return for each photograph the mean over its nearest ones of values [num_photos], by points that they share."""
    means = np.full(len(values), np.nan)
    for one in np.flatnonzero(is_in):
        start, end = shared.indptr[one : one + 2]
        others, counts = shared.indices[start:end], shared.data[start:end]
        chosen = (others != one) & is_in[others] & (counts >= LEAST_SHARED)
        order = np.argsort(-counts[chosen])[:MOST_NEIGHBOURS]
        if len(order):
            means[one] = np.median(values[others[chosen][order]])
    return means


class SampleCache:
    """The samples of photographs, kept until a file's size or time, its mask or its keypoints change.

    A cache that is corrupt is ignored, and one that cannot be written is no error.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known = _load(path)
        self._used: dict[str, Samples] = {}

    def read(self, shots: Iterable[TrackedPhoto]) -> tuple[dict[str, Samples], dict[str, str]]:
        """Return the samples of photographs by name, and why some have none."""
        found = {}
        problems = {}
        shots = tuple(shots)
        with warnings.catch_warnings(), ThreadPoolExecutor(max(1, os.cpu_count() or 1)) as pool:
            warnings.simplefilter("ignore")  # Pillow's: what matters about a file becomes its problem
            for shot, samples in zip(shots, pool.map(self._read, shots), strict=True):
                if isinstance(samples, str):
                    problems[shot.name] = samples
                else:
                    found[shot.name] = samples
        return found, problems

    def _read(self, shot: TrackedPhoto) -> Samples | str:
        try:
            key = _key(shot)
            samples = self._known.get(key)
            if samples is None or len(samples) != len(shot.xy):
                samples = sample(shot)
        except FileNotFoundError:
            return "missing"
        except IncomparablePhotograph as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - Pillow's plug-ins raise whatever the bytes lead them to
            return f"cannot be decoded ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
        self._used[key] = samples
        return samples

    def keep(self) -> None:
        """Write what was used, if it is not what is there."""
        if self._path and self._used and self._used.keys() != self._known.keys():
            keys, lists = list(self._used), list(self._used.values())
            lengths = np.array([len(one) for one in lists], np.int64)
            with contextlib.suppress(OSError, ValueError):
                arrays: Mapping[str, Any] = {
                    "keys": np.array(keys),
                    "lengths": lengths,
                    "samples": np.concatenate(lists),
                }
                write_whole(self._path, lambda file: np.savez(file, **arrays))


class IncomparablePhotograph(Exception):
    """A photograph cannot be held against its keypoints, and why."""


def sample(shot: TrackedPhoto) -> Samples:
    """Return the mean of the 3 x 3 pixels around each keypoint of a photograph.

    Raises:
        OSError: it cannot be read or decoded, or its mask cannot.
        Unlike: it has not its camera's shape.
    """
    pixels = _decode(shot)
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
    if shot.mask is not None:
        counts &= _unmasked(shot.mask, np.stack([columns, rows], axis=2)[_NEAR] + 0.5, size)
    return np.where(counts[:, None], near.sum(axis=0, dtype=np.uint32) * SCALE // 9, 0).astype(np.uint16)


def _decode(shot: TrackedPhoto) -> NDArray[np.uint8]:
    with opened_photograph(shot.path) as file:
        ratio = (file.size[0] / shot.camera.width, file.size[1] / shot.camera.height)
        if abs(ratio[0] / ratio[1] - 1) > STRETCH and max(abs(file.size[0] / ratio[1] - shot.camera.width), 0) > 1:
            raise IncomparablePhotograph(f"{file.size[0]}x{file.size[1]} pixels, another shape than its camera's")
        share = LONG_SIDE_PX / max(file.size)
        if share < 1:
            file.draft("RGB", (int(file.size[0] * share), int(file.size[1] * share)))
        return np.asarray(pixels_of(file))


def _unmasked(path: Path, places: Floats, size: Ints) -> NDArray[np.bool_]:
    """Return whether a mask lets all the pixels [9, N, 2] around a keypoint count, of a photograph of this size."""
    with opened_photograph(path) as file:
        mask = np.asarray(pixels_of(file, "L"))
    x, y = np.moveaxis((places / size * (mask.shape[1], mask.shape[0])).astype(np.int64), 2, 0)
    return (mask[y, x] >= MASK_COUNTS).all(axis=0)


def _key(shot: TrackedPhoto) -> str:
    """Return what a photograph's samples depend on, as a hash; OSError: it is not there."""
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
