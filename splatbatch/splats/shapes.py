"""What viewers ask of Gaussians: covariances and plain colours."""

from __future__ import annotations

import numpy as np

from splatbatch.splats.ply import FloatArray, Gaussians

SH_C0 = 0.28209479177387814
"""The constant spherical harmonic, sqrt(1 / (4 pi)): colour = 0.5 + C0 * sh0 (Kerbl 2023)."""


def covariances(scales: FloatArray, quats: FloatArray) -> FloatArray:
    """Return R S S^T R^T of each Gaussian, [N, 3, 3] (Kerbl 2023, eq. 6).

    Args:
        scales: [N, 3], logarithms.
        quats: [N, 4], w x y z, any length but 0.
    """
    w, x, y, z = (quats / np.maximum(np.linalg.norm(quats, axis=1, keepdims=True), 1e-12)).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    stretched = np.array(rows, dtype=np.float32).transpose(2, 0, 1) * np.exp(scales)[:, None, :]
    squared: FloatArray = stretched @ stretched.transpose(0, 2, 1)
    return squared


def colours(gaussians: Gaussians) -> FloatArray:
    """Return the colours of Gaussians seen from nowhere in particular, [N, 3] in 0 to 1."""
    mean: FloatArray = np.clip(0.5 + SH_C0 * gaussians.sh0, 0, 1)
    return mean


def shares(gaussians: Gaussians) -> FloatArray:
    """Return the opacities of Gaussians, [N, 1] in 0 to 1."""
    logits = np.clip(gaussians.opacities, -30, 30)[:, None]
    opaque: FloatArray = np.reciprocal(1 + np.exp(-logits))
    return opaque
