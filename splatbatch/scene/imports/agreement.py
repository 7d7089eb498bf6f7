"""Checks imported poses by matching photographs, and triangulates points from the matches.

pycolmap matches with SIFT on the CPU; time, threads, pixels and features are limited.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.files import load_pycolmap
from splatbatch.scene.colmap.types import Floats, Mask
from splatbatch.scene.imports.capture import (
    OPENGL,
    ImportLog,
    ImportOptions,
    PosedPhoto,
    SourceCapture,
    some,
)
from splatbatch.scene.imports.write import posed_model
from splatbatch.scene.photos.folders import link_numbers
from splatbatch.scene.reprojection import in_picture, unproject
from splatbatch.text import plural

THREADS = 2
_WIDEST = np.cos(np.radians(75))
"""Cosine of the largest angle between two viewing directions whose photographs are matched."""
_SHOTS, _POINTS = 24, 200_000  # sampled, evenly
_LEAST_SEEN = 5
LEAST_MATCHES = 20
"""Fewest matches of a pair of photographs by which its poses are judged."""
AGREES, CONTRADICTS = 0.7, 0.35
"""Shares of matches that fit the poses: from `AGREES` on the poses are right, below `CONTRADICTS` they are wrong.

Right poses have 0.9 and more, wrong poses hardly any.
"""
_OFF = 0.004  # of the longer side: epipolar distance that passes
_LEAST_BASELINE = 1e-6
_NEAR = 0.03  # of the longer side: a point's pixel counts as that of a match
_SAME_DEPTH = (0.5, 2.0)
_CHECKED, _NEIGHBOURS, _EACH = 6, 3, 12
"""Numbers of photographs matched as a check, of pairs of each, and of pairs of each when points are triangulated."""
_CHECK_S = 300.0
_LATE = "the time for matching was over"


class MatchingSkipped(Exception):
    """Error: photographs were not matched, since the time was over or pycolmap failed; the message says which."""


FULL, GLANCE = (1600, 4096, 1 << 20), (1000, 2048, 800)
"""Efforts of matching: `FULL` to triangulate points, `GLANCE` to check poses.

Each holds the longest side of the photographs in pixels, to which larger ones are reduced; the most features of a
photograph; and the longest side in pixels below which photographs are enlarged to double size. Doubling gives finer
features in four times the time.
"""


@dataclass(frozen=True, eq=False)
class MatchFolder:
    """Working folder of matching: the posed photographs, as links in images/ under their names, and a database.

    `effort` is one of `FULL` and `GLANCE`.
    """

    work: Path
    shots: Sequence[PosedPhoto]
    until: float
    """Deadline of all matching in this folder, as a value of time.monotonic() in seconds."""
    effort: tuple[int, int, int] = FULL

    @property
    def images(self) -> Path:
        """Folder of the links to the photographs."""
        return self.work / "images"

    @property
    def database(self) -> Path:
        """Path of COLMAP's database with features and matches; absent until photographs are matched."""
        return self.work / "matches.db"


@dataclass(frozen=True, eq=False)
class PhotographMatch:
    """Matches of two posed photographs, given by their indices.

    Row n of `here` [N, 2] is a pixel in the first photograph, row n of `there` [N, 2] the same point in the second.
    """

    first: int
    second: int
    here: Floats
    there: Floats


def near_pairs(shots: Sequence[PosedPhoto], each: int) -> list[tuple[int, int]]:
    """Return pairs of photographs to match, as indices with the smaller first, each pair once.

    Paired are neighbours that look in directions less than 75 degrees apart, of the 4 * `each` nearest.

    Args:
        shots: posed photographs, at least one.
        each: most neighbours that are paired with a photograph; a photograph may be the neighbour of further ones.
    """
    from scipy.spatial import cKDTree

    centers = np.array([shot.center for shot in shots])
    looks = np.array([shot.rotation[2] for shot in shots])
    _, near = cKDTree(centers).query(centers, k=min(len(shots), 4 * each + 1))
    pairs: dict[tuple[int, int], None] = {}
    for index, neighbours in enumerate(np.atleast_2d(near)):
        alike = [int(other) for other in neighbours if other != index and looks[index] @ looks[other] > _WIDEST]
        pairs |= {(min(index, other), max(index, other)): None for other in alike[:each]}
    return list(pairs)


