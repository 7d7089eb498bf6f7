"""Colour of what a ray met: rock, dust, grass and painted steel, in sun, shade and skylight (all linear RGB)."""

import numpy as np

from quarry.noise import Floats, bilinear_tiled, cells, smoothstep, spectral
from quarry.terrain import SUN, WATER_Z_M
from quarry.things import Thing

TEXEL_M = 0.04
NUM_TEXELS = 2048  # 82 m: wider than the quarry, so that no detail occurs twice
SUNLIGHT = np.float32([1.55, 1.42, 1.20])
SKYLIGHT = np.float32([0.36, 0.43, 0.55])
BOUNCE = np.float32([0.16, 0.13, 0.10])
ROCK, OCHRE, DUST = np.float32([0.40, 0.36, 0.30]), np.float32([0.46, 0.31, 0.17]), np.float32([0.50, 0.44, 0.35])
GRASS, DRY, WATER = np.float32([0.10, 0.15, 0.04]), np.float32([0.30, 0.27, 0.12]), np.float32([0.09, 0.20, 0.19])


def make_grain(seed: int) -> Floats:
    """Return the detail tile [n, n, 3]: grain and stain about 0 with std near 1, and cracks 0 to 1."""
    rng = np.random.default_rng(seed)
    gravel, slabs = cells(rng, NUM_TEXELS, 300), cells(rng, NUM_TEXELS, 96)
    rough = spectral(rng, NUM_TEXELS, 1.0, (6, 420))
    fine = spectral(rng, NUM_TEXELS, 0.3, (150, 600))
    pebbles = (gravel.value - 0.5) * smoothstep(0.0, 0.25, gravel.second - gravel.near)
    grain = 0.55 * rough + 0.9 * pebbles + 1.0 * (slabs.value - 0.5) + 0.16 * fine
    stain = spectral(rng, NUM_TEXELS, 1.5, (4, 120)) + 0.8 * (slabs.value - 0.5)
    crack = smoothstep(0.09, 0.0, slabs.second - slabs.near) * (spectral(rng, NUM_TEXELS, 1.2, (4, 60)) > 0)
    return np.stack([grain, stain, crack], -1).astype(np.float32)


def ground_colour(grain: Floats, points: Floats, normals: Floats, surface: Floats) -> Floats:
    """Return the albedo [k, 3] of the ground; `surface` is Terrain.surface_at's."""
    detail = _three_sided(grain, points, normals)
    g, stain, crack = detail[:, :1], detail[:, 1:2], detail[:, 2:]
    flat = smoothstep(0.72, 0.95, normals[:, 2:])
    strata = np.sin(points[:, 2:] * 7.0 + 1.3 * stain) * 0.5 + np.sin(points[:, 2:] * 19.0 + 2.0 * stain) * 0.25
    wall = ROCK + (OCHRE - ROCK) * smoothstep(-0.2, 1.6, stain + strata * 0.8)
    wall = wall * (1 + 0.17 * g + 0.15 * strata) * (1 - 0.45 * crack)
    floor = DUST + (ROCK * 0.8 - DUST) * smoothstep(-0.3, 1.8, stain)
    floor = floor * (1 + 0.13 * g) * (1 - 0.42 * surface[:, 5:6]) * (1 - 0.1 * crack)
    meadow = (GRASS + (DRY - GRASS) * smoothstep(-1.2, 1.5, stain)) * (1 + 0.20 * g)
    bare = wall + (floor - wall) * flat
    dry = bare + (meadow - bare) * np.clip(surface[:, 4:5], 0, 1)
    depth = smoothstep(0.30, 0.0, points[:, 2:] - WATER_Z_M)  # wet shore, then water
    wet = dry * (1 - 0.45 * depth)
    water = WATER * (1 + 0.10 * stain)
    return np.clip(np.where(points[:, 2:] < WATER_Z_M + 0.015, water, wet), 0.015, 0.9)


def thing_colour(thing: Thing, grain: Floats, points: Floats, normals: Floats) -> Floats:
    """Return the albedo [k, 3] of a thing: its paint, dirt running from the top, ribs where corrugated."""
    local = (points - thing.centre) @ thing.frame.T
    shift = thing.centre.sum() * 7.3  # every thing its own dirt
    detail = _three_sided(grain, local + shift, normals @ thing.frame.T)
    g, stain = detail[:, :1], detail[:, 1:2]
    strength = {"stone": 0.26, "concrete": 0.15, "corrugated": 0.10, "steel": 0.10}[thing.finish]
    colour = np.float32(thing.colour) * (1 + strength * g)
    if thing.finish == "corrugated":
        colour = colour * (1 + 0.16 * np.sin(local[:, :1] * (2 * np.pi / 0.6)))
    if thing.shape == "box" and thing.finish != "stone":
        inset = np.sort(thing.half - np.abs(local), -1)[:, 1:2]  # metres to the nearest edge
        colour = colour * (1 - 0.35 * smoothstep(0.16, 0.08, inset))
    dirt = smoothstep(0.2, 1.8, stain) * (0.3 if thing.finish == "stone" else 0.6)
    return np.clip(colour + (DUST * 0.75 - colour) * dirt, 0.015, 0.9)


def lit(albedo: Floats, normals: Floats, sun: Floats, openness: Floats) -> Floats:
    """Return radiance [k, 3] of matt surfaces; `sun` [k] is 0 in cast shadow, `openness` [k] is 1 under open sky."""
    direct = np.maximum(normals @ SUN, 0)[:, None] * sun[:, None] * SUNLIGHT
    sky = (0.55 + 0.45 * normals[:, 2:]) * openness[:, None] * SKYLIGHT
    return albedo * (direct + sky + openness[:, None] * (0.6 - 0.4 * normals[:, 2:]) * BOUNCE)


def _three_sided(grain: Floats, points: Floats, normals: Floats) -> Floats:
    """Read the tile along the three axes, weighed by the normal, so that walls are not smeared."""
    weight = np.abs(normals) ** 4
    weight /= weight.sum(-1, keepdims=True)
    half = NUM_TEXELS / 2  # the sides read parts of the tile that the ground does not
    x, y, z = (points[:, axis] / TEXEL_M for axis in range(3))
    out = weight[:, 2:] * bilinear_tiled(grain, x, y)
    for side, across, offset in ((0, y, 0.0), (1, x, 0.5)):
        at = np.nonzero(weight[:, side] > 0.02)[0]
        out[at] += weight[at, side, None] * bilinear_tiled(grain, across[at] + offset * half, z[at] + half)
    return out
