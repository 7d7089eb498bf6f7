"""Gaussians as trainable parameters: initialised from sparse points, loaded from and exported to splat files."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor
from torch.nn import Parameter

from splatbatch.config import Training
from splatbatch.scene.colmap.types import Floats, Points
from splatbatch.splats import Gaussians
from splatbatch.training.frame import LocalFrame

SH_C0 = 0.28209479177387814  # Y_0^0 = 1 / (2 sqrt(pi)): colour = 0.5 + C0 sh0 (3DGS)
SMALLEST_SCALE = 1e-7
NEIGHBOURS = 3  # 3DGS (Kerbl 2023): the first scale is the root mean square distance to three
AT_ONCE = 1 << 16  # points per query: distances and indices of all of them at once would be 64 bytes per point
FEWEST_FOR_THREADS = 1 << 12
"""Points per query above which scipy uses all cores; below, a single thread is faster than starting more.

If a thread of scipy dies before its work begins (Python 3.11, under a tracer), its part of the result stays unwritten,
and no error is raised.
"""
MOST_VOXELS = 1 << 21
"""Largest number of voxels along each axis in `thinned`, so that 63 bits number all voxels."""
NEARLY, ROUNDS = 0.98, 24
"""End of the search for a voxel size in `thinned`: a share of the wanted number is reached, or rounds are used up."""
SMALLEST_SHARE = 1e-3
"""Smallest neighbour distance, as a share of the median; else Gaussians of nearly equal points would be invisible."""

Parameters = dict[str, Parameter]
"""Trainable Gaussians before activation, by name, in the frame of the training.

