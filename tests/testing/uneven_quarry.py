"""The quarry as if its photographs had been exposed differently: the tones are known, since they are planted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image as Pillow
from scipy.ndimage import map_coordinates

from splatbatch.config import Evaluation, load
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.colors.correction import NODES, ColorCorrection
from splatbatch.scene.holdout import choose_holdout
from splatbatch.scene.patches import Patch, find_patches

QUARRY = Path(__file__).parents[2] / "examples/quarry"
FADING = (-0.10, 0.04)
"""Vignetting: 6 % darker in the corners."""


def quarry() -> Patch:
    return find_patches(load(QUARRY / "splat_config.yml").scene)[0]


def some_tones(
    patch: Patch, most: float = 0.2, vignetting: Sequence[float] = (), seed: int = 0
) -> dict[str, ColorCorrection]:
    """Random gains of up to about `most`, whose geometric mean is 1 over hold-out and training photographs alike.

    So PSNR, which a gain shifts, can be compared with that of photographs without.
    """
    generator = np.random.default_rng(seed)
    holdout = set(choose_holdout(patch, Evaluation()))
    names = [image.name for image in read_reconstruction(patch.sparse).images]
    tones = {}
    for group in ([name for name in names if name in holdout], [name for name in names if name not in holdout]):
        logarithms = generator.uniform(-1, 1, (len(group), 3)) * np.log1p(most)
        gains = np.exp(logarithms - logarithms.mean(axis=0))
        tones |= {
            name: ColorCorrection(tuple(gain), tuple(vignetting))
            for name, gain in zip(group, gains.tolist(), strict=True)
        }
    return tones


def planted(patch: Patch, tones: Mapping[str, ColorCorrection], folder: Path, brighter: float = 1.0) -> Patch:
    """Write the photographs of a patch with these tones; the patch that is returned knows of none."""
    model = read_reconstruction(patch.sparse)
    for image in model.images:
        pixels = np.asarray(Pillow.open(patch.images / image.name).convert("RGB")).astype(float)
        tone, camera = tones.get(image.name, ColorCorrection()), model.cameras[image.camera_id]
        shown = pixels * brighter * tone.gain * falloff(tone, camera)[..., None]
        target = folder / "images" / image.name
        target.parent.mkdir(parents=True, exist_ok=True)
        # whatever its name: without loss
        Pillow.fromarray(shown.round().clip(0, 255).astype(np.uint8)).save(target, "PNG")
    return replace(patch, images=folder / "images")


def falloff(tone: ColorCorrection, camera: Camera) -> np.ndarray:
    """The vignetting and light of a photograph [H, W], of one with a field [H, W, 3], written as defined."""
    rows, columns = np.mgrid[: camera.height, : camera.width] + 0.5
    radius = np.hypot(columns - camera.cx, rows - camera.cy) / (np.hypot(camera.width, camera.height) / 2)
    plane = tone.shading_gradient[0] * (columns - camera.cx) + tone.shading_gradient[1] * (rows - camera.cy)
    half = np.hypot(camera.width, camera.height) / 2
    shading = plane / half
    if tone.shading_grid:
        own = own_light(tone.shading_grid, (columns - camera.cx) / half, (rows - camera.cy) / half)
        return falloff(replace(tone, shading_grid=()), camera)[..., None] * np.exp(
            own[..., None] * np.array(tone.shading_color)
        )
    return np.exp(
        shading + sum((v * radius ** (2 * power) for power, v in enumerate(tone.vignetting, 1)), np.zeros_like(radius))
    )


def own_light(field: Sequence[float], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What a field has at places, in halves of the diagonal: SciPy's bilinear interpolation."""
    grid = np.array(field).reshape(NODES, NODES)
    nodes = np.clip(np.stack([y, x]), -1, 1)
    return map_coordinates(grid, (nodes + 1) / 2 * (NODES - 1), order=1, mode="nearest")


def sunny(middle: tuple[float, float] = (0.3, 0.1), strength: float = 0.3, width: float = 0.35) -> tuple[float, ...]:
    """A field of a photograph into which the sun breaks at a place, in halves of the diagonal."""
    down, across = np.mgrid[-1 : 1 : NODES * 1j, -1 : 1 : NODES * 1j]
    away = (across - middle[0]) ** 2 + (down - middle[1]) ** 2
    return tuple((strength * np.exp(-away / (2 * width**2))).ravel().tolist())
