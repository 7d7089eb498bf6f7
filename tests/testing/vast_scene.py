"""A scene as large as wanted, in memory and on the disk within seconds: a flight in lanes over a plain."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from PIL import Image as Picture

from splatbatch.scene.colmap.copies import Subset
from splatbatch.scene.colmap.indexed_model import IndexedModel
from splatbatch.scene.colmap.types import Camera, Image, Points

WIDTH, HEIGHT, FOCAL = 1600, 1200, 700.0
UP = 1.0
"""Height of flight; cameras are half as far from each other."""
STEP = 0.5
SEEN_BY = 5


def flight(num_photos: int, num_points: int, seed: int = 0) -> IndexedModel:
    """Return photographs in a square of lanes that look straight down on points, each seen by five of those around."""
    rng = np.random.default_rng(seed)
    side = round(num_photos**0.5)
    lanes = (side, -(-num_photos // side))
    cells = rng.uniform((-0.5, -0.5), (lanes[0] - 0.5, lanes[1] - 0.5), (num_points, 2)).astype(np.float32)
    photo, point = _seen(cells, lanes, num_photos, rng)
    order = np.argsort(photo, kind="stable")
    counts = np.bincount(photo, minlength=num_photos)
    first = np.concatenate([[0], np.cumsum(counts)])
    keypoint = np.empty(len(photo), np.uint32)
    keypoint[order] = np.arange(len(photo)) - np.repeat(first[:-1], counts)
    stands = np.stack([np.arange(num_photos) % lanes[0], np.arange(num_photos) // lanes[0]], axis=1)
    away = (cells[point[order]] - stands[photo[order]]) * STEP / UP  # the camera looks down: y runs against north
    xy = away * np.array([FOCAL, -FOCAL]) + (WIDTH / 2, HEIGHT / 2)
    xyz = np.concatenate([cells * STEP, np.zeros((num_points, 1))], axis=1).astype(np.float64)
    lengths = np.bincount(point, minlength=num_points)
    shades = rng.integers(0, 255, (num_points, 3)).astype(np.uint8)
    ids = np.arange(1, num_points + 1, dtype=np.uint64)
    points = Points(xyz, shades, np.full(num_points, 0.5), lengths, ids)
    images = tuple(
        Image(index + 1, f"{index:05d}.jpg", 1, (0.0, 1.0, 0.0, 0.0), (-x * STEP, y * STEP, UP))
        for index, (x, y) in enumerate(stands.tolist())
    )
    camera = Camera(1, "PINHOLE", WIDTH, HEIGHT, (FOCAL, FOCAL, WIDTH / 2, HEIGHT / 2))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return IndexedModel(
        Path("made-up"), {1: camera}, images, points, starts, photo.astype(np.int32), keypoint,
        first.astype(np.int64), xy.astype(np.float64), point[order].astype(np.int32),
    )  # fmt: skip


def photograph() -> Picture.Image:
    """Return what all cameras show of a plain that is the same again under each of them."""
    period, cell = round(STEP * FOCAL / UP), 7
    cells = np.random.default_rng(0).integers(0, 255, (period // cell, period // cell), np.uint8)
    tiled = np.tile(np.kron(cells, np.ones((cell, cell), np.uint8)), (HEIGHT // period + 1, WIDTH // period + 1))
    return Picture.fromarray(tiled[:HEIGHT, :WIDTH])


def _seen(
    cells: np.ndarray, lanes: tuple[int, int], num_photos: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return photograph and point of each sighting, in the order of points."""
    around = np.array([(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)])
    skip = rng.integers(1, 9, (len(cells), 1))  # 9 is no multiple of most: five different ones of nine
    chosen = (rng.integers(0, 9, (len(cells), 1)) + np.where(skip % 3, skip, 1) * np.arange(SEEN_BY)) % 9
    place = np.rint(cells).astype(np.int32)[:, None] + around[chosen]
    number = place[..., 1] * lanes[0] + place[..., 0]
    inside = (place >= 0).all(axis=2) & (place[..., 0] < lanes[0]) & (place[..., 1] < lanes[1])
    inside &= number < num_photos
    point = np.repeat(np.arange(len(cells), dtype=np.int32), inside.sum(axis=1))
    return number[inside], point


def write(made: IndexedModel, folder: Path) -> Path:
    """Write a scene as a model and photographs that are no more than names; return the model's folder."""
    sparse = folder / "sparse" / "0"
    sparse.mkdir(parents=True)
    everything = (np.ones(len(made.images), bool), np.ones(len(made.points), bool))
    Subset(made, *everything).write(sparse)
    (folder / "images").mkdir()
    for image in made.images:
        (folder / "images" / image.name).touch()
    assert struct.unpack("<Q", (sparse / "images.bin").read_bytes()[:8])[0] == len(made.images)
    return sparse
