"""The sun's side of photographs: light that all of them share is told from gains that drift over the scene.

Ground is brighter where one looks with the sun than against it (Hapke 1981, doi:10.1029/JB086iB04p03039; in surveys
from the air Honkavaara and Khoramshahi 2018, doi:10.3390/rs10020256). So every photograph is brighter on the same
side of the scene; each two of them differ in the same sense at the points that both see, and gains that explain it
add up to
a ramp. To first order this light is a plane over the photograph, fixed in the world:

    log(colour of p in i) = log(colour of p) + exposure of i + a . d,    d = R_i^T (x / f, y / f, 1)

Over flat ground, seen from one height, d = (p - c_i) / height: a . p passes for colour of the points and -a . c_i for
gains, and tracks cannot tell. So a is chosen for the gains F a that it feigns: without them the gains should be what
EXIF says of the exposures, or drift nowhere where it says nothing. Tracks only have to bear it (`solve`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splatbatch.scene.colmap.types import Floats, Ints

RESPONSE, RESPONSE_SPREAD = 0.45, 0.2
"""Logarithm of encoded values per logarithm of exposure: sRGB's curve, and by how much cameras' own differ from it."""
SUN_SPREAD = 0.3
"""Logarithm per unit of d: how strong such light is expected to be, at most about twice this."""
LEAST_SURE = 12.0
"""F of a plane over the gains: 2 in 10,000 scenes of 32 photographs whose exposures vary by chance reach it."""
LEAST_PHOTOS = 10
"""Of fewer no drift can be told from chance."""
LEAST_DRIFT = 0.02
"""Logarithm, from one end of the scene to the other: less is no ramp that anybody sees."""
PLANE = 2
"""Numbers of a slope over the ground."""
SOFT, LEAST_SPREAD, ROUNDS = 1.5, 0.002, 20


@dataclass(frozen=True, eq=False)
class SharedIllumination:
    """A drift of the gains over the scene, and the light that explains it."""

    light: Floats  # [3], a
    drift: float
    """Logarithm, from the darkest to the brightest photograph, of what the light feigns."""
    has_exposures: bool
    """Whether EXIF told the exposures of all photographs."""


def find_sun_side(gains: Floats, feigned: Floats, exposures: Floats, kinds: Ints) -> SharedIllumination | None:
    """Return the light whose absence from the tracks makes gains drift; None where no drift is sure.

    Args:
        gains: of photographs, [N], logarithms, as the tracks have them where nothing is known of the light.
        feigned: [N, 3], gains that each component of the light feigns where it is left out.
        exposures: [N], logarithms of what EXIF says; NaN where it says nothing.
        kinds: [N], photographs of one kind (lens, group) have one scale of exposures; -1: is left out.
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


def _rest(gains: Floats, offsets: Floats, feigned: Floats, exposures: Floats | None) -> tuple[Floats, Floats]:
    """Return what offsets, exposures and light leave of gains, and the light; photographs far off count less."""
    response = np.zeros((len(gains), 0 if exposures is None else 1))
    if exposures is not None:
        response[:, 0] = exposures - exposures.mean()
    design = np.hstack([offsets, response, feigned])
    expected = np.zeros(design.shape[1])
    precision = np.zeros(design.shape[1])
    at = offsets.shape[1] + response.shape[1]
    expected[offsets.shape[1] : at], precision[offsets.shape[1] : at] = RESPONSE, RESPONSE_SPREAD**-2
    precision[at:] = SUN_SPREAD**-2
    weights, variance = np.ones(len(gains)), float(gains.var())
    for _ in range(ROUNDS):
        prior = variance * precision
        matrix = design.T @ (weights[:, None] * design) + np.diag(prior)
        found = np.linalg.solve(matrix, design.T @ (weights * gains) + prior * expected)
        rest = gains - design @ found
        soft = max(SOFT * float(np.median(np.abs(rest))), LEAST_SPREAD)
        weights = 1 / (1 + (rest / soft) ** 2)
        variance = max(float(np.average(rest**2, weights=weights)), LEAST_SPREAD**2)
    return rest, np.asarray(found[at:], np.float64)