means [N, 3], scales [N, 3] (log), quats [N, 4] (w x y z, any length), opacities [N] (logit), sh0 [N, 1, 3],
shN [N, K, 3] with K = (degree + 1)^2 - 1.
"""


def init_from_points(points: Points, frame: LocalFrame, training: Training) -> dict[str, Tensor]:
    """Return one Gaussian per sparse point, with its colour, and `init_scale` times its distance to three neighbours.

    The tensors are in host memory, by name as in `Parameters`; CUDA is not touched. Rotations are random, by the seed
    of the training. Without points the tensors are empty.
    """
    means = frame.to_local(points.xyz)
    num, num_sh = len(means), (training.sh_degree + 1) ** 2
    opacity = float(training.resolved().init_opacity)
    generator = torch.Generator().manual_seed(training.seed)
    values = {
        "means": torch.from_numpy(means),
        "scales": _first_scales(means, training),
        "quats": torch.rand(num, 4, generator=generator),
        "opacities": torch.full((num,), math.log(opacity / (1 - opacity))),
        "sh0": torch.from_numpy((points.rgb / 255 - 0.5) / SH_C0)[:, None],
        "shN": torch.zeros(num, num_sh - 1, 3),
    }
    return {name: value.float() for name, value in values.items()}


def thinned(first: Mapping[str, Tensor], most: int, training: Training) -> dict[str, Tensor]:
    """Return at most `most` of the initial Gaussians, one per voxel, with scales by the new distances to neighbours.

    Voxels are about as small as that allows. The first Gaussian of a voxel is kept, so the result is deterministic. The
    order is kept.
    """
    means = first["means"].double().numpy()
    low, side = means.min(axis=0), max(float(np.ptp(means, axis=0).max()), SMALLEST_SCALE)
    few, many, rows = 1.0, float(MOST_VOXELS), np.zeros(1, np.int64)  # voxels along a side: too few, and too many
    for _ in range(ROUNDS):
        num = math.sqrt(few * many)
        x, y, z = ((means - low) * (num / side)).astype(np.int64).T
        found = np.unique((x * MOST_VOXELS + y) * MOST_VOXELS + z, return_index=True)[1]
        if len(found) > most:
            many = num
        else:
            few, rows = num, found
            if len(found) >= NEARLY * most:
                break
    values = select(first, torch.from_numpy(np.sort(rows)))
    return values | {"scales": _first_scales(values["means"].double().numpy(), training).float()}


def _first_scales(means: Floats, training: Training) -> Tensor:
    """Return logarithms of the initial scales [N, 3] for means [N, 3]."""
    scale = float(training.resolved().init_scale)
    scales = np.log(np.maximum(neighbour_distance(means) * scale, SMALLEST_SCALE))
    return torch.from_numpy(scales)[:, None].repeat(1, 3)


def as_parameters(values: Mapping[str, Tensor], device: torch.device) -> Parameters:
    """Return a copy of Gaussians, by name, as trainable parameters on a device."""
    return {name: Parameter(value.to(device, copy=True)) for name, value in values.items()}


def values_of(splat: Gaussians, frame: LocalFrame) -> dict[str, Tensor]:
    """Return the Gaussians of a splat file in the frame of the training, in host memory; the inverse of `export`.

    Values are before activation, as in `Parameters`, and rounded to float32 as in the file.
    """
    means = frame.to_local(splat.means.astype(np.float64))
    values = {
        "means": means.astype(np.float32),
        "scales": splat.scales - np.float32(math.log(frame.scale)),
        "quats": splat.quats,
        "opacities": splat.opacities,
        "sh0": splat.sh0[:, None],
        "shN": splat.shN,
    }
    # columns picked from a table are strided; the kernels need contiguous rows
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in values.items()}


def load_splat(splat: Gaussians, frame: LocalFrame, device: torch.device) -> Parameters:
    """Return the Gaussians of a splat file as trainable parameters in the frame of the training, on a device."""
    return as_parameters(values_of(splat, frame), device)


def select(values: Mapping[str, Tensor], which: Tensor) -> dict[str, Tensor]:
    """Return a copy of some Gaussians, by name: `which` is a mask [N] or indices, which may repeat."""
    return {name: value[which] for name, value in values.items()}


def export(gaussians: Parameters, frame: LocalFrame) -> Gaussians:
    """Return Gaussians as the arrays of a splat file, in host memory, in the coordinates of the model less its offset.

    Rotations are normalised; all other values are before activation, as trained.
    """

    def array(tensor: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return tensor.detach().float().cpu().numpy()

    means = frame.to_model(array(gaussians["means"]).astype(np.float64))
    return Gaussians(
        means=means.astype(np.float32),
        scales=array(gaussians["scales"]) + np.float32(math.log(frame.scale)),
        quats=array(torch.nn.functional.normalize(gaussians["quats"], dim=-1)),
        opacities=array(gaussians["opacities"]),
        sh0=array(gaussians["sh0"][:, 0]),
        shN=array(gaussians["shN"]),
    )


def neighbour_distance(points: Floats) -> Floats:
    """Return the root mean square distance of points [N, 3] to their three nearest neighbours, [N], never zero.

    Points at equal positions count as one point, and a point without a neighbour has the distance 1. Distances are in
    units of the points, and at least `SMALLEST_SHARE` of their median.
    """
    distances, nearest = _query(points)
    if len(points) > 1 and not nearest.all():
        # only where points are equal: sorting a million points takes twice as long as building the tree
        places, place_of = np.unique(points, axis=0, return_inverse=True)
        distances = _query(places)[0][place_of.reshape(-1)]
    smallest = SMALLEST_SHARE * float(np.median(distances)) if len(points) else 0.0
    return np.maximum(distances, smallest)


def _query(points: Floats) -> tuple[Floats, Floats]:
    """Return root mean square distance [N] and distance to the nearest [N]; ones for a single point."""
    distances, nearest = np.ones(len(points)), np.ones(len(points))
    if len(points) < 2:
        return distances, nearest
    tree = cKDTree(points)
    for start in range(0, len(points), AT_ONCE):
        # in the order of the tree, so that its nodes are in the CPU's cache: seven times as fast
        chunk = tree.indices[start : start + AT_ONCE]
        workers = -1 if len(chunk) > FEWEST_FOR_THREADS else 1
        near, _ = tree.query(points[chunk], k=min(1 + NEIGHBOURS, len(points)), workers=workers)
        nearest[chunk] = near[:, 1]
        distances[chunk] = np.sqrt((near[:, 1:] ** 2).mean(axis=1))  # the first is the point itself
    return distances, nearest
