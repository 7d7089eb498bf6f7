"""Where a scene lies on the globe: coordinates of its CRS, taken point by point to the Earth's centre, in float64.

A map projection bends space: over 400 m a plane leaves the Earth by 3 mm. So places are converted one by one and kept
as what is left after one rotation and one scale for the whole scene; sizes, rotations and colours stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from splatbatch.config import Offset
from splatbatch.errors import ConfigError, TrainerError

if TYPE_CHECKING:
    import pyproj

Floats = npt.NDArray[np.float64]
GEOCENTRIC, DEGREES = "EPSG:4978", "EPSG:4979"
"""WGS 84 as x y z from the Earth's centre, which 3D Tiles are in, and as longitude, latitude, height."""
BORDER_DEG = 1.0
"""So far beyond the area that a CRS is made for it may still be used."""
LOWEST_M, HIGHEST_M = -15_000.0, 100_000.0
"""Above the ellipsoid: where on Earth something can be photographed."""
STEP = 1.0
"""In units of the CRS: over which its directions are taken."""
UNEVEN = 0.01
"""By which its three directions may differ in length."""
TO_CONTENT = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
"""Undoes what readers of 3D Tiles do to the axes of a glTF: (x, y, z) becomes (x, -z, y)."""
Convert = Callable[[Floats], Floats]
_HINT = "Name the CRS of the model's coordinates: metres east, north and up, as EPSG:32632 (UTM zone 32 north)."


@dataclass(frozen=True)
class EnuFrame:
    """Where the coordinates of a model lie in a tileset."""

    rotation: Floats
    """[3, 3], from the model's axes to the tileset's."""
    scale: float
    """Metres in a unit of the model; 1 where unknown."""
    convert: Convert
    """Takes places [N, 3] of the model to the tileset's."""
    invert: Convert
    """Takes them back."""
    crs: str = ""
    """Empty: where the scene lies is unknown."""

    def around(self, middle: Floats) -> TileFrame:
        """Return the frame of a patch around its middle, in coordinates of the model."""
        return TileFrame(self, middle, self.convert(middle[None])[0])


@dataclass(frozen=True)
class TileFrame:
    """The frame of a patch's tiles: the model's axes around the patch's middle."""

    ground: EnuFrame
    middle: Floats
    """In coordinates of the model."""
    origin: Floats
    """The same place in the tileset."""

    def places(self, places: Floats) -> Floats:
        """Return places [N, 3] of the model as they lie in this frame."""
        there = self.ground.convert(places) - self.origin
        found: Floats = there @ self.ground.rotation / self.ground.scale
        return found

    @property
    def transform(self) -> Floats:
        """Return the matrix [4, 4] that a tile needs whose content is in this frame; the content's axes are undone."""
        matrix = np.eye(4)
        matrix[:3, :3] = self.ground.scale * self.ground.rotation @ TO_CONTENT
        matrix[:3, 3] = self.origin
        return matrix


def upright(up: Offset) -> EnuFrame:
    """Return a ground that is no place on Earth: the scene as it lies, with its sky above."""
    third = np.array(up) / max(float(np.linalg.norm(up)), 1e-12)
    first = np.cross(np.eye(3)[int(np.abs(third).argmin())], third)
    first /= np.linalg.norm(first)
    rotation = np.stack([first, np.cross(third, first), third])
    return EnuFrame(rotation, 1.0, lambda places: places @ rotation.T, lambda places: places @ rotation)


def on_globe(crs: str, middle: Floats) -> EnuFrame:
    """Return where a scene with this middle lies, by the name of its CRS.

    Raises:
        ConfigError: there is no such CRS, it has no lengths, or the scene lies outside its area.
        TrainerError: pyproj is not installed.
    """
    system = _system(crs)
    convert, invert = _converters(system)
    _check_area(crs, system, middle)
    ends = convert(middle + STEP * np.concatenate([np.eye(3), -np.eye(3)]))
    directions = ((ends[:3] - ends[3:]) / (2 * STEP)).T  # [3, 3], columns: where x, y and z lead
    left, lengths, right = np.linalg.svd(directions)
    scale = float(lengths.mean())
    if np.ptp(lengths) > UNEVEN * scale or np.linalg.det(directions) < 0:
        raise ConfigError(f"scene.crs: {crs}: its axes are not east, north and up in one unit", _HINT)
    return EnuFrame(left @ right, scale, convert, invert, crs)