def match(model: Any, pairs: Sequence[tuple[int, int]], place: MatchFolder) -> list[PhotographMatch]:
    """Return the matches of pairs of photographs that a two-view geometry confirms; pairs without any are left out.

    Features and matches stay in the database of `place`; an older database there is removed first.

    Args:
        model: pycolmap.Reconstruction of the photographs of `place`; an image id is the index of a photograph plus one.
        pairs: pairs of indices of photographs; none: nothing is matched.
        place: working folder with the photographs.

    Raises:
        MatchingSkipped: the time is over, or pycolmap fails while it matches.
        OSError: the working folder cannot be written.
        RuntimeError: pycolmap cannot open, write or read the database.
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
    extraction.max_image_size, extraction.sift.max_num_features, doubled_below_px = place.effort
    longest = max(max(place.shots[index].camera.size) for index in used)
    extraction.sift.first_octave = -1 if longest < doubled_below_px else 0
    listed = pycolmap.ImportedPairingOptions()
    listed.match_list_path = place.work / "pairs.txt"
    text = "".join(f"{place.shots[one].name} {place.shots[other].name}\n" for one, other in pairs)
    (place.work / "pairs.txt").write_text(text, encoding="utf-8")
    with _within_time(place) as token:
        common = {"device": pycolmap.Device.cpu, "cancellation_token": token}
        pycolmap.extract_features(
            place.database, place.images, image_names=names, extraction_options=extraction, **common
        )
        pycolmap.match_image_pairs(place.database, matching_options=matching, pairing_options=listed, **common)
    return list(_found(place))


def _begin(model: Any, used: Sequence[int], place: MatchFolder) -> None:
    """Write cameras and images of the model into a new database, with their lenses and ids."""
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


def _found(place: MatchFolder) -> Iterator[PhotographMatch]:
    with load_pycolmap().Database.open(place.database) as database:
        known = {  # columns 2 and later are scales and angles
            image.image_id: np.asarray(database.read_keypoints(image.image_id), np.float64)[:, :2]
            for image in database.read_all_images()
        }
        pairs, geometries = database.read_two_view_geometries()
        for pair, geometry in zip(pairs, geometries, strict=True):
            one, other = load_pycolmap().pair_id_to_image_pair(pair)
            indices: NDArray[np.uint32] = np.asarray(geometry.inlier_matches).reshape(-1, 2)
            if len(indices):
                yield PhotographMatch(one - 1, other - 1, known[one][indices[:, 0]], known[other][indices[:, 1]])


@contextmanager
def _within_time(place: MatchFolder) -> Iterator[Any]:
    """Yield a token that is cancelled at the deadline of a working folder; pycolmap logs errors only.

    Raises:
        MatchingSkipped: the deadline has passed, or pycolmap failed.
    """
    pycolmap = load_pycolmap()
    token, before = pycolmap.CancellationToken(), pycolmap.logging.minloglevel
    pycolmap.logging.minloglevel = pycolmap.logging.ERROR
    timer = threading.Timer(max(0.0, place.until - time.monotonic()), token.cancel)
    timer.daemon = True
    timer.start()
    try:
        yield token
    except (OSError, RuntimeError, ValueError) as error:
        raise MatchingSkipped(_LATE if token.is_cancelled else f"pycolmap failed: {error}") from error
    finally:
        timer.cancel()
        pycolmap.logging.minloglevel = before
    if time.monotonic() >= place.until:
        raise MatchingSkipped(_LATE)


def triangulate(model: Any, place: MatchFolder) -> Any:
    """Return pycolmap's reconstruction with points triangulated from the matches; poses and cameras stay as they are.

    Args:
        model: pycolmap.Reconstruction of the photographs of `place`.
        place: working folder whose photographs were matched.

    Raises:
        MatchingSkipped: the time is over, or pycolmap fails.
        OSError: the working folder cannot be written.
    """
    pycolmap = load_pycolmap()
    out = place.work / "triangulated"
    out.mkdir(exist_ok=True)
    options = pycolmap.IncrementalPipelineOptions()
    # lenses are known from the source: pycolmap must not reject any
    options.min_focal_length_ratio, options.max_focal_length_ratio, options.max_extra_param = 1e-3, 1e3, 1e6
    options.num_threads = THREADS
    with _within_time(place) as token:
        return pycolmap.triangulate_points(
            model, place.database, place.images, out, options=options, cancellation_token=token
        )


def share_that_see(shots: Sequence[PosedPhoto], points: Floats) -> float:
    """Return the share (0 to 1) of photographs that have at least 5 of the points in view.

    0 without photographs or points. Photographs and points are sampled. If there are fewer than 5 points, all must be
    in view.

    Args:
        shots: posed photographs.
        points: points in the world of the poses, [P, 3].
    """
    some_points, some_shots = points[:: len(points) // _POINTS or 1], shots[:: len(shots) // _SHOTS or 1]
    seen = [int(in_view(shot, some_points)[0].sum()) for shot in some_shots]
    return float(np.mean(np.array(seen) >= min(_LEAST_SEEN, max(1, len(points))))) if seen else 0.0


def in_view(shot: PosedPhoto, points: Floats) -> tuple[Mask, Floats, Floats]:
    """Return which points lie in a photograph, [P], with their pixels, [P, 2], and depths in units of the world, [P].

    A panorama shows all points; their pixels are 0, and their depths are distances from the camera.

    Args:
        shot: the photograph with its pose.
        points: points in the world of the pose, [P, 3].
    """
    camera = shot.camera
    local = (points - shot.center) @ shot.rotation.T
    if not camera.has_center:  # a panorama sees all
        return np.ones(len(points), bool), np.zeros((len(points), 2)), np.linalg.norm(local, axis=1)
    inside, pixels = in_picture(camera, local)
    return inside, pixels, local[:, 2]


@dataclass(frozen=True)
class PoseVerdict:
    """How well matches between photographs fit the poses, and the depths of the points."""

    num_pairs: int
    """Number of pairs of photographs with enough matches and a distance between their cameras."""
    agreement: float
    """Median, over the pairs, of the share (0 to 1) of matches that fit the poses."""
    cause: str = ""
    """The likely mistake in the poses, in words, without which the matches would fit.

    Empty: the matches fit, or no known mistake explains them.
    """
    depth_ratio: float | None = None
    """Median ratio of the points' depths to those of matches near them; 1 if both have one unit.

    None: no points were given, the poses are wrong, or too few points lie near matches.
    """

    @property
    def is_contradicted(self) -> bool:
        """Whether the matches contradict the poses: fewer than `CONTRADICTS` fit, or a mistake was recognised."""
        return self.agreement < CONTRADICTS or bool(self.cause)


def judge(
    shots: Sequence[PosedPhoto], matched: Sequence[PhotographMatch], points: Floats | None = None
) -> PoseVerdict | None:
    """Return how well matches fit the poses; None if no pair of photographs can be judged.

    Args:
        shots: posed photographs; panoramas are not judged.
        matched: matches between them; pairs with fewer than `LEAST_MATCHES` do not count.
        points: points in the world of the poses, [P, 3], whose depths are compared, too; None: poses alone are judged.
    """
    # panoramas have no focal length: rays all round
    with_focal = {at for at, shot in enumerate(shots) if shot.camera.has_center}
    telling = [one for one in matched if len(one.here) >= LEAST_MATCHES and {one.first, one.second} <= with_focal]
    count, agreement = _agreement(telling, shots)
    if not count:
        return None
    cause = ""
    if agreement < AGREES:
        tried = ((words, [change(shot) for shot in shots]) for words, change in _CAUSES.items())
        cause = next((words for words, changed in tried if _agreement(telling, changed)[1] >= AGREES), "")
    found = PoseVerdict(count, agreement, cause)
    if points is None or found.is_contradicted:
        return found
    ratios = [np.zeros(0)]  # of the points' depths to those of matches near them
    for one in telling:
        if (_share(one, shots) or 0.0) >= AGREES:
            first = shots[one.first]
            depths = _depths(rays(first, one.here), rays(shots[one.second], one.there), *_between(one, shots))[:, 0]
            ratios.append(_beside(first, points, one.here[depths > 0], depths[depths > 0]))
    every = np.concatenate(ratios)
    return replace(found, depth_ratio=float(np.median(every))) if len(every) >= LEAST_MATCHES else found


def _agreement(telling: Sequence[PhotographMatch], shots: Sequence[PosedPhoto]) -> tuple[int, float]:
    """Return the number of pairs with a baseline, and the median of the share of their matches that fits the poses."""
    shares = [share for one in telling if (share := _share(one, shots)) is not None]
    return len(shares), float(np.median(shares)) if shares else 0.0


_CAUSES: dict[str, Callable[[PosedPhoto], PosedPhoto]] = {
    "the camera axes are OpenCV's (y down, looking along z), not OpenGL's (y up, looking along -z)": (
        lambda shot: replace(shot, rotation=OPENGL @ shot.rotation)
    ),
    "the matrices lead from the world to the camera, not from the camera to the world": (
        lambda shot: replace(shot, rotation=shot.rotation.T, center=-shot.rotation @ shot.center)
    ),
    "the matrices lead from the world to the camera, and the camera axes are OpenCV's (y down, looking along z)": (
        lambda shot: replace(shot, rotation=shot.rotation.T @ OPENGL, center=-OPENGL @ shot.rotation @ shot.center)
    ),
    "the matrices lead from the world to the camera, and the camera axes are OpenGL's (y up, looking along -z)": (
        lambda shot: replace(
            shot, rotation=OPENGL @ shot.rotation.T @ OPENGL, center=-OPENGL @ shot.rotation @ shot.center
        )
    ),
    "the camera positions are mirrored along x, and the rotations are not": (
        lambda shot: replace(shot, center=shot.center * (-1, 1, 1))
    ),
    "the camera positions are mirrored along y, and the rotations are not": (
        lambda shot: replace(shot, center=shot.center * (1, -1, 1))
    ),
    "the camera positions are mirrored along z, and the rotations are not": (
        lambda shot: replace(shot, center=shot.center * (1, 1, -1))
    ),
}


def _share(one: PhotographMatch, shots: Sequence[PosedPhoto]) -> float | None:
    """Return the share of a pair's matches that fits its poses; None for a pair without a baseline."""
    first, second = shots[one.first], shots[one.second]
    here, there = rays(first, one.here), rays(second, one.there)
    turn, shift = _between(one, shots)
    if np.linalg.norm(shift) < _LEAST_BASELINE:
        return None
    essential = np.cross(np.eye(3), shift / np.linalg.norm(shift)) @ turn  # [shift]x turn
    along, back = here @ essential.T, there @ essential
    missed = np.abs((there * along).sum(axis=1))
    with np.errstate(all="ignore"):
        off = missed / np.sqrt(along[:, 0] ** 2 + along[:, 1] ** 2 + back[:, 0] ** 2 + back[:, 1] ** 2)
    camera = first.camera
    left, right = rays(first, np.array([[0.0, camera.height / 2], [camera.width, camera.height / 2]]))
    focal = max(camera.size) / max(float(np.linalg.norm(right - left)), 1e-9)
    fits = off * focal < _OFF * max(camera.size)
    depths = _depths(here, there, turn, shift)
    return float((fits & (depths > 0).all(axis=1)).mean())


