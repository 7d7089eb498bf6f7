"""A splat of three letters F, each in a plane of its own and a colour of its own: a mirrored or turned axis shows."""

from __future__ import annotations

import numpy as np

from splatbatch.splats import Gaussians

STROKES = (((0, 0), (0, 5)), ((0, 5), (3, 5)), ((0, 3), (2, 3)))
"""Of an F: up, and two to its right."""
PLANES = ((0, 1), (1, 2), (2, 0))
C0 = 0.28209479177387814


def letters(degree: int = 0, about: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Gaussians:
    """Return the letters: red lies in x y, green in y z, blue in z x; no turn and no mirror leaves them as they are."""
    flat = np.concatenate([np.linspace(one, other, 12) for one, other in STROKES])
    means, colors = [], []
    for which, (right, up) in enumerate(PLANES):
        place = np.zeros((len(flat), 3))
        place[:, right], place[:, up] = flat.T
        means.append(place + about)
        colors.append(np.tile(0.1 + 0.8 * np.eye(3)[which], (len(flat), 1)))
    num, coefficients = 3 * len(flat), (degree + 1) ** 2 - 1
    rng = np.random.default_rng(1)
    values = {
        "means": np.concatenate(means),
        "scales": np.log(np.tile([0.3, 0.1, 0.05], (num, 1))),
        "quats": np.tile([0.9, 0.1, 0.3, -0.2], (num, 1)),
        "opacities": np.full(num, 3.0),
        "sh0": (np.concatenate(colors) - 0.5) / C0,
        "shN": rng.normal(scale=0.1, size=(num, coefficients, 3)),
    }
    return Gaussians(**{name: np.asarray(value, dtype=np.float32) for name, value in values.items()})
