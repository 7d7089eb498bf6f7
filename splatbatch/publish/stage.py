"""Orientation of a scene for the viewer: its up and north directions, first camera, map axes, colour of the sky."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.publish.source import PublishedSplat, SourcePart
from splatbatch.report.viewer.viewer import TO_VIEWER, InitialCamera, Vector, turn_upright, up_of
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.colmap.types import Floats, Image
from splatbatch.scene.frame import shifted_image
from splatbatch.scene.photos.folders import FolderListings, FoundPhotograph, stored_photographs
from splatbatch.scene.photos.headers import opened_photograph, pixels_of
from splatbatch.scene.rotations import rotate
from splatbatch.splats.blocks import sample_rows

COLMAP_UP = np.array([0.0, -1.0, 0.0])
CRS_UP, CRS_NORTH = np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0])
STRETCHES = (32, 512)
"""Sample of a part of a splat: number of stretches of consecutive Gaussians, spread evenly, and Gaussians in each."""
EDGE = 2.0
"""Percent of a patch's Gaussians that may lie beyond its box on the map, on each side."""
LARGEST_SINE = 1 - 1e-9
MOST_PHOTOS = 12
"""Most photographs that the colour of the sky is measured on."""
LEVEL = 0.35
"""Sine of the largest angle by which a camera may look down so that its photograph may show the sky at the top."""
TOP = 0.04
"""Share of a photograph's height, from its upper edge, that counts as sky."""
SIZE_PX = 256
NEUTRAL = (0.78, 0.82, 0.86)
"""Colour of the sky, R, G and B from 0 to 1, if no photograph shows it: the light grey of an overcast day."""
Color = tuple[float, float, float]


@dataclass(frozen=True)
class UprightScene:
    """Orientation of a scene in the viewer: up, north, and the first camera."""

    up: Vector
    """Direction of the sky in the splat's axes, [3], of length 1."""
    north: Vector | None
    """Direction of north in the splat's axes, [3], of length 1; None if unknown."""
    camera: InitialCamera | None
    """Camera of the first view; None if no camera could be read."""

    @property
    def turn(self) -> Vector:
        """Return the rotation, a quaternion w x y z of length 1, that takes `up` to the viewer's up direction."""
        return turn_upright(self.up)

    @property
    def plan(self) -> Floats:
        """Return the directions to the right and upwards on the map in the splat's axes, [2, 3], each of length 1.

        Upwards is north if that is known; otherwise the map is turned arbitrarily.
        """
        ahead = self.north if self.north is not None else np.eye(3)[int(np.abs(self.up).argmin())]
        right = np.cross(ahead, self.up)
        right /= np.linalg.norm(right)
        found: Floats = np.stack([right, np.cross(self.up, right)])
        return found

    @property
    def tool_turn(self) -> tuple[str, str]:
        """Return the rotation `turn` as arguments of the program splat-transform, as ("-r", "90,0,0")."""
        return _angles(self.turn)

    @property
    def tool_turn_back(self) -> tuple[str, str]:
        """Return the inverse of the rotation `turn` as arguments of the program splat-transform."""
        return _angles(self.turn * (1, -1, -1, -1))

    def in_viewer(self, directions: Floats) -> Floats:
        """Return directions or positions [N, 3], given in the splat's axes, in the viewer's axes, [N, 3]."""
        found: Floats = rotate(directions, self.turn) * TO_VIEWER
        return found


def _angles(turn: Vector) -> tuple[str, str]:
    """Return a rotation w x y z as splat-transform's arguments: angles about x, then y, then z, in degrees.

    The tool's x and y axes point opposite to the file's, so the angles about them are negated.
    """
    w, x, y, z = turn
    sine = float(np.clip(2 * (w * y - x * z), -LARGEST_SINE, LARGEST_SINE))
    about_x = np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    about_z = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    angles = np.degrees([-about_x, -np.arcsin(sine), about_z])
    return ("-r", ",".join(f"{angle:.9g}" for angle in angles))