def _system(crs: str) -> pyproj.CRS:
    """Return a CRS by its name, with heights."""
    try:
        import pyproj
    except ImportError as error:
        hint = "pip install 'splatbatch[geo]', or leave scene.crs out: the tiles then have no place on Earth."
        raise TrainerError("scene.crs: pyproj is not installed", hint) from error
    try:
        system = pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError as error:
        raise ConfigError(f"scene.crs: {crs}: PROJ knows no such CRS", _HINT) from error
    if not (system.is_projected or system.is_geocentric):
        raise ConfigError(f"scene.crs: {crs}: {system.name} counts degrees, and a model has lengths", _HINT)
    return system


def _converters(system: pyproj.CRS) -> tuple[Convert, Convert]:
    """Return what takes coordinates of a CRS to the Earth's centre, and back; heights are in the unit of the others."""
    import pyproj

    has_heights = len(system.axis_info) > 2
    transform = pyproj.Transformer.from_crs(system.to_3d(), GEOCENTRIC, always_xy=True).transform
    of_height = 1.0 if has_heights else system.axis_info[0].unit_conversion_factor

    def convert(places: Floats) -> Floats:
        x, y, z = np.asarray(places, dtype=np.float64).T
        found: Floats = np.stack(transform(x, y, z * of_height), axis=1)
        return found

    def invert(places: Floats) -> Floats:
        x, y, z = transform(*np.asarray(places, dtype=np.float64).T, direction="INVERSE")
        found: Floats = np.stack([x, y, z / of_height], axis=1)
        return found

    return convert, invert


def _check_area(crs: str, system: pyproj.CRS, middle: Floats) -> None:
    """See that a scene lies where its CRS is meant for.

    Raises:
        ConfigError: it does not.
    """
    import pyproj

    transformer = pyproj.Transformer.from_crs(system.to_3d(), DEGREES, always_xy=True)
    east, north, height = transformer.transform(*middle)
    where = " ".join(f"{value:,.1f}" for value in middle)
    area = system.area_of_use
    is_outside = area is not None and not (
        area.south - BORDER_DEG <= north <= area.north + BORDER_DEG
        and _is_between(area.west - BORDER_DEG, east, area.east + BORDER_DEG)
    )
    if math.isfinite(height) and not LOWEST_M <= height <= HIGHEST_M:
        said = f"{abs(height) / 1000:,.0f} km {'below' if height < 0 else 'above'} the ground"
        hint = f"{_HINT} For a model in coordinates of its own leave scene.crs out."
        raise ConfigError(f"scene.crs: {crs}: the scene's middle, {where}, would be {said}", hint)
    if not (math.isfinite(east) and math.isfinite(north)) or is_outside:
        said = f"{east:.2f} E {north:.2f} N" if math.isfinite(east) else "nowhere on Earth"
        made_for = f", outside the area that it is made for ({area.name})" if area else ""
        raise ConfigError(f"scene.crs: {crs}: the scene's middle, {where}, would be {said}{made_for}", _HINT)


def _is_between(west: float, east: float, limit: float) -> bool:
    """Return whether a longitude lies between two; areas across the date line begin east of where they end."""
    return west <= east <= limit if west <= limit else east >= west or east <= limit


def to_degrees(crs: str, middle: Floats) -> Convert:
    """Return what takes coordinates of a CRS to longitude, latitude (degrees) and height above the ellipsoid (m).

    Raises:
        ConfigError, TrainerError: as `on_globe` does.
    """
    ground = on_globe(crs, middle)
    import pyproj  # there, or on_globe has said that it is not

    transform = pyproj.Transformer.from_crs(GEOCENTRIC, DEGREES, always_xy=True).transform

    def convert(places: Floats) -> Floats:
        x, y, z = ground.convert(np.asarray(places, dtype=np.float64)).T
        found: Floats = np.stack(transform(x, y, z), axis=1)
        return found

    return convert
