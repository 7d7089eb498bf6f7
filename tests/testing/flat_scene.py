"""A small made-up scene on disk: noise pictures, and a text model of a plane; nothing of the package is known to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def write_model(sparse: Path, names: list[str], *, size: tuple[int, int] = (32, 24), model: str = "PINHOLE") -> None:
    """Write a COLMAP text model: one camera, images in a row that look along z, a plane of points."""
    sparse.mkdir(parents=True, exist_ok=True)
    width, height = size
    params = {"PINHOLE": [30, 30, width / 2, height / 2], "OPENCV": [30, 30, width / 2, height / 2, 0.1, 0, 0, 0]}
    camera = [1, model, width, height, *params[model]]
    (sparse / "cameras.txt").write_text(" ".join(map(str, camera)) + "\n")
    poses = [f"{i + 1} 1 0 0 0 {-0.1 * i} 0 0 1 {name}\n10 10 1\n" for i, name in enumerate(names)]
    (sparse / "images.txt").write_text("".join(poses))
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 6), np.linspace(-1, 1, 6)), -1).reshape(-1, 2)
    tracks = " ".join(f"{i + 1} 0" for i in range(len(names)))
    points = [f"{i + 1} {x} {y} 3 128 100 90 0.5 {tracks}\n" for i, (x, y) in enumerate(grid)]
    (sparse / "points3D.txt").write_text("".join(points))


def write_photos(folder: Path, names: list[str], size: tuple[int, int] = (32, 24)) -> None:
    """Write noise pictures, different but reproducible."""
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)
