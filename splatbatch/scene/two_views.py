"""Relative pose of two pictures of the same place, by SIFT matches and pycolmap on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.files import load_pycolmap
from splatbatch.scene.colmap.types import Floats
from splatbatch.text import plural

RATIO = 0.8
"""A match's descriptor distance must be below this share of the distance to the second nearest (Lowe 2004)."""
MOST_FEATURES = 2048
LEAST_INLIERS = 20
"""Fewest matches that agree on one relative pose for it to be accepted."""
Grey = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class SiftFeatures:
    """SIFT features of a picture of a pinhole camera."""

    size: tuple[int, int]
    """Width and height in pixels."""
    K: Floats  # [3, 3]
    xy: Floats  # [n, 2]
    descriptors: Floats  # [n, 128], of length 1


@dataclass(frozen=True, eq=False)
class RelativePose:
    """Relative pose of two cameras, computed from their pictures alone, with the matches that agree with it."""

    rotation: Floats  # [3, 3]
    here: Floats  # [m, 2], matches that agree with it
    there: Floats  # [m, 2]


def features_of(picture: Grey, K: Floats) -> SiftFeatures:
    """Return the SIFT features of a grey picture [H, W], at most `MOST_FEATURES`."""
    pycolmap = load_pycolmap()
    options = pycolmap.FeatureExtractionOptions()
    options.use_gpu, options.num_threads = False, 1
    options.sift.max_num_features = MOST_FEATURES
    before, pycolmap.logging.minloglevel = pycolmap.logging.minloglevel, pycolmap.logging.ERROR
    try:
        extractor = pycolmap.FeatureExtractor.create(options, pycolmap.Device.cpu)
        found, descriptors = extractor.extract_from_uint8_array(np.ascontiguousarray(picture))
    finally:
        pycolmap.logging.minloglevel = before
    known = np.asarray(descriptors.data, np.float64).reshape(-1, 128)
    lengths = np.maximum(np.linalg.norm(known, axis=1, keepdims=True), 1e-9)
    height, width = picture.shape
    return SiftFeatures(
        (width, height), K, np.array([(one.x, one.y) for one in found], np.float64).reshape(-1, 2), known / lengths
    )


def register(one: SiftFeatures, other: SiftFeatures) -> RelativePose | str:
    """Return the relative pose of two cameras; or the reason, in words, why there is none."""
    matches = _matches(one, other)
    if len(matches) < LEAST_INLIERS:
        return f"{plural(len(matches), 'match', 'es')}"
    pycolmap = load_pycolmap()
    options = pycolmap.TwoViewGeometryOptions()
    options.compute_relative_pose = True
    options.ransac.random_seed = 0
    found = pycolmap.estimate_calibrated_two_view_geometry(
        _camera(one), one.xy, _camera(other), other.xy, matches, options
    )
    inliers = np.asarray(found.inlier_matches, np.int64).reshape(-1, 2)
    if len(inliers) < LEAST_INLIERS or found.cam2_from_cam1 is None:
        return f"of {len(matches)} matches only {len(inliers)} agree on how the cameras stand"
    rotation = np.asarray(found.cam2_from_cam1.rotation.matrix(), np.float64)
    return RelativePose(rotation, one.xy[inliers[:, 0]], other.xy[inliers[:, 1]])


def _matches(one: SiftFeatures, other: SiftFeatures) -> NDArray[np.uint32]:
    """Return the matches [m, 2]: mutual nearest neighbours that pass the ratio test."""
    if min(len(one.xy), len(other.xy)) < 2:
        return np.zeros((0, 2), np.uint32)
    alike = one.descriptors @ other.descriptors.T
    best = alike.argmax(axis=1)
    rows = np.arange(len(best))
    second, first = np.partition(alike, -2, axis=1)[:, -2:].T
    is_clear = np.sqrt(np.maximum(2 - 2 * first, 0)) < RATIO * np.sqrt(np.maximum(2 - 2 * second, 0))
    is_mutual = alike.argmax(axis=0)[best] == rows
    chosen = np.flatnonzero(is_clear & is_mutual)
    return np.stack([chosen, best[chosen]], axis=1).astype(np.uint32)


def _camera(view: SiftFeatures) -> Any:
    width, height = view.size
    params = [view.K[0, 0], view.K[1, 1], view.K[0, 2], view.K[1, 2]]
    return load_pycolmap().Camera({"model": "PINHOLE", "width": width, "height": height, "params": np.array(params)})
