"""Takes the pictures: marches every ray over the ground, meets the things, shades, exposes, adds noise."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quarry import shading, terrain, things
from quarry.flight import HEIGHT_PX, OVERSIZE, WIDTH_PX, View
from quarry.noise import Floats
from quarry.terrain import SUN, Terrain
from quarry.things import Thing

RAYS_AT_ONCE = 60_000
NUM_STEPS = 90
NOISE = 0.008  # std of a large pixel, of full scale
HAZE = np.float32([0.55, 0.60, 0.66])
HAZE_LENGTH_M = 900.0


@dataclass(frozen=True)
class Quarry:
    """Everything that is in front of the camera."""

    land: Terrain
    things: list[Thing]
    grain: Floats


def build(seed: int) -> Quarry:
    """Return the same quarry for the same seed."""
    land = terrain.build(seed)
    return Quarry(land, things.furnish(land, seed + 1), shading.make_grain(seed + 2))


def take_all(views: list[View], out: Path, seed: int, num_workers: int) -> None:
    """Write every view's large picture as a near-lossless JPEG below `out`, under its name."""
    jobs = [(view, out / view.name, seed, number) for number, view in enumerate(views)]
    with ProcessPoolExecutor(num_workers, initializer=_prepare, initargs=(seed,)) as pool:
        for path in pool.map(_take, jobs):
            print(f"  {path.parent.name}/{path.name}", flush=True)


def radiance(quarry: Quarry, view: View) -> Floats:
    """Return the large picture [h, w, 3] in linear light."""
    height, width = HEIGHT_PX * OVERSIZE, WIDTH_PX * OVERSIZE
    rays = view.directions(slice(0, height))
    return colours(quarry, view.centre, rays).reshape(height, width, 3)


def colours(quarry: Quarry, centre: Floats, rays: Floats) -> Floats:
    """Return what rays [k, 3] see, [k, 3] in linear light, some at a time."""
    parts = np.array_split(rays, -(-len(rays) // RAYS_AT_ONCE))
    return np.concatenate([_trace(quarry, centre, part) for part in parts])


def develop(light: Floats, rng: np.random.Generator) -> np.ndarray:
    """Return the picture as bytes [h, w, 3]: exposure drift of about 1%, a film-like curve, sensor noise."""
    exposed = light * 0.78 * (1 + 0.01 * rng.standard_normal())
    grey = np.clip(1.08 * (1 - np.exp(-1.35 * exposed)), 0, 1) ** (1 / 2.0)  # highlights roll off
    grey = grey + 0.25 * (grey - 0.5) * grey * (1 - grey) * 4  # a little contrast
    noisy = grey + NOISE * rng.standard_normal(grey.shape, dtype=np.float32)
    return (np.clip(noisy, 0, 1) * 255 + 0.5).astype(np.uint8)


_quarry: list[Quarry] = []  # one per worker process


def _prepare(seed: int) -> None:
    _quarry.append(build(seed))


def _take(job: tuple[View, Path, int, int]) -> Path:
    from PIL import Image

    view, path, seed, number = job
    picture = develop(radiance(_quarry[0], view), np.random.default_rng((seed, number)))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(path, quality=97, subsampling=0)
    return path


def _trace(quarry: Quarry, centre: Floats, rays: Floats) -> Floats:
    distance, normals, owner = meet(quarry, centre, rays)
    light = _shade(quarry, centre + rays * distance[:, None], normals, owner)
    clear = np.exp(-distance / HAZE_LENGTH_M)[:, None]
    return light * clear + HAZE * (1 - clear)


def meet(quarry: Quarry, centre: Floats, rays: Floats) -> tuple[Floats, Floats, np.ndarray]:
    """Return how far rays [k, 3] go in metres, the normal where a thing is met [k, 3], and which thing; -1: ground."""
    distance = _march(quarry.land, centre, rays)
    origins = np.broadcast_to(centre, rays.shape)
    owner = np.full(len(rays), -1)
    normals = np.zeros_like(rays)
    for index, thing in enumerate(quarry.things):
        near = thing.near_rays(origins, rays)
        t, normal = thing.hit(origins[near], rays[near])
        front = t < distance[near]
        at = near[front]
        distance[at], normals[at], owner[at] = t[front], normal[front], index
    return distance, normals, owner


def _march(land: Terrain, centre: Floats, rays: Floats) -> Floats:
    """Return the distance [k] in metres to the ground; every ray must look down."""
    low, high = land.z_range
    start, end = (high - centre[2]) / rays[:, 2], (low - 0.01 - centre[2]) / rays[:, 2]
    step = (end - start) / NUM_STEPS
    below = end.copy()
    active = np.arange(len(rays))
    for number in range(1, NUM_STEPS + 1):
        t = start[active] + step[active] * number
        hit = _clearance(land, centre, rays[active], t) < 0
        below[active[hit]] = t[hit]
        active = active[~hit]
    above = below - step
    for _ in range(7):
        middle = (above + below) / 2
        inside = _clearance(land, centre, rays, middle) < 0
        below, above = np.where(inside, middle, below), np.where(inside, above, middle)
    return (above + below) / 2


def _clearance(land: Terrain, centre: Floats, rays: Floats, t: Floats) -> Floats:
    points = centre + rays * t[:, None]
    return points[:, 2] - land.height_at(points[:, 0], points[:, 1])


def _shade(quarry: Quarry, points: Floats, normals: Floats, owner: np.ndarray) -> Floats:
    surface = quarry.land.surface_at(points[:, 0], points[:, 1])
    ground = owner < 0
    slopes = np.concatenate([-surface[:, :2], np.ones((len(points), 1), np.float32)], -1)
    normals = np.where(ground[:, None], slopes / np.linalg.norm(slopes, axis=-1, keepdims=True), normals)
    albedo = np.empty_like(points)
    albedo[ground] = shading.ground_colour(quarry.grain, points[ground], normals[ground], surface[ground])
    for index, thing in enumerate(quarry.things):
        if (at := np.nonzero(owner == index)[0]).size:
            albedo[at] = shading.thing_colour(thing, quarry.grain, points[at], normals[at])
    sun = np.where(ground, surface[:, 2], 1) * _unshadowed(quarry.things, points + 0.02 * normals)
    openness = np.where(ground, surface[:, 3], 0.9) * _openness(quarry.things, points, owner)
    return shading.lit(albedo, normals, sun, openness)


def _unshadowed(all_things: list[Thing], points: Floats) -> Floats:
    lit = np.ones(len(points), np.float32)
    toward_sun = np.broadcast_to(SUN, points.shape)
    for thing in all_things:
        near = thing.near_rays(points, toward_sun)
        t, _ = thing.hit(points[near], toward_sun[near])
        lit[near[np.isfinite(t)]] = 0
    return lit


def _openness(all_things: list[Thing], points: Floats, owner: np.ndarray) -> Floats:
    """Return how much of the sky the things leave [k]: dark where the ground meets them."""
    share = np.ones(len(points), np.float32)
    for index, thing in enumerate(all_things):
        apart = points - thing.centre
        close = np.einsum("ij,ij->i", apart, apart) < (thing.reach_m + 1.5) ** 2
        at = np.nonzero(close & (owner != index))[0]
        share[at] *= 1 - 0.5 * np.exp(-thing.gap(points[at]) / 0.5)
    return share
