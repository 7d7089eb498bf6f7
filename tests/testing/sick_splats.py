"""Sicknesses that are planted in trained splats, and in what they were trained from; all by a seed."""

from __future__ import annotations

import dataclasses

import numpy as np

from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.colmap.types import Image
from splatbatch.splats.ply import Gaussians


def joined(one: Gaussians, other: Gaussians) -> Gaussians:
    return Gaussians(**{name: np.concatenate([value, getattr(other, name)]) for name, value in vars(one).items()})


def made(means: np.ndarray, sigmas: np.ndarray, opacity: float, like: Gaussians, grey: float = 0.5) -> Gaussians:
    """Return round Gaussians of one opacity, in a grey of 0 to 1."""
    num = len(means)
    return Gaussians(
        means=means.astype(np.float32),
        scales=np.log(np.repeat(sigmas[:, None], 3, axis=1)).astype(np.float32),
        quats=np.tile(np.array([1, 0, 0, 0], np.float32), (num, 1)),
        opacities=np.full(num, np.log(opacity / (1 - opacity)), np.float32),
        sh0=np.full((num, 3), (grey - 0.5) / 0.2820948, np.float32),
        shN=np.zeros((num, *like.shN.shape[1:]), np.float32),
    )


def floaters(splat: Gaussians, model: Reconstruction, seed: int) -> Gaussians:
    """Put 1 % more Gaussians before one camera, at an eighth to a third of the way to what it sees."""
    rng = np.random.default_rng(seed)
    image = model.images[int(rng.integers(len(model.images)))]
    camera, num = model.cameras[image.camera_id], max(1, len(splat) // 100)
    depth = depth_of(image, model)
    z = depth * rng.uniform(0.12, 0.33, num)
    x = z * rng.uniform(-0.4, 0.4, num) * camera.width / camera.fx
    y = z * rng.uniform(-0.4, 0.4, num) * camera.height / camera.fy
    places = (np.stack([x, y, z], axis=1) - np.array(image.translation)) @ image.rotation()
    return joined(splat, made(places, 0.03 * z, 0.8, splat, rng.uniform(0.2, 0.8)))


def veil(splat: Gaussians, model: Reconstruction, seed: int) -> Gaussians:
    """Put a wall before a single camera, so near that no other sees it."""
    rng, image = np.random.default_rng(seed), behind_veil(model, seed)
    camera, num = model.cameras[image.camera_id], 800
    z = depth_of(image, model) * rng.uniform(0.03, 0.05, num)
    x = z * rng.uniform(-0.5, 0.5, num) * camera.width / camera.fx
    y = z * rng.uniform(-0.5, 0.5, num) * camera.height / camera.fy
    places = (np.stack([x, y, z], axis=1) - np.array(image.translation)) @ image.rotation()
    return joined(splat, made(places, 0.03 * z, 0.8, splat, rng.uniform(0.2, 0.8)))


def behind_veil(model: Reconstruction, seed: int) -> Image:
    """Return the photograph that a veil of this seed stands before."""
    return model.images[int(np.random.default_rng([seed, 1]).integers(len(model.images)))]


def depth_of(image: Image, model: Reconstruction) -> float:
    local = model.points.xyz @ image.rotation().T + np.array(image.translation)
    return float(np.median(local[local[:, 2] > 0, 2]))


def haze(splat: Gaussians, model: Reconstruction, seed: int) -> Gaussians:
    """Put a faint sheet between all cameras and what they see."""
    rng = np.random.default_rng(seed)
    centers = np.array([image.center() for image in model.images])
    points = model.points.xyz
    share = rng.uniform(0.3, 0.6)  # of the way from the points to the cameras
    chosen = points[rng.integers(len(points), size=600)]
    to_cameras = centers.mean(axis=0) - points.mean(axis=0)
    size = 0.05 * np.linalg.norm(np.ptp(points, axis=0))
    opacity = float(rng.uniform(0.01, 0.04))
    return joined(splat, made(chosen + share * to_cameras, np.full(600, size), opacity, splat, 0.7))


def scaled_half(splat: Gaussians, model: Reconstruction, seed: int) -> Gaussians:
    """Scale the depth of one half of the patch, seen from the middle of its cameras."""
    rng = np.random.default_rng(seed)
    centers = np.array([image.center() for image in model.images])
    about, turn = centers.mean(axis=0), rng.normal(size=3)
    along = model.points.xyz @ turn
    is_half = splat.means @ turn > np.median(along)
    by = float(rng.choice([rng.uniform(0.65, 0.85), rng.uniform(1.2, 1.6)]))
    means = np.where(is_half[:, None], about + by * (splat.means - about), splat.means)
    scales = splat.scales + np.where(is_half, np.log(by), 0)[:, None]
    return dataclasses.replace(splat, means=means.astype(np.float32), scales=scales.astype(np.float32))


def holed(splat: Gaussians, seed: int) -> Gaussians:
    """Take out all Gaussians around some places."""
    rng = np.random.default_rng(seed)
    opaque = splat.means[splat.opacities > 0]
    low, high = np.percentile(opaque, (15, 85), axis=0)
    inside = opaque[((opaque >= low) & (opaque <= high)).all(axis=1)]
    radius = rng.uniform(0.15, 0.25) * np.linalg.norm(opaque.std(axis=0))
    kept = np.ones(len(splat), dtype=bool)
    for place in inside[rng.integers(len(inside), size=8)]:
        kept &= np.linalg.norm(splat.means - place, axis=1) > radius
    return Gaussians(**{name: value[kept] for name, value in vars(splat).items()})


def turned(image: Image, seed: int, degrees: float) -> Image:
    """Return an image whose camera looks so much aside, to a side of chance."""
    import pycolmap

    axis = np.random.default_rng(seed).normal(size=3)
    axis *= np.radians(degrees) / np.linalg.norm(axis)
    pose = pycolmap.Rotation3d(axis) * pycolmap.Rotation3d(image.rotation())
    center = image.center()
    x, y, z, w = pose.quat
    translation = -pose.matrix() @ center
    return dataclasses.replace(image, quat=(w, x, y, z), translation=tuple(map(float, translation)))