def _between(one: PhotographMatch, shots: Sequence[PosedPhoto]) -> tuple[Floats, Floats]:
    """Return rotation and translation from the first camera of a pair to the second."""
    first, second = shots[one.first], shots[one.second]
    return second.rotation @ first.rotation.T, second.rotation @ (first.center - second.center)


def rays(shot: PosedPhoto, pixels: Floats) -> Floats:
    """Return the rays of pixels [N, 2] in camera coordinates, [N, 3], with z = 1; NaN for an unknown lens."""
    return np.concatenate([unproject(shot.camera, pixels), np.ones((len(pixels), 1))], axis=1)


def _depths(here: Floats, there: Floats, turn: Floats, shift: Floats) -> Floats:
    """Return the depths [N, 2] at which two rays come closest: turn @ (a here) + shift = b there, in least squares."""
    one = here @ turn.T
    aa, bb, ab = (one * one).sum(axis=1), (there * there).sum(axis=1), (one * there).sum(axis=1)
    with np.errstate(all="ignore"):
        gap = aa * bb - ab * ab
        first = (ab * (there @ shift) - bb * (one @ shift)) / gap
        second = (aa * (there @ shift) - ab * (one @ shift)) / gap
    return np.nan_to_num(np.stack([first, second], axis=1), nan=-1.0)


