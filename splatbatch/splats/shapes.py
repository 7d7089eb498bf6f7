"""The shapes of Gaussians as covariances."""

from __future__ import annotations

import numpy as np

from splatbatch.splats.ply import FloatArray


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