def set_stage(splat: PublishedSplat, crs: str) -> UprightScene:
    """Return the orientation of a splat for the viewer: z is up and y north if the scene has a CRS.

    Otherwise up is estimated from the cameras, and north is unknown. The first camera is the middle held-out image by
    name, or the middle one of all images if none is held out. It is None if no image with a finite pose can be read.

    Args:
        splat: the splat, with the path of its COLMAP model.
        crs: coordinate reference system of the scene, as "EPSG:32632"; empty: the place on Earth is unknown.
    """
    images = sorted((shifted_image(image, splat.offset) for image in images_of(splat)), key=lambda image: image.name)
    up = CRS_UP if crs else up_by_cameras(images)
    chosen = images[len(images) // 2] if images else None
    held_out = [image for image in images if image.name in set(splat.views.holdout)]
    chosen = held_out[len(held_out) // 2] if held_out else chosen
    camera = chosen and InitialCamera(turn_upright(up), up, chosen.center(), chosen.rotation()[2])
    return UprightScene(up, CRS_NORTH if crs else None, camera or None)


def images_of(splat: PublishedSplat) -> list[Image]:
    """Return the images, with a valid pose, that a splat was trained from; empty if the COLMAP model cannot be read."""
    try:
        return [image for image in read_images(Path(splat.views.sparse)) if image.has_pose()]
    except (SceneError, OSError, ValueError):
        return []


def up_by_cameras(images: Sequence[Image]) -> Vector:
    """Return the direction of the sky by the cameras of images, [3], of length 1; -y, COLMAP's up, without images."""
    return up_of(images) if images else COLMAP_UP


def places_of(part: SourcePart) -> Floats:
    """Return the positions of a sample of a part's Gaussians, [n, 3], to find the place of the part on the map.

    Raises:
        ValueError: the file is not a splat, or is truncated.
        OSError: the file cannot be read.
    """
    own = (part.start, part.start + part.num_gaussians)
    return sample_rows(part.path, between=own, stretches=STRETCHES).astype(np.float64)


def box_on(plan: Floats, places: Floats) -> Floats:
    """Return the box of positions on the map, lower and upper corner, [2, 2], in units of the scene.

    On each side of each axis EDGE percent of the positions may lie outside.

    Args:
        plan: directions to the right and upwards on the map, [2, 3], of length 1.
        places: positions [n, 3], at least one.
    """
    found: Floats = np.percentile(places @ plan.T, (EDGE, 100 - EDGE), axis=0)
    return found


def sky_of(splat: PublishedSplat, up: Vector) -> tuple[Color, bool]:
    """Return the colour of the sky, R, G and B from 0 to 1, and whether it was measured on photographs.

    The colour is the median at the upper edge of at most MOST_PHOTOS photographs. These look up, level, or down by an
    angle of a sine below LEVEL. If there is none that can be read, the colour is NEUTRAL.

    Args:
        splat: the splat, with the paths of its COLMAP model and photographs.
        up: direction of the sky, [3], of length 1.
    """
    level = [image for image in images_of(splat) if image.rotation()[2] @ up > -LEVEL]
    folder, folders = stored_photographs(Path(splat.views.images))[0], FolderListings()
    chosen = level[:: max(1, len(level) // MOST_PHOTOS)][:MOST_PHOTOS]
    files = [place.path for image in chosen if isinstance(place := folders.locate(folder, image.name), FoundPhotograph)]
    colors = [color for file in files if (color := _top_of(file)) is not None]
    if not colors:
        return NEUTRAL, False
    red, green, blue = np.median(colors, axis=0).tolist()
    return (red, green, blue), True


def _top_of(file: str) -> Color | None:
    """Return the median colour of a photograph's upper edge; None if the photograph cannot be read."""
    try:
        with opened_photograph(file) as picture:
            picture.draft("RGB", (SIZE_PX, SIZE_PX))
            pixels = np.asarray(pixels_of(picture), dtype=np.float64) / 255
    except (OSError, ValueError, SyntaxError):
        return None
    red, green, blue = np.median(pixels[: max(1, int(TOP * len(pixels)))].reshape(-1, 3), axis=0).tolist()
    return (red, green, blue)
