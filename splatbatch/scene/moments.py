"""Groups photographs into frames: all photographs of a frame were taken at one moment, from almost the same place.

The evidence, in this order:

1. Frames of COLMAP's rigs of two or more cameras. The trivial rigs that COLMAP writes for each camera say nothing.
2. Names, of photographs that are in no such rig. A path is split into a moment and a camera. The moment is its last
   part with a number in it: `left/0012.jpg`, `0012/left.jpg`, `IMG_0012_left.jpg` are all of moment 12. The camera is
   the rest: the other folders, and words that name a camera (`CAMERA_WORD`). Padding, case and file type are ignored.
3. Poses check the names, for each two cameras. Drones count anew in each flight: flight1/DJI_0001.jpg and
   flight2/DJI_0001.jpg are no frame. A rig is stiff: seen from its first camera, the second has the same pose at all
   moments. Names count where at least half of the shared moments differ from the median pose by no more than two
   limits: 15 degrees, and a tenth of the baseline or one way, whichever is more. A way is the median distance that a
   camera moves between two moments. It leaves room for cameras that no cable synchronises. Two flights differ by about
   their extent, which is many ways. One or two shared moments prove no constancy: there the cameras may also be no more
   than 5 ways apart. If each camera took only one photograph, no way is known, and the two are no frame.

In doubt photographs are a frame. If they are held out together, that costs a few photographs for training. If one is
held out and its twin is trained on, every figure flatters. So a shared moment counts even where one of its poses is
wrong, and without any pose names decide.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, combinations

import numpy as np

from splatbatch.scene.colmap.rigs import CAMERA, Rigs
from splatbatch.scene.colmap.types import Floats, Image, centers_of, finite, rotations_of
from splatbatch.scene.patches import natural_key

Frames = tuple[tuple[str, ...], ...]
"""Names of the photographs of each frame, every photograph once.

Names are sorted within a frame, and frames by their first names; a photograph that was taken alone is a frame of one.
"""
_PLAIN = "left|right|front|rear|back|top|bottom|up|down|middle|cent(?:er|re)|port|starboard|fore|aft|master|slave|[lr]"
_NUMBERED = r"(?:cam|camera|sensor|lens|eye)(?:\d{1,2}(?!\d)|[-_ ]\d{1,2}(?=[-_ ].*\d))"
CAMERA_WORD = re.compile(rf"(?<![a-z])(?:{_PLAIN}|{_NUMBERED})(?![a-z])")
"""Pattern of the words in a lower-case path that name a camera: `cam1` in `cam1/`, `l` in `0012_l`.

In `cam_1_0012` it is `cam_1`; in `cam_0012` there is none, since 0012 is a photograph's number.
"""
ALIKE_DEG, ALIKE_BASELINES, ALIKE_WAYS = 15.0, 0.1, 1.0
FEW, NEAR_WAYS = 2, 5.0
MOST_CAMERAS = 128
"""Most cameras of a model, told apart by name; with more, names group no photographs: COLMAP's rigs alone count."""


def frames_of(images: Sequence[Image], rigs: Rigs | None = None) -> Frames:
    """Return the frames of a model; a photograph that was taken alone is a frame of one.

    Args:
        images: images of the model; those without a finite pose are grouped, too.
        rigs: rigs of the model; ignored if they do not fit its images. None: the model has none.
    """
    row = {image.id: number for number, image in enumerate(images)}
    if rigs is None or rigs.misfit(images, {image.camera_id for image in images} | rigs.camera_ids()):
        rigs = Rigs((), ())
    several = {rig.id for rig in rigs.rigs if sum(kind == CAMERA for (kind, _), _ in rig.sensors) > 1}
    of_rigs = [[row[one] for one in frame.image_ids()] for frame in rigs.frames if frame.rig_id in several]
    together = [{number} for number in range(len(images))]
    for group in chain(of_rigs, _of_names(images, {*range(len(images))}.difference(*of_rigs))):
        joined = set[int]().union(*(together[number] for number in group))
        for number in joined if joined != together[group[0]] else ():
            together[number] = joined
    return tuple(sorted({tuple(sorted(images[number].name for number in one)) for one in together}))


