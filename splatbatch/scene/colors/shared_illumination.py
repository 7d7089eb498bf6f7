"""Light that all photographs of a scene share, found from gains that drift over the scene.

Ground is brighter where one looks with the sun than against it (Hapke 1981, doi:10.1029/JB086iB04p03039; in surveys
from the air Honkavaara and Khoramshahi 2018, doi:10.3390/rs10020256). So every photograph is brighter on the same side
of the scene. Each two photographs differ in the same sense at the points that both see. Gains that explain these
differences add up to a ramp over the scene.

To first order this light is a plane over the photograph, fixed in the world:

    log(colour of p in i) = log(colour of p) + exposure of i + a . d,    d = R_i^T (x / f, y / f, 1)

Over flat ground, seen from one height, d = (p - c_i) / height, where c_i is the centre of camera i. Then a . p looks
like the colour of points, and -a . c_i like gains, so that tracks cannot tell. Solved without light, the gains contain
a part F a that is linear in a. So a is chosen such that the gains without F a agree with the exposures in EXIF, or do
not drift where EXIF is missing. Tracks only have to fit (`solve`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splatbatch.scene.colmap.types import Floats, Ints

RESPONSE, RESPONSE_SPREAD = 0.45, 0.2
"""Change of log(pixel value) per change of log(exposure): its mean, by sRGB's curve, and its spread over cameras."""
SUN_SPREAD = 0.3
"""Expected strength of shared light, as log(brightness) per unit of d; the strength is at most about twice this."""
LEAST_SURE = 12.0
"""Smallest F statistic of a plane over the gains that counts as a drift.

By chance, 2 in 10,000 scenes of 32 photographs reach this value.
"""
LEAST_PHOTOS = 10
"""Fewest photographs from which a drift can be told from chance, besides one for each lens and group."""
LEAST_DRIFT = 0.02
"""Smallest drift (logarithm, from one end of the scene to the other) that counts; less is not visible."""
PLANE = 2
"""Number of components of the shared light that gains can tell: its slope in two directions over the ground."""
SOFT = 1.5
"""Residual, as a multiple of the median residual, at which an observation counts half (Cauchy's weights)."""
LEAST_SPREAD = 0.002
"""Residual (logarithm) below which differences are rounding: the least scale of residuals that weights assume."""
ROUNDS = 20


@dataclass(frozen=True, eq=False)
class SharedIllumination:
    """Drift of the gains over a scene, with the light common to all photographs that explains the drift."""

    light: Floats  # [3], a
    drift: float
    """Range of the gains that the light explains, darkest to brightest photograph, as a logarithm."""
    has_exposures: bool
    """Whether EXIF has the exposures of all photographs; if not, the light was chosen by the drift alone."""


def find_sun_side(gains: Floats, feigned: Floats, exposures: Floats, kinds: Ints) -> SharedIllumination | None:
    """Return the shared light that explains the drift of the gains.

    None: no drift is certain, it is smaller than `LEAST_DRIFT` (2 %), or there are too few photographs.

    Args:
        gains: gains of photographs in logarithms, [N], solved without such light.
        feigned: gains that each component of the light causes if the light is left out, [N, 3].
        exposures: logarithms of the exposures in EXIF, [N]; NaN where unknown.
        kinds: number of each photograph's lens and group, [N]: gains of one number have one zero; -1: left out.

    Raises:
        numpy.linalg.LinAlgError: the system cannot be solved.
    """
    which = kinds >= 0
    names = np.unique(kinds[which])
    if which.sum() < LEAST_PHOTOS + len(names):
        return None
    gains, feigned, exposures = gains[which], feigned[which], exposures[which]
    offsets = (kinds[which][:, None] == names).astype(np.float64)
    has_exposures = bool(np.isfinite(exposures).all())
    plane = np.linalg.svd(feigned - feigned.mean(axis=0), full_matrices=False)[2][:PLANE]
    feigned = feigned @ plane.T  # across the axes of the photographs: along them light looks like vignetting
    without = _rest(gains, offsets, np.zeros((len(gains), 0)), exposures if has_exposures else None)[0]
    rest, light = _rest(gains, offsets, feigned, exposures if has_exposures else None)
    drift = float(np.ptp(feigned @ light))
    freedom = len(gains) - offsets.shape[1] - PLANE - 1
    sure = (without @ without - rest @ rest) / PLANE / max(float(rest @ rest) / freedom, LEAST_SPREAD**2)
    if sure < LEAST_SURE or drift < LEAST_DRIFT:
        return None
    return SharedIllumination(light @ plane, drift, has_exposures)


def cauchy(size: Floats) -> Floats:
    """Return Cauchy's weights, 0 to 1, for absolute residuals [O]: 1/2 at `SOFT` times their median.

    Where that is less than `LEAST_SPREAD`, 1/2 is at `LEAST_SPREAD`.
    """
    soft = max(SOFT * float(np.median(size)), LEAST_SPREAD)
    return 1 / (1 + (size / soft) ** 2)


def _rest(gains: Floats, offsets: Floats, feigned: Floats, exposures: Floats | None) -> tuple[Floats, Floats]:
    """Return the gains without offsets, exposures and light, and the light. Outlying photographs count less."""
    response = np.zeros((len(gains), 0)) if exposures is None else (exposures - exposures.mean())[:, None]
    parts = (offsets, response, feigned)
    design, nums = np.hstack(parts), [part.shape[1] for part in parts]
    expected = np.repeat([0.0, RESPONSE, 0.0], nums)
    precision = np.repeat([0.0, RESPONSE_SPREAD**-2, SUN_SPREAD**-2], nums)
    weights, variance = np.ones(len(gains)), float(gains.var())
    for _ in range(ROUNDS):
        prior = variance * precision
        matrix = design.T @ (weights[:, None] * design) + np.diag(prior)
        found = np.linalg.solve(matrix, design.T @ (weights * gains) + prior * expected)
        rest = gains - design @ found
        weights = cauchy(np.abs(rest))
        variance = max(float(np.average(rest**2, weights=weights)), LEAST_SPREAD**2)
    return rest, np.asarray(found[nums[0] + nums[1] :], np.float64)
