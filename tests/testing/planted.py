"""Photographs of a scene with planted gains and vignetting, and how well those are found again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image
from uneven_quarry import own_light

from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.colors.correction import ColorCorrection
from splatbatch.scene.photos.headers import Exposure

NO_TILTS: Mapping[str, tuple[float, float]] = {}
NO_FIELDS: Mapping[str, tuple[float, ...]] = {}
NO_VIGNETTINGS: Mapping[str, tuple[float, ...]] = {}
NO_GAINS: Mapping[str, float] = {}
NO_EXPOSURES: Mapping[str, Exposure] = {}
RESPONSE = 0.45
"""Of sRGB: logarithm of encoded values per logarithm of exposure."""


def plant(
    scene: Path,
    out: Path,
    *,
    most: float = 0.4,
    vignetting: tuple[float, ...] = (),
    tilts: Mapping[str, tuple[float, float]] = NO_TILTS,
    fields: Mapping[str, tuple[float, ...]] = NO_FIELDS,
    tint: tuple[float, float, float] = (1.0, 1.0, 1.0),
    vignettings: Mapping[str, tuple[float, ...]] = NO_VIGNETTINGS,
    gains: Mapping[str, float] = NO_GAINS,
    exposures: Mapping[str, Exposure] = NO_EXPOSURES,
    tells: bool = False,
    seed: int = 3,
) -> dict[str, ColorCorrection]:
    """Write the photographs of a scene, each rendered in a tone of its own, below `out`; return the tones by name.

    Their EXIF says what `exposures` do, or where it `tells` an exposure time that fits the gain.
    """
    model, random = read_reconstruction(scene / "sparse/0"), np.random.default_rng(seed)
    planted = {}
    for image in model.images:
        tilt = tilts.get(image.name, (0.0, 0.0))
        gain = random.uniform(1 - most, 1 + most, 3) * gains.get(image.name, 1.0)
        field = fields.get(image.name, ())
        tone = ColorCorrection(tuple(gain.tolist()), vignettings.get(image.name, vignetting), tilt, field, tint)
        with Image.open(scene / "images" / image.name) as file:
            pixels = np.asarray(file.convert("RGB"))
        camera = model.cameras[image.camera_id]
        (out / image.name).parent.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(rendered(pixels, tone, (camera.cx, camera.cy)))
        fits = Exposure(float(np.exp(np.log(gain).mean() / RESPONSE)) / 500, 5.6, 100)
        told = fits if tells else exposures.get(image.name, Exposure())
        exif = Image.Exif()
        exif.get_ifd(0x8769).update({0x829A: told.time_s, 0x829D: told.f_number, 0x8827: round(told.iso)})
        picture.save(out / image.name, exif=exif, **({"quality": 97} if image.name.endswith("jpg") else {}))
        planted[image.name] = tone
    return planted


def rendered(pixels: np.ndarray, tone: ColorCorrection, middle: tuple[float, float]) -> np.ndarray:
    height, width = pixels.shape[:2]
    y, x = np.mgrid[:height, :width] + 0.5
    square = ((x - middle[0]) ** 2 + (y - middle[1]) ** 2) / (np.hypot(width, height) / 2) ** 2
    bent = sum((v * square ** (i + 1) for i, v in enumerate(tone.vignetting)), np.zeros_like(square))
    bent += (tone.shading_gradient[0] * (x - middle[0]) + tone.shading_gradient[1] * (y - middle[1])) / (
        np.hypot(width, height) / 2
    )
    half = np.hypot(width, height) / 2
    own = (
        own_light(tone.shading_grid, (x - middle[0]) / half, (y - middle[1]) / half)
        if tone.shading_grid
        else np.zeros_like(bent)
    )
    falloff = np.exp(bent[..., None] + own[..., None] * np.array(tone.shading_color))
    return (pixels * np.array(tone.gain) * falloff).clip(0, 255).round().astype(np.uint8)


def errors(
    found: Mapping[str, ColorCorrection], planted: Mapping[str, ColorCorrection], intact: Mapping[str, ColorCorrection]
) -> np.ndarray:
    """Return by which share each gain is off, [photographs, 3]; of the gauge nobody can know."""
    logs = [np.log([tones[name].gain for name in found]) for tones in (found, planted, intact)]
    off = logs[0] - logs[1] - logs[2]
    return np.abs(np.exp(off - off.mean(axis=0)) - 1)
