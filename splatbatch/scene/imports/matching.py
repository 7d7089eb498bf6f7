"""Photographs matched by pycolmap, SIFT on the CPU: bounded in time, threads, pixels and features."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.files import load_pycolmap
from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.imports.capture import Shot

THREADS = 2
_WIDEST = np.cos(np.radians(75))
"""Photographs that look apart by more than this have nothing to match."""


class Unmatched(Exception):
    """Matching was not done; the message says why."""


@dataclass(frozen=True)
class Effort:
    """How closely a photograph is looked at."""

    longest_px: int = 1600
    """Its longer side while features are looked for."""
    most_features: int = 4096
    doubled_below_px: int = 1 << 20
    """Photographs with shorter sides are doubled first, which finds finer features in four times the time."""


GLANCE = Effort(1000, 2048, 800)
"""Enough to see whether poses are right."""


@dataclass(frozen=True, eq=False)
class Place:
    """A folder where matching works: images/ with the photographs of shots under their names, and a database."""

    work: Path
    shots: Sequence[Shot]
    until: float
    """Time of time.monotonic() at which it gives up."""
    effort: Effort = Effort()

    @property
    def images(self) -> Path:
        """Return the folder of the photographs."""
        return self.work / "images"

    @property
    def database(self) -> Path:
        """Return the database of features and matches."""
        return self.work / "matches.db"


@dataclass(frozen=True, eq=False)
class Matched:
    """Two shots, by their indices, and where they show the same: pixels [N, 2] in each."""

    first: int
    second: int
    here: Floats
    there: Floats


def near_pairs(shots: Sequence[Shot], each: int) -> list[tuple[int, int]]:
    """Return the pairs of photographs that look the same way from close by: up to `each` for every one."""
    from scipy.spatial import cKDTree

    centers = np.array([shot.center for shot in shots])
    looks = np.array([shot.rotation[2] for shot in shots])
    _, near = cKDTree(centers).query(centers, k=min(len(shots), 4 * each + 1))
    pairs: dict[tuple[int, int], None] = {}
    for index, neighbours in enumerate(np.atleast_2d(near)):
        alike = [int(other) for other in neighbours if other != index and looks[index] @ looks[other] > _WIDEST]
        pairs |= {(min(index, other), max(index, other)): None for other in alike[:each]}
    return list(pairs)


def match(model: Any, pairs: Sequence[tuple[int, int]], place: Place) -> list[Matched]:
    """Return what pairs of photographs have in common; features and matches stay in the database of the place.

    Args:
        model: pycolmap's, with the cameras of the place's shots; the id of an image is the index of its shot and one.
        pairs: indices of shots.
        place: of the photographs and the database.

    Raises:
        Unmatched: it is not done in time, or pycolmap cannot.
    """
    if not pairs:
        return []
    pycolmap = load_pycolmap()
    used = sorted({index for pair in pairs for index in pair})
    _begin(model, used, place)
    names = [place.shots[index].name for index in used]
    extraction, matching = pycolmap.FeatureExtractionOptions(), pycolmap.FeatureMatchingOptions()
    for options in (extraction, matching):
        options.use_gpu, options.num_threads = False, THREADS
    extraction.max_image_size = place.effort.longest_px
    extraction.sift.max_num_features = place.effort.most_features
    longest = max(max(place.shots[index].camera.width, place.shots[index].camera.height) for index in used)
    extraction.sift.first_octave = -1 if longest < place.effort.doubled_below_px else 0
    listed = pycolmap.ImportedPairingOptions()
    listed.match_list_path = place.work / "pairs.txt"
    text = "".join(f"{place.shots[one].name} {place.shots[other].name}\n" for one, other in pairs)
    (place.work / "pairs.txt").write_text(text, encoding="utf-8")
    with _until(place.until) as token:
        shared = {"device": pycolmap.Device.cpu, "cancellation_token": token}
        pycolmap.extract_features(
            place.database, place.images, image_names=names, extraction_options=extraction, **shared
        )
        _see_time(place)
        pycolmap.match_image_pairs(place.database, matching_options=matching, pairing_options=listed, **shared)
    _see_time(place)
    return list(_found(place))


def _begin(model: Any, used: Sequence[int], place: Place) -> None:
    """Write cameras and images into a database, so that it knows the lenses and keeps the ids of the model."""
    pycolmap = load_pycolmap()
    place.database.unlink(missing_ok=True)
    with pycolmap.Database.open(place.database) as database:
        images = [model.images[index + 1] for index in used]
        for number in sorted({image.camera_id for image in images}):
            database.write_camera(model.cameras[number], use_camera_id=True)
            database.write_rig(model.rigs[number], use_rig_id=True)
        for image in images:
            database.write_frame(model.frames[image.frame_id], use_frame_id=True)
            database.write_image(image, use_image_id=True)


def _found(place: Place) -> Iterator[Matched]:
    with load_pycolmap().Database.open(place.database) as database:
        known: dict[int, Floats] = {}
        for image in database.read_all_images():
            known[image.image_id] = _pixels(database.read_keypoints(image.image_id))
        pairs, geometries = database.read_two_view_geometries()
        for pair, geometry in zip(pairs, geometries, strict=True):
            one, other = _ids(pair)
            indices: NDArray[np.uint32] = np.asarray(geometry.inlier_matches).reshape(-1, 2)
            if len(indices):
                yield Matched(one - 1, other - 1, known[one][indices[:, 0]], known[other][indices[:, 1]])


def _pixels(keypoints: Any) -> Floats:
    return np.asarray(keypoints, np.float64)[:, :2]  # scales and angles stand behind


def _ids(pair: Any) -> tuple[int, int]:
    if isinstance(pair, tuple):
        return pair
    one, other = load_pycolmap().pair_id_to_image_pair(pair)
    return int(one), int(other)


@contextmanager
def _until(moment: float) -> Iterator[Any]:
    """Give a token that is cancelled at a moment, and keep pycolmap from telling of every photograph."""
    pycolmap = load_pycolmap()
    token, before = pycolmap.CancellationToken(), pycolmap.logging.minloglevel
    pycolmap.logging.minloglevel = pycolmap.logging.ERROR
    timer = threading.Timer(max(0.0, moment - time.monotonic()), token.cancel)
    timer.daemon = True
    timer.start()
    try:
        yield token
    except (OSError, RuntimeError, ValueError) as error:
        raise _unmatched(error, is_cancelled=token.is_cancelled) from error
    finally:
        timer.cancel()
        pycolmap.logging.minloglevel = before


def _see_time(place: Place) -> None:
    if time.monotonic() >= place.until:
        raise _unmatched(TimeoutError(), is_cancelled=True)


def _unmatched(error: Exception, *, is_cancelled: bool) -> Unmatched:
    return Unmatched("not done in time" if is_cancelled else f"pycolmap cannot: {error}")


def triangulate(model: Any, place: Place) -> Any:
    """Return the model with points triangulated from what was matched; poses and cameras stay as they are.

    Raises:
        Unmatched: it is not done in time, or pycolmap cannot.
    """
    pycolmap = load_pycolmap()
    out = place.work / "triangulated"
    out.mkdir(exist_ok=True)
    options = pycolmap.IncrementalPipelineOptions()
    # lenses are as their source says: none is bogus
    options.min_focal_length_ratio, options.max_focal_length_ratio, options.max_extra_param = 1e-3, 1e3, 1e6
    options.num_threads = THREADS
    with _until(place.until) as token:
        found = pycolmap.triangulate_points(
            model, place.database, place.images, out, options=options, cancellation_token=token
        )
    _see_time(place)
    return found
