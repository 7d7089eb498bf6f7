"""Places a scene on the globe: converts coordinates of its CRS to geocentric ones, point by point in float64.

A map projection is not linear: over 400 m a plane leaves the Earth by 3 mm. So positions are converted one by one, and
stored relative to one rotation and one scale for the whole scene. Sizes, rotations and colours are unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from splatbatch.config import Offset
from splatbatch.errors import ConfigError, TrainerError

if TYPE_CHECKING:
    import pyproj

Floats = npt.NDArray[np.float64]
GEOCENTRIC, DEGREES = "EPSG:4978", "EPSG:4979"
"""WGS 84 as geocentric x y z in metres, the coordinates of 3D Tiles; and as longitude, latitude and height."""
BORDER_DEG = 1.0
"""Degrees of longitude or latitude by which a scene may lie outside the area that its CRS is made for."""
LOWEST_M, HIGHEST_M = -15_000.0, 100_000.0
"""Plausible heights of a scene, in metres above the ellipsoid."""
STEP = 1.0
"""Step of the finite differences for the directions of the CRS's axes, in units of the CRS."""
UNEVEN = 0.01
"""Relative difference in length that the three axes of a CRS may have."""
TO_CONTENT = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
"""Rotation [3, 3] that undoes a change by readers of 3D Tiles, who turn (x, y, z) of a glTF into (x, -z, y)."""
Convert = Callable[[Floats], Floats]
_HINT = "Name the coordinate system of the model: metres east, north and up, as EPSG:32632 (UTM zone 32 north)."


@dataclass(frozen=True)
class EnuFrame:
    """Transform from the coordinates of a reconstruction to those of a tileset.

    With a coordinate reference system (CRS) the tileset's coordinates are geocentric, in metres. Without one, they are
    those of the reconstruction, rotated so that z is up, in its units.
    """

    rotation: Floats
    """Rotation [3, 3] from the reconstruction's axes to the tileset's."""
    scale: float
    """Metres per unit of the reconstruction; 1 if unknown."""
    convert: Convert
    """Function that converts positions [N, 3] of the reconstruction to the tileset's coordinates, [N, 3]."""
    invert: Convert
    """Function that converts positions [N, 3] of the tileset to the reconstruction's coordinates, [N, 3]."""
    origin: Floats
    """Origin of a patch's tiles, [3], in the tileset's coordinates; the axes of the tiles are the reconstruction's."""
    crs: str = ""
    """Name of the CRS, as "EPSG:32632"; empty if the scene has no known place on Earth."""

    def around(self, middle: Floats) -> EnuFrame:
        """Return this frame with another origin, for the tiles of one patch.

        Args:
            middle: middle of the patch, [3], in the reconstruction's coordinates.
        """
        return replace(self, origin=self.convert(middle[None])[0])

    def places(self, places: Floats) -> Floats:
        """Return positions [N, 3] of the reconstruction relative to `origin`, in its axes and units, [N, 3]."""
        found: Floats = (self.convert(places) - self.origin) @ self.rotation / self.scale
        return found

    @property
    def transform(self) -> Floats:
        """Return the matrix [4, 4] from the content of a patch's tiles to the tileset's coordinates.

        A tile in tileset.json has this matrix as `transform`, column by column. TO_CONTENT is included.
        """
        matrix = np.eye(4)
        matrix[:3, :3] = self.scale * self.rotation @ TO_CONTENT
        matrix[:3, 3] = self.origin
        return matrix


def upright(up: Offset) -> EnuFrame:
    """Return the frame of a scene without a place on Earth: positions are only rotated so that `up` becomes z.

    Args:
        up: direction of the sky in the reconstruction's axes, of any length above 0.
    """
    third = np.array(up) / max(float(np.linalg.norm(up)), 1e-12)
    first = np.cross(np.eye(3)[int(np.abs(third).argmin())], third)
    first /= np.linalg.norm(first)
    rotation = np.stack([first, np.cross(third, first), third])
    return EnuFrame(rotation, 1.0, lambda places: places @ rotation.T, lambda places: places @ rotation, np.zeros(3))


def on_globe(crs: str, middle: Floats) -> EnuFrame:
    """Return the frame of a scene on the globe; its origin is the centre of the Earth.

    Args:
        crs: name of a projected or geocentric coordinate reference system, as "EPSG:32632".
        middle: middle of the scene, [3], in coordinates of this CRS.

    Raises:
        ConfigError: the CRS is not known, counts degrees, or has uneven or left-handed axes; or the scene lies outside
            the area that the CRS is made for, or at no plausible height.
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
    return EnuFrame(left @ right, scale, convert, invert, np.zeros(3), crs)


def _system(crs: str) -> pyproj.CRS:
    """Return a projected or geocentric CRS by its name.

    Raises:
        ConfigError: PROJ does not know the CRS, or it counts degrees.
        TrainerError: pyproj is not installed.
    """
    try:
        import pyproj
    except ImportError as error:
        hint = "Run pip install 'splatbatch[geo]', or leave scene.crs out: the tiles then have no place on Earth."
        raise TrainerError("scene.crs: pyproj is not installed", hint) from error
    try:
        system = pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError as error:
        raise ConfigError(f"scene.crs: {crs}: PROJ knows no such coordinate system", _HINT) from error
    if not (system.is_projected or system.is_geocentric):
        raise ConfigError(f"scene.crs: {crs}: {system.name} counts degrees, but a model has lengths", _HINT)
    return system


def _converters(system: pyproj.CRS) -> tuple[Convert, Convert]:
    """Return functions that convert coordinates of a CRS to geocentric ones, and back.

    Heights are taken in the unit of the horizontal axes if the CRS has no heights of its own.
    """
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
    """Check that the middle of a scene lies at a plausible height, in the area that its CRS is made for.

    Raises:
        ConfigError: the middle lies elsewhere.
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
    """Return whether a longitude lies between two others; an area across the date line has west > limit."""
    return west <= east <= limit if west <= limit else east >= west or east <= limit


def to_degrees(crs: str, middle: Floats) -> Convert:
    """Return a function that converts positions [N, 3] in a CRS to longitude, latitude and height, [N, 3].

    Longitude and latitude are in degrees by WGS 84, height in metres above its ellipsoid.

    Args:
        crs: name of a projected or geocentric coordinate reference system, as "EPSG:32632".
        middle: middle of the scene, [3], in coordinates of this CRS.

    Raises:
        ConfigError: the CRS is not known, counts degrees, or has uneven or left-handed axes; or the scene lies outside
            the area that the CRS is made for, or at no plausible height.
        TrainerError: pyproj is not installed.
    """
    ground = on_globe(crs, middle)
    import pyproj  # on_globe raises if it is not installed

    transform = pyproj.Transformer.from_crs(GEOCENTRIC, DEGREES, always_xy=True).transform

    def convert(places: Floats) -> Floats:
        x, y, z = ground.convert(np.asarray(places, dtype=np.float64)).T
        found: Floats = np.stack(transform(x, y, z), axis=1)
        return found

    return convert
