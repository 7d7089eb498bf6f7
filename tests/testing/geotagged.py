"""Photographs of the quarry with made-up GPS: where each stood is known to the millimetre."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

QUARRY = Path(__file__).parents[2] / "examples" / "quarry"
ORIGIN = (46.5, 8.25, 900.0)
METERS = 25.0
"""A unit of the quarry."""
_GPS = 0x8825


def true_centers() -> dict[str, NDArray[np.float64]]:
    """Return where the cameras of the quarry stand, by name: east, north and up, in metres."""
    import pycolmap

    model = pycolmap.Reconstruction(QUARRY / "sparse" / "0")
    return {one.name: METERS * np.asarray(one.projection_center()) for one in model.images.values()}


def geotagged(folder: Path, names: list[str] | None = None, noise_m: float = 1.0) -> list[str]:
    """Copy photographs of the quarry into a folder, each with its GPS position; return their names."""
    import pycolmap

    random, centers = np.random.default_rng(7), true_centers()
    chosen = sorted(centers) if names is None else names
    globe = pycolmap.GPSTransform(pycolmap.GPSTransformEllipsoid.WGS84)
    for name in chosen:
        noisy = centers[name] + random.normal(scale=noise_m, size=3)
        place = globe.enu_to_ellipsoid(noisy[None], *ORIGIN)[0]
        tag(QUARRY / "images" / name, folder / name, tuple(float(one) for one in place))
    return chosen


def tag(source: Path, target: Path, place: tuple[float, float, float] | None, **fields: Any) -> None:
    """Copy a JPEG with a GPS position and other fields of EXIF, by their numbers as t271."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(source) as image:
        exif = image.getexif()
        for key, value in fields.items():
            number = int(key[1:])
            (exif if number < 33000 else exif.get_ifd(0x8769))[number] = value
        if place is not None:
            latitude, longitude, altitude = place
            exif.get_ifd(_GPS).update(
                {
                    1: "N" if latitude >= 0 else "S",
                    2: _sexagesimal(latitude),
                    3: "E" if longitude >= 0 else "W",
                    4: _sexagesimal(longitude),
                    5: b"\0",
                    6: altitude,
                }
            )
        image.save(target, quality="keep", exif=exif)


def _sexagesimal(degrees: float) -> tuple[float, float, float]:
    whole = int(abs(degrees))
    minutes = (abs(degrees) - whole) * 60
    return float(whole), float(int(minutes)), round((minutes - int(minutes)) * 60, 6)


def quarry(folder: Path, names: list[str]) -> Path:
    """Copy photographs of the quarry as they are."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(QUARRY / "images" / name, folder / name)
    return folder
