"""Poses against photographs: what two photographs both show must lie on one ray's image, in front of both cameras."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.types import CAMERA_MODELS, Floats
from splatbatch.scene.imports.capture import Cloud, Shot
from splatbatch.scene.imports.checks.matching import Matched
from splatbatch.scene.imports.checks.views import in_view
from splatbatch.scene.imports.pose import OPENGL
from splatbatch.scene.reprojection import in_pycolmap

LEAST_MATCHES = 20
"""Of a pair that says anything."""
AGREES, CONTRADICTS = 0.7, 0.35
"""Share of the matches that fits the poses: of sound ones 0.9 and more, of wrong ones hardly any."""
_OFF = 0.004  # of the longer side: epipolar distance that passes
_LEAST_BASELINE = 1e-6
_NEAR = 0.03  # of the longer side: a point's pixel counts as that of a match
_SAME_DEPTH = (0.5, 2.0)

Posed = Callable[[Shot], Shot]


@dataclass(frozen=True)
class Verdict:
    """What matches say of the poses."""

    num_pairs: int
    agreement: float
    """Median over the pairs of the share of matches that fit."""
    cause: str = ""
    """What would make them fit, where they do not."""


def judge(shots: Sequence[Shot], matched: Sequence[Matched]) -> Verdict | None:
    """Return what the matches of photographs say of their poses; None where there are too few to say anything."""
    telling = [one for one in matched if _is_telling(one, shots)]
    shares = [share for one in telling if (share := _share(one, shots)) is not None]
    if not shares:
        return None
    agreement = float(np.median(shares))
    if agreement >= AGREES:
        return Verdict(len(shares), agreement)
    for words, change in _CAUSES.items():
        changed = {index: change(shots[index]) for one in telling for index in (one.first, one.second)}
        tried = [share for one in telling if (share := _share(one, changed)) is not None]
        if tried and float(np.median(tried)) >= AGREES:
            return Verdict(len(shares), agreement, words)
    return Verdict(len(shares), agreement)


def _is_telling(one: Matched, shots: Sequence[Shot]) -> bool:
    """Return whether there are enough matches, of cameras that have a focal length: panoramas have rays all round."""
    models = (shots[index].camera.model for index in (one.first, one.second))
    return len(one.here) >= LEAST_MATCHES and all("cx" in CAMERA_MODELS[model].params for model in models)


def _turned(change: Callable[[Floats, Floats], tuple[Floats, Floats]]) -> Posed:
    def changed(shot: Shot) -> Shot:
        rotation, center = change(shot.rotation, shot.center)
        return replace(shot, rotation=rotation, center=center)

    return changed


_CAUSES: dict[str, Posed] = {
    "the camera axes are OpenCV's (y down, looking along z), OpenGL's are meant (y up, looking along -z)": _turned(
        lambda rotation, center: (OPENGL @ rotation, center)
    ),
    "the matrices lead from the world to the camera, the inverse is meant": _turned(
        lambda rotation, center: (rotation.T, -rotation @ center)
    ),
    "the matrices lead from the world to the camera, with OpenCV's axes; the inverse is meant, with OpenGL's": _turned(
        lambda rotation, center: (rotation.T @ OPENGL, -OPENGL @ rotation @ center)
    ),
    "the matrices lead from the world to the camera, with OpenGL's axes; the inverse is meant": _turned(
        lambda rotation, center: (OPENGL @ rotation.T @ OPENGL, -OPENGL @ rotation @ center)
    ),
    "the world is mirrored along x: places are, rotations are not": _turned(
        lambda rotation, center: (rotation, center * (-1, 1, 1))
    ),
    "the world is mirrored along y: places are, rotations are not": _turned(
        lambda rotation, center: (rotation, center * (1, -1, 1))
    ),
    "the world is mirrored along z: places are, rotations are not": _turned(
        lambda rotation, center: (rotation, center * (1, 1, -1))
    ),
}


def _share(one: Matched, shots: Sequence[Shot] | dict[int, Shot]) -> float | None:
    """Return the share of the matches of a pair that fits its poses; None for a pair without a baseline."""
    first, second = shots[one.first], shots[one.second]
    here, there = rays(first, one.here), rays(second, one.there)
    turn = second.rotation @ first.rotation.T
    shift = second.rotation @ (first.center - second.center)
    if np.linalg.norm(shift) < _LEAST_BASELINE:
        return None
    essential = np.cross(np.eye(3), shift / np.linalg.norm(shift)) @ turn  # [shift]x turn
    along, back = here @ essential.T, there @ essential
    missed = np.abs((there * along).sum(axis=1))
    with np.errstate(all="ignore"):
        off = missed / np.sqrt(along[:, 0] ** 2 + along[:, 1] ** 2 + back[:, 0] ** 2 + back[:, 1] ** 2)
    focal = max(first.camera.width, first.camera.height) / max(_reach(first), 1e-9)
    fits = off * focal < _OFF * max(first.camera.width, first.camera.height)
    depths = _depths(here, there, turn, shift)
    return float((fits & (depths > 0).all(axis=1)).mean())


def _reach(shot: Shot) -> float:
    """Return the width of a photograph's view in units of its focal length."""
    corners = rays(shot, np.array([[0.0, shot.camera.height / 2], [shot.camera.width, shot.camera.height / 2]]))
    return float(np.linalg.norm(corners[1] - corners[0]))


