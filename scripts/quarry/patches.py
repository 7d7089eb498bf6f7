"""Cuts a reconstruction into two overlapping patches along its longer side; images stay where they are."""

from typing import Any

import numpy as np

from quarry import subset

BUFFER = 0.1  # of the core box's width, added on both sides
MIN_SHARE = 0.45  # of a frame's observations that must lie in the box


def cut(source: Any) -> list[Any]:
    """Return patches p0 and p1: each the frames that look at its box, with every point their images see."""
    point_ids = np.array(sorted(source.points3D))
    xyz = np.stack([source.points3D[point_id].xyz for point_id in point_ids])
    low, high = np.percentile(xyz[:, :2], [0.5, 99.5], axis=0)
    axis = int(np.argmax(high - low))
    middle = float(np.median(xyz[:, axis]))
    patches = []
    for inner, outer in ((low[axis], middle), (middle, high[axis])):
        margin = BUFFER * (outer - inner)
        inside = (xyz[:, axis] > inner - margin) & (xyz[:, axis] < outer + margin)
        frames = _frames_that_see(source, set(point_ids[inside].tolist()))
        patches.append(subset.rebuild(source, frames, point_ids.tolist()))
    return patches


def _frames_that_see(source: Any, inside: set[int]) -> list[int]:
    kept = []
    for frame_id in sorted(source.frames):
        images = [source.images[data.id] for data in source.frames[frame_id].image_ids]
        seen = [p.point3D_id in inside for image in images for p in image.points2D if p.has_point3D()]
        if seen and np.mean(seen) >= MIN_SHARE:
            kept.append(frame_id)
    return kept