def moment_and_camera(name: str) -> tuple[str, str]:
    """Return the moment and the camera that a photograph's path names, in lower case, as keys for comparison.

    `left/0012.jpg` gives ("12", "*/left"): words for a camera become `*` and follow at the end. The moment is empty if
    the path has no number apart from these words; the camera is then made of the whole path.
    """
    path = re.sub(r"\.[^./]*$", "", name.casefold())
    words = CAMERA_WORD.findall(path)
    parts = CAMERA_WORD.sub("*", path).split("/")
    at = max((index for index, part in enumerate(parts) if re.search(r"\d", part)), default=-1)
    moment = re.sub(r"(?<!\d)0+(?=\d)", "", parts.pop(at)) if at >= 0 else ""
    return moment, "/".join([*parts, *words])


def _of_names(images: Sequence[Image], chosen: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield pairs of rows of photographs of one moment, by their names and checked by their poses."""
    moments, taken = defaultdict[str, dict[str, int]](dict), defaultdict[str, list[int]](list)
    by_name = [natural_key(image.name) for image in images].__getitem__
    for number in sorted(chosen, key=by_name):
        moment, camera = moment_and_camera(images[number].name)
        if moment:
            taken[camera].append(number)
            moments[moment].setdefault(camera, number)  # 7.jpg and 07.jpg of one camera are two moments
    shared = defaultdict[tuple[str, str], list[tuple[int, int]]](list)
    for cameras in moments.values() if len(taken) <= MOST_CAMERAS else ():
        for one, other in combinations(sorted(cameras), 2):
            shared[one, other].append((cameras[one], cameras[other]))
    centers, rotations = centers_of(images), rotations_of(images)
    steps = {one: finite(np.linalg.norm(np.diff(centers[its], axis=0), axis=1)) for one, its in taken.items()}
    way = {one: float(np.median(known)) if len(known) else np.inf for one, known in steps.items()}
    for (one, other), twins in shared.items():
        if _are_stiff(centers, rotations, np.array(twins), min(way[one], way[other])):
            yield from twins


def _are_stiff(centers: Floats, rotations: Floats, twins: Floats, way: float) -> bool:
    """Return whether the relative pose of two cameras is constant over their shared moments, so that they form a rig.

    Args:
        centers: camera centres, [I, 3].
        rotations: rotations from world to camera, [I, 3, 3].
        twins: rows of the photographs of both cameras at each shared moment, [n, 2].
        way: usual distance between two moments; infinite if unknown.
    """
    one, other = twins.T
    turns = rotations[other] @ rotations[one].transpose(0, 2, 1)  # [n, 3, 3], from the first camera to the second
    steps = np.einsum("nij,nj->ni", rotations[one], centers[other] - centers[one])  # [n, 3], seen by the first
    is_posed = np.isfinite(steps).all(axis=1) & np.isfinite(turns).all(axis=(1, 2))
    if not is_posed.any():
        return True
    turns, steps = turns[is_posed], steps[is_posed]
    baseline, (left, _, right) = np.median(steps, axis=0), np.linalg.svd(np.median(turns, axis=0))
    cosines = (np.einsum("nij,ij->n", turns, left @ right) - 1) / 2
    off, room = np.linalg.norm(steps - baseline, axis=1), ALIKE_BASELINES * np.linalg.norm(baseline)
    is_alike = (off <= max(room, ALIKE_WAYS * way)) & (cosines >= np.cos(np.radians(ALIKE_DEG)))
    is_near = len(steps) > FEW or bool(np.linalg.norm(baseline) <= NEAR_WAYS * way < np.inf)
    return is_near and bool(is_alike.mean() >= 0.5)
