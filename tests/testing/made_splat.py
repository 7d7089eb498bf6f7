"""A splat that shows a wrong axis or order at once: a chequered floor, a red ball, posts in red, green, blue."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from splatbatch.splats.ply import Gaussians, write_splat

C0 = 0.28209479177387814


def write_scene(path: Path, repeat: int = 1) -> None:
    """Write the scene in COLMAP's axes: x right, y down, z forward; the floor lies at y = 1."""
    means, colours = zip(floor(), ball(), *posts(), strict=True)
    mean, colour = np.tile(np.concatenate(means), (repeat, 1)), np.tile(np.concatenate(colours), (repeat, 1))
    num = len(mean)
    full = {
        "scales": np.full((num, 3), -3.4),
        "quats": np.tile([1.0, 0, 0, 0], (num, 1)),
        "opacities": np.full(num, 4.0),
    }
    parts = {"means": mean, **full, "sh0": (colour - 0.5) / C0, "shN": np.zeros((num, 3, 3))}
    write_splat(path, Gaussians(**{key: np.asarray(value, dtype=np.float32) for key, value in parts.items()}), 30_000)


def floor() -> tuple[np.ndarray, np.ndarray]:
    x, z = (axis.ravel() for axis in np.meshgrid(np.linspace(-2, 2, 60), np.linspace(-2, 2, 60)))
    light = ((np.floor(x) + np.floor(z)) % 2)[:, None]
    return np.stack([x, np.ones_like(x), z], axis=1), 0.25 + 0.5 * light * np.ones((1, 3))


def ball() -> tuple[np.ndarray, np.ndarray]:
    points = np.random.default_rng(0).normal(size=(2500, 3))
    points *= 0.6 / np.linalg.norm(points, axis=1, keepdims=True)
    return points + np.array([0, 0.3, 0]), np.tile([0.9, 0.1, 0.1], (2500, 1))


def posts() -> list[tuple[np.ndarray, np.ndarray]]:
    steps = np.linspace(0, 1.5, 80)[:, None]
    ends = ((1.5, 0, 0), (0, -1.5, 0), (0, 0, 1.5))
    return [(steps * np.array(end) / 1.5, np.tile(np.eye(3)[i], (80, 1))) for i, end in enumerate(ends)]