def _beside(shot: PosedPhoto, points: Floats, pixels: Floats, depths: Floats) -> Floats:
    """Return the depth of each match's nearest point in the picture over its own; distant points are left out."""
    from scipy.spatial import cKDTree

    is_seen, places, theirs = in_view(shot, points)
    if not is_seen.any() or not len(pixels):
        return np.zeros(0)
    apart, index = cKDTree(places[is_seen]).query(pixels)
    close = apart < _NEAR * max(shot.camera.size)
    return theirs[is_seen][index[close]] / depths[close]


def check_poses(capture: SourceCapture, folder: Path, log: ImportLog) -> None:
    """Match a few pairs of photographs, and record a mistake if the matches contradict poses or points.

    Skipped matching is recorded as left out, without an error.

    Args:
        capture: the source that was read.
        folder: existing folder in which a working folder is made, and removed again.
        log: record of the import, to which the result is added.

    Raises:
        OSError: the working folder cannot be written.
        ValueError, RuntimeError: pycolmap does not accept a camera or pose, or cannot use its database.
    """
    points = capture.cloud.xyz if capture.cloud else None
    try:
        verdict = judge_few(capture.shots, folder, points)
    except MatchingSkipped as error:
        log.leave_out(f"the check of the poses by matching photographs: {error}")
        return
    _note(verdict, log)
    ratio = verdict.depth_ratio if verdict else None
    if capture.cloud and ratio is not None and not _SAME_DEPTH[0] <= ratio <= _SAME_DEPTH[1]:
        what = f"the points lie {ratio:.3g} times as far from the cameras as the photographs show"
        log.mistake(capture.cloud.origin, what, "Export points and poses again, both in the same unit.")