def rays(shot: Shot, pixels: Floats) -> Floats:
    """Return the rays [N, 3] (z = 1) that meet pixels [N, 2]."""
    theirs = in_pycolmap(shot.camera)
    found = np.asarray(theirs.cam_from_img(np.ascontiguousarray(pixels, np.float64)), np.float64)
    whole: Floats = np.concatenate([found[:, :2], np.ones((len(found), 1))], axis=1)
    return whole


def _depths(here: Floats, there: Floats, turn: Floats, shift: Floats) -> Floats:
    """Return the depths [N, 2] at which two rays come closest: turn @ (a here) + shift = b there, in least squares."""
    one = here @ turn.T
    aa, bb, ab = (one * one).sum(axis=1), (there * there).sum(axis=1), (one * there).sum(axis=1)
    with np.errstate(all="ignore"):
        gap = aa * bb - ab * ab
        first = (ab * (there @ shift) - bb * (one @ shift)) / gap
        second = (aa * (there @ shift) - ab * (one @ shift)) / gap
    depths: Floats = np.nan_to_num(np.stack([first, second], axis=1), nan=-1.0)
    return depths


def depth_ratio(shots: Sequence[Shot], cloud: Cloud, matched: Sequence[Matched]) -> float | None:
    """Return how much farther the points are than what the photographs show there; None where that cannot be told."""
    ratios: list[NDArray[np.float64]] = []
    for one in matched:
        if not _is_telling(one, shots) or (_share(one, shots) or 0.0) < AGREES:
            continue
        first, second = shots[one.first], shots[one.second]
        turn = second.rotation @ first.rotation.T
        shift = second.rotation @ (first.center - second.center)
        depths = _depths(rays(first, one.here), rays(second, one.there), turn, shift)[:, 0]
        ratios.append(_beside(first, cloud.xyz, one.here[depths > 0], depths[depths > 0]))
    every = np.concatenate([np.zeros(0), *ratios])
    return float(np.median(every)) if len(every) >= LEAST_MATCHES else None


def _beside(shot: Shot, points: Floats, pixels: Floats, depths: Floats) -> Floats:
    """Return the depth of the nearest point in the picture over that of each match."""
    from scipy.spatial import cKDTree

    is_seen, places, theirs = in_view(shot, points)
    if not is_seen.any() or not len(pixels):
        return np.zeros(0)
    apart, index = cKDTree(places[is_seen]).query(pixels)
    close = apart < _NEAR * max(shot.camera.width, shot.camera.height)
    ratio: Floats = theirs[is_seen][index[close]] / depths[close]
    return ratio


def is_same_depth(ratio: float) -> bool:
    """Return whether points and photographs agree in depth."""
    return _SAME_DEPTH[0] <= ratio <= _SAME_DEPTH[1]
