"""A small scene with tracks enough for tones: grey photographs, each as bright as a test says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image as Picture
from scenes import HEIGHT, WIDTH, MadeScene

from splatbatch.scene.colmap.types import Image

NUM_POINTS = 150
GREY = 100


def coloured(root: Path, gains: Mapping[str, float], num_points: int = NUM_POINTS) -> MadeScene:
    """Write a scene whose photographs, named by `gains`, are so many times as bright as GREY."""
    scene = MadeScene(root, xyz=np.random.default_rng(5).uniform((-0.5, -0.5, 3), (0.5, 0.5, 5), (num_points, 3)))
    scene.images = [replace(image, name=name) for image, name in zip(many(len(gains)), gains, strict=True)]
    scene.write_model()
    for name, gain in gains.items():
        shade(scene.photographs / name, gain)
    return scene


def many(number: int) -> list[Image]:
    return [Image(i, "", 1, (1.0, 0.0, 0.0, 0.0), (0.02 * i, 0.0, 0.0)) for i in range(1, number + 1)]


def shade(path: Path, gain: float | tuple[float, float, float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # stripes along the way of the cameras: photographs show the same at every track, and something at all
    stripes = 1 + 0.02 * np.sign(np.sin(np.arange(HEIGHT) * 1.1 + 0.002 * np.arange(HEIGHT) ** 2))
    colour = np.full((HEIGHT, WIDTH, 3), GREY) * stripes[:, None, None] * np.array(gain)
    Picture.fromarray(colour.clip(0, 255).round().astype(np.uint8)).save(path)