def judge_few(shots: Sequence[PosedPhoto], folder: Path, points: Floats | None) -> PoseVerdict | None:
    """Match a few pairs of photographs, and return how well the matches fit the poses and the points.

    None if no pair can be judged. After 300 s matching is cancelled, which is an error.

    Args:
        shots: the photographs with their poses.
        folder: existing folder in which a working folder is made, and removed again.
        points: points in the world of the poses, [P, 3]; None: poses alone are judged.

    Raises:
        MatchingSkipped: the time is over, or pycolmap fails while it matches.
        OSError: the working folder cannot be written.
        ValueError, RuntimeError: pycolmap does not accept a camera or pose, or cannot use its database.
    """
    with _workplace(folder, _CHECK_S, shots) as place:
        matched = match(posed_model(place.shots), _few_pairs(shots), replace(place, effort=GLANCE))
    return judge(shots, matched, points)


def _few_pairs(shots: Sequence[PosedPhoto]) -> list[tuple[int, int]]:
    """Return pairs of neighbours about photographs spread evenly over all."""
    anchors = set(range(0, len(shots), len(shots) // _CHECKED or 1))
    pairs = [pair for pair in near_pairs(shots, _NEIGHBOURS) if pair[0] in anchors]
    return pairs[: _CHECKED * _NEIGHBOURS]


def _note(verdict: PoseVerdict | None, log: ImportLog) -> None:
    """Note what photographs say about the poses."""
    if verdict is None:
        log.leave_out("the check of the poses by matching photographs: too few features match")
        return
    told = (
        f"{100 * verdict.agreement:.0f} % of the matching features (median of {verdict.num_pairs} pairs of photographs)"
    )
    if verdict.is_contradicted:
        cause = f"; more would fit if {verdict.cause}" if verdict.cause else ""
        remedy = "Export poses and photographs again, with the camera axes that the format demands."
        log.mistake("poses", f"the photographs contradict the poses: {told} fit{cause}", remedy)
    else:
        log.convert(f"poses were compared with the photographs: {told} fit")


def triangulated(capture: SourceCapture, folder: Path, options: ImportOptions, log: ImportLog) -> Any:
    """Return a pycolmap.Reconstruction with points triangulated from the photographs, for a source without points.

    Without points if poses are found wrong, the time is over, pycolmap fails, or no photographs match; `log` says so.

    Args:
        capture: the source that was read.
        folder: existing folder in which a working folder is made, and removed again.
        options: options of the import, with the longest time in seconds.
        log: record of the import; wrong poses are recorded as mistakes.

    Raises:
        OSError: the working folder cannot be written.
        ValueError, RuntimeError: pycolmap does not accept a camera or pose, or cannot use its database.
    """
    shots = capture.shots
    with _workplace(folder, options.within_s, shots) as place:
        model = posed_model(place.shots)
        try:
            _note(judge(shots, match(model, _few_pairs(shots), replace(place, effort=GLANCE))), log)
            # wrong poses are found before all photographs are matched
            if not log.num_mistakes and match(model, near_pairs(shots, _EACH), place):
                model = triangulate(model, place)
        except MatchingSkipped as error:
            log.leave_out(f"points: the source has none; triangulation (in {options.within_s:.0f} s) failed: {error}")
    for number, shot in enumerate(shots, start=1):
        model.images[number].name = shot.name
    if model.num_points3D():
        kept = f"{plural(model.num_points3D(), 'point')} triangulated from the photographs (SIFT)"
        unseen = sorted(image.name for image in model.images.values() if not image.num_points3D)
        log.convert(f"{kept}, poses and lenses kept{f'; no point is seen in {some(unseen)}' if unseen else ''}")
    elif not log.left_out or "points:" not in log.left_out[-1]:
        log.leave_out("points: the source has none, and too few features match between the photographs")
    return model


@contextmanager
def _workplace(folder: Path, within_s: float, shots: Sequence[PosedPhoto]) -> Iterator[MatchFolder]:
    """Yield a working folder for matching, which is removed afterwards; photographs have numbers as names there."""
    work = folder / ".matching"
    try:
        numbers = link_numbers([shot.photo for shot in shots], work / "images")
        plain = [replace(shot, name=number, keypoints=None) for shot, number in zip(shots, numbers, strict=True)]
        yield MatchFolder(work, plain, time.monotonic() + within_s)
    finally:
        shutil.rmtree(work, ignore_errors=True)
