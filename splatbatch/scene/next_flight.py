"""Plans the next flight: finds the weak cells of a scene, and a few new photographs (views) that would improve them.

A cell is a small part of the surface; a weak cell was photographed too seldom, from too narrow an angle, or from too
far. Views look at weak cells from the usual distance, at which well-photographed cells were taken: straight down, and
obliquely (30 and 50 degrees from the vertical) from eight sides. Views stand clear of obstacles.

A greedy set cover takes the view that helps most cells, until no cell lacks anything or no view helps, at most 500
views. Their number is within a factor of ln(n) of the least possible (Chvatal 1979, "A greedy heuristic for the
set-covering problem").
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from scipy.spatial import Delaunay, QhullError, cKDTree

from splatbatch.scene.colmap.types import Camera, Floats, Image, Mask, triple
from splatbatch.text import plural

FEW = 3
"""A cell that fewer photographs see is weak; inspections of splats use the same number."""
NARROW_DEG = 20.0
"""A cell is weak if the two directions farthest apart from which it is seen differ by fewer degrees than this."""
COARSE = 0.5
"""A cell is weak if its finest resolution is below this share of the usual: its nearest camera is twice as far."""
MOST_EMPTY = 400
"""Most empty cells (gaps in the surface, without any point) that are added to the weak cells."""
VERTICAL = 0.9
TILTS_DEG = (0.0, 30.0, 50.0)
SIDES = 8
MARGIN = 0.08
"""Margin at each edge of a view, as a share of its side, in which cells do not count: no flight is exact."""
APART_DEG = 8.0
"""Smallest angle in degrees between a view and all photographs of a cell, with which the view helps that cell."""
REACH = (0.5, 1.5)
"""Nearest and farthest distance at which a view helps a cell, as multiples of the usual distance.

Nearer views would not be sharp, farther views not fine enough.
"""
FREE = 0.25
"""Least distance between a view's camera and all obstacles, as a multiple of the usual distance."""
MOST_CELLS = 300
"""Most weak cells that views are aimed at, evenly taken; the other weak cells count wherever a view helps them."""
MOST_VIEWS = 500
Convert = Callable[[Floats], Floats]
"""Function from world coordinates [n, 3] to longitude and latitude in degrees, and height above the ellipsoid in m."""
LOCAL = "the model's own axes and units: scene.crs is not set, so their place on Earth is unknown"
METERS_PER_DEGREE = 111_319.49
"""Metres per degree at the equator, where KML shows a scene without a CRS (coordinate reference system).

One unit of the model is taken for one metre there.
"""
KML = "http://www.opengis.net/kml/2.2"


@dataclass(frozen=True)
class FlightCamera:
    """A camera in the world, without distortion, whose principal point is the middle of the photograph.

    `focal` holds the focal lengths in x and y, and `size` width and height of the photograph, all in pixels.
    """

    matrix: Floats  # [4, 4], world to camera
    focal: tuple[float, float]
    size: tuple[int, int]

    @cached_property
    def center(self) -> Floats:
        """Camera centre in world coordinates, [3]."""
        return -self.matrix[:3, :3].T @ self.matrix[:3, 3]

    def sees(self, places: Floats, margin: float = 0.0) -> Mask:
        """Return which places project into the photograph, [n]; what hides a place is ignored.

        Args:
            places: places in world coordinates, [n, 3].
            margin: share of each side of the photograph, at both of its ends, in which places do not count.
        """
        local = places @ self.matrix[:3, :3].T + self.matrix[:3, 3]
        with np.errstate(all="ignore"):
            off = np.abs(local[:, :2] / local[:, 2:] * self.focal) / self.size
        return (local[:, 2] > 0) & (off <= 0.5 - margin).all(axis=1)


def placed_cameras(images: Iterable[Image], cameras: Mapping[int, Camera]) -> dict[str, FlightCamera]:
    """Return the camera of each image with a finite pose, by image name; distortion and principal points are ignored.

    Images whose camera is missing are left out.

    Args:
        images: images of a model.
        cameras: cameras of the model, by id.

    Raises:
        SceneError: an image has a panorama, or a camera of an unknown model or with another number of parameters.
    """
    return {
        image.name: FlightCamera(image.world_to_camera(), (camera.fx, camera.fy), camera.size)
        for image in images
        if image.has_pose() and (camera := cameras.get(image.camera_id))
    }


WEAKNESS = {
    "few photographs": "in too few photographs",
    "narrow": "seen from too narrow an angle",
    "coarse": "seen from too far",
    "nothing there": "empty",
}
"""Why a cell of the surface is weak, as files say it (`WeakRegion.why`), and as people are told."""


@dataclass(frozen=True)
class WeakRegion:
    """A weak cell: a small part of the surface that more photographs would improve.

    `place` is the middle of the cell, and `size` its side in units of the model. `num_photos` photographs see the cell.
    `angle_deg` is the largest angle between two of their directions in degrees, 0 for fewer than two. `patch` is the
    name of its patch or variant, "scene" for a cell of the merged scene, empty for an empty cell or if unknown.
    """

    place: Floats  # [3], world
    size: float
    num_photos: int
    angle_deg: float
    why: str
    """Why the cell is weak: a key of `WEAKNESS`; of its first three, the first that holds."""
    patch: str = ""


@dataclass(frozen=True)
class CoverageSurvey:
    """The cells of a scene's surface, with the cameras that photographed the surface, at least one.

    `sizes` are the sides of the cells in units of the model. `up` has length 1.
    """

    places: Floats  # [c, 3], world: the middles of the surface in each cell
    sizes: Floats  # [c]
    cameras: Sequence[FlightCamera]
    up: Floats  # [3]
    patches: Sequence[str] = ()
    """Name of the patch or variant of each cell, "scene" for cells of the merged scene; empty if unknown."""

    @cached_property
    def centers(self) -> Floats:
        """Camera centres in world coordinates, [s, 3]."""
        return np.array([camera.center for camera in self.cameras])

    @cached_property
    def seen(self) -> Mask:
        """Whether the middle of each cell lies in the photograph of each camera, [c, s]; occlusion is ignored."""
        return np.stack([camera.sees(self.places) for camera in self.cameras], axis=1)

    @cached_property
    def rays(self) -> Floats:
        """Unit vectors from each cell to each camera, [c, s, 3], also where the camera does not see the cell."""
        rays = self.centers[None] - self.places[:, None]
        return rays / np.maximum(np.linalg.norm(rays, axis=2, keepdims=True), 1e-12)

    @cached_property
    def distances(self) -> Floats:
        """Distance of each cell from each camera, [c, s], in units of the model; NaN where `seen` is False."""
        far = np.linalg.norm(self.centers[None] - self.places[:, None], axis=2)
        return np.where(self.seen, far, np.nan)

    def angle_deg(self, cell: int) -> float:
        """Return the largest angle in degrees between two directions from which a cell is seen; 0 for fewer than two.

        Args:
            cell: index of the cell.
        """
        rays = self.rays[cell][self.seen[cell]]
        return float(np.degrees(np.arccos(np.clip((rays @ rays.T).min(), -1, 1)))) if len(rays) else 0.0

    def usual_distance(self) -> float:
        """Return the usual distance in units of the model: the median of all photographs of well-photographed cells.

        Those are cells that at least `FEW` photographs see, else all cells. If no camera sees any cell, the median
        distance of the cameras from the middle of all cells is returned.
        """
        good = self.seen.sum(axis=1) >= FEW
        known = self.distances[good if good.any() else slice(None)]
        if np.isfinite(known).any():
            return float(np.nanmedian(known))
        return float(np.median(np.linalg.norm(self.centers - self.places.mean(axis=0), axis=1)))

    def weak(self) -> list[WeakRegion]:
        """Return the weak cells in the order of `places`, followed by the empty cells, at most `MOST_EMPTY`."""
        usual = self.usual_distance()
        nearest = np.nanmin(self.distances, axis=1, initial=np.inf)
        found = [self._cell(index, float(nearest[index]), usual) for index in range(len(self.places))]
        return [cell for cell in found if cell] + self._empty()

    def _cell(self, index: int, nearest: float, usual: float) -> WeakRegion | None:
        num, angle = int(self.seen[index].sum()), self.angle_deg(index)
        why = "few photographs" if num < FEW else "narrow" if angle < NARROW_DEG else ""
        why = why or ("coarse" if nearest > usual / COARSE else "")
        patch = self.patches[index] if self.patches else ""
        return WeakRegion(self.places[index], float(self.sizes[index]), num, angle, why, patch) if why else None

    def _empty(self) -> list[WeakRegion]:
        """Return the cells between others that have no surface, at the height of their neighbours."""
        east, north, up = axes_of(self.up)
        flat = self.places @ np.stack([east, north]).T
        side = float(np.median(self.sizes))
        try:
            hull = Delaunay(flat)
        except (QhullError, ValueError):  # fewer than four cells, or all in a line
            return []
        low, high = flat.min(axis=0), flat.max(axis=0)
        axes = [np.arange(start + side / 2, end, side) for start, end in zip(low, high, strict=True)]
        grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
        far = np.linalg.norm(grid[:, None] - flat[None], axis=2)
        empty = grid[(hull.find_simplex(grid) >= 0) & (far.min(axis=1) > side)][:MOST_EMPTY]
        if not len(empty):
            return []
        order = np.argsort(np.linalg.norm(empty[:, None] - flat[None], axis=2), axis=1)[:, :4]
        heights = np.median((self.places @ up)[order], axis=1)
        places = empty @ np.stack([east, north]) + heights[:, None] * up
        alone = CoverageSurvey(places, np.full(len(places), side), self.cameras, self.up)
        return [
            WeakRegion(place, side, int(alone.seen[at].sum()), alone.angle_deg(at), "nothing there")
            for at, place in enumerate(places)
        ]


def up_of(places: Floats, cameras: Sequence[FlightCamera], *, is_mapped: bool = False) -> Floats:
    """Return the up direction of a scene, [3], of length 1.

    The normal of the ground is taken, on the side of the cameras. The z axis is taken instead in three cases: the
    normal is within 26 degrees of z; the model is in a CRS (coordinate reference system); or there are fewer than three
    places.

    Args:
        places: places on the surface, [n, 3].
        cameras: cameras that photographed the surface.
        is_mapped: whether the coordinates are those of a CRS.
    """
    z = np.array([0.0, 0.0, 1.0])
    if is_mapped or len(places) < 3:
        return z
    normal = np.linalg.svd(places - places.mean(axis=0), full_matrices=False)[2][2]
    above = np.median([camera.center for camera in cameras], axis=0) - np.median(places, axis=0)
    up: Floats = normal if normal @ above > 0 else -normal
    return z if up @ z > VERTICAL else up


def axes_of(up: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the directions east, north and up, each [3] and of length 1.

    North is the model's y axis projected to the horizontal plane, or the x axis if y is nearly upright.

    Args:
        up: the up direction, [3], of length 1.
    """
    y = np.array([0.0, 1.0, 0.0]) if abs(up[1]) < VERTICAL else np.array([1.0, 0.0, 0.0])
    north = y - (y @ up) * up
    north /= np.linalg.norm(north)
    return np.cross(north, up), north, up


@dataclass(frozen=True)
class SuggestedPhotograph:
    """A new photograph (view) that the plan proposes, with the place that the camera looks at."""

    camera: FlightCamera
    target: Floats  # [3]
    covers: tuple[int, ...] = ()
    """Indices, in the plan's list of weak cells, of those that the photograph helps."""

    @property
    def direction(self) -> Floats:
        """Viewing direction in world coordinates, [3], of length 1."""
        return self.camera.matrix[2, :3]


def suggest(survey: CoverageSurvey, obstacles: Floats) -> FlightPlan:
    """Return the plan of the photographs to take, at most `MOST_VIEWS`, those that help most cells first.

    No photograph is suggested if no cell is weak, no camera position is free, or none would help a cell.

    Args:
        survey: cells and cameras of the scene.
        obstacles: places of points and Gaussians in world coordinates, [n, 3]; cameras keep clear of these,
            and above nearly all of those nearby.
    """
    cells, distance = survey.weak(), survey.usual_distance()
    candidates = _candidates(survey, cells, distance, np.vstack([obstacles, survey.places])) if cells else []
    if not candidates:
        return FlightPlan(cells, (), tuple(range(len(cells))), survey.up, distance)
    covers, left = _cover(candidates, survey, cells, distance)
    suggested = [replace(candidates[one], covers=tuple(helped)) for one, helped in covers.items()]
    return FlightPlan(cells, suggested, left, survey.up, distance)


def _candidates(
    survey: CoverageSurvey, cells: Sequence[WeakRegion], distance: float, obstacles: Floats
) -> list[SuggestedPhotograph]:
    """Return photographs of weak cells, at most MOST_CELLS, from everywhere that a camera can be."""
    east, north, up = axes_of(survey.up)
    azimuths = [2 * math.pi * side / SIDES for side in range(SIDES)]
    level = [math.sin(azimuth) * east + math.cos(azimuth) * north for azimuth in azimuths]
    tilted = [math.cos(tilt) * up + math.sin(tilt) * one for tilt in np.radians(TILTS_DEG[1:]) for one in level]
    kinds = [(camera.focal, camera.size) for camera in survey.cameras]
    focal, size = max(set(kinds), key=kinds.count)
    aims = cells if len(cells) <= MOST_CELLS else cells[:: math.ceil(len(cells) / MOST_CELLS)]
    found = [
        SuggestedPhotograph(
            FlightCamera(_looking_at(cell.place, distance * direction, survey.up), focal, size), cell.place
        )
        for cell in aims
        for direction in [up, *tilted]  # from a target to the views of it
    ]
    centers, targets = np.array([one.camera.center for one in found]), np.array([one.target for one in found])
    free = _free(centers, targets, obstacles, survey.up, distance)
    return [one for one, is_free in zip(found, free, strict=True) if is_free]


def _cover(
    candidates: Sequence[SuggestedPhotograph], survey: CoverageSurvey, cells: Sequence[WeakRegion], distance: float
) -> tuple[dict[int, list[int]], tuple[int, ...]]:
    """Take the candidate that helps most cells, again and again.

    Returns:
        The cells that each taken candidate helps, by its index; and the cells that still lack photographs.
    """
    places = np.array([cell.place for cell in cells])
    rays = np.array([one.camera.center for one in candidates])[:, None] - places[None]  # [v, c, 3], from cells to views
    far = np.linalg.norm(rays, axis=2)
    helps = np.stack([one.camera.sees(places, MARGIN) for one in candidates])  # [v, c]
    helps &= (far >= REACH[0] * distance) & (far <= REACH[1] * distance)
    rays /= np.maximum(far[..., None], 1e-12)
    gaps = np.full(helps.shape, 180.0)  # [v, c], degrees from the nearest direction from which a cell is seen

    def see(cell: int, directions: Floats) -> None:
        """Record directions from which a cell is seen; candidates close to these no longer help it."""
        if len(directions):
            apart = np.degrees(np.arccos(np.clip(rays[:, cell] @ directions.T, -1, 1))).min(axis=1)
            gaps[:, cell] = np.minimum(gaps[:, cell], apart)
            helps[:, cell] &= gaps[:, cell] >= APART_DEG

    needs = np.array([max(FEW - cell.num_photos, 1) for cell in cells], np.int64)
    known = CoverageSurvey(places, np.ones(len(cells)), survey.cameras, survey.up)
    for at in range(len(cells)):
        see(at, known.rays[at][known.seen[at]])
    covers = dict[int, list[int]]()
    while len(covers) < MOST_VIEWS:
        wanted = helps & (needs > 0)
        # among views that help equally many cells, the one with directions farthest from the existing ones
        score = wanted.sum(axis=1) + (wanted * gaps).sum(axis=1) / (181.0 * len(cells))
        best = int(score.argmax())
        if not wanted[best].any():
            break
        covers[best] = np.flatnonzero(wanted[best]).tolist()
        for at in covers[best]:
            needs[at] -= 1
            see(at, rays[best, at][None])
    return covers, tuple(np.flatnonzero(needs > 0).tolist())


def _looking_at(target: Floats, offset: Floats, up: Floats) -> Floats:
    """Return the matrix, world to camera, of a level camera at an offset from the target that it looks at."""
    forward = -offset / np.linalg.norm(offset)
    above = up if abs(forward @ up) < math.cos(math.radians(1)) else axes_of(up)[1]
    right = np.cross(forward, above)
    right /= np.linalg.norm(right)
    matrix = np.eye(4)
    matrix[:3, :3] = np.stack([right, np.cross(forward, right), forward])
    matrix[:3, 3] = -matrix[:3, :3] @ (target + offset)
    return matrix


def _free(centers: Floats, targets: Floats, obstacles: Floats, up: Floats, distance: float) -> Mask:
    """Return which cameras are clear of obstacles, above the ground, and have a free line of sight to their target."""
    far, _ = cKDTree(obstacles).query(centers)
    east, north, _ = axes_of(up)
    level = np.stack([east, north]).T
    ground = cKDTree(obstacles @ level)
    heights = obstacles @ up
    free: Mask = far >= FREE * distance
    near = ground.query_ball_point(centers @ level, FREE * distance)
    tops = np.array([np.percentile(heights[one], 98) if len(one) else -np.inf for one in near])
    free &= centers @ up > tops
    for share in (0.35, 0.6, 0.85):
        between = targets + share * (centers - targets)
        _, nearest = ground.query(between @ level)
        free &= between @ up >= heights[nearest] - 0.02 * distance
    return free


@dataclass(frozen=True)
class FlightView:
    """A proposed photograph as plain values for JSON, GeoJSON and KML.

    Places and the height `above_target` are in the coordinates and units of the model. `direction` has length 1.
    `heading_deg` is clockwise from north, 0 for a view within 1 degree of straight up or down. `pitch_deg` is the angle
    above the horizon, -90 for a view straight down.
    """

    name: str
    position: tuple[float, float, float]
    looks_at: tuple[float, float, float]
    direction: tuple[float, float, float]
    heading_deg: float
    pitch_deg: float
    above_target: float
    covers: tuple[str, ...]
    """Names of the weak cells that the photograph helps: "cell 1", "cell 2", …"""


@dataclass(frozen=True)
class CapturePlan:
    """JSON record of `plan-capture --json`: the proposed photographs, and the number of weak cells before."""

    views: tuple[FlightView, ...]
    weak_cells: int
    left: int
    """Number of weak cells that would still lack photographs after these; 0: none."""


@dataclass(frozen=True)
class FlightPlan:
    """The suggested photographs for the weak cells of a scene, and the place of the scene on Earth.

    `name` is the title for map programs, empty if there is none. `offset` is added to all coordinates to get those of
    the model's files. `to_globe` converts the latter to degrees; None: the place on Earth is unknown.
    """

    cells: Sequence[WeakRegion]
    suggested: Sequence[SuggestedPhotograph]
    left: tuple[int, ...]
    """Indices, in `cells`, of those that would still lack photographs: no free position helps, or views ran out."""
    up: Floats
    distance: float
    """Distance from the cells at which the photographs are to be taken, in units of the model."""
    name: str = ""
    offset: Floats = field(default_factory=partial(np.zeros, 3))  # [3], to be added for the coordinates of the model
    to_globe: Convert | None = None

    def facts(self) -> CapturePlan:
        """Return the record for `plan-capture --json`."""
        return CapturePlan(self.views(), len(self.cells), len(self.left))

    def views(self) -> tuple[FlightView, ...]:
        """Return the suggested photographs as plain values, named "view 1", "view 2", …; the most helpful first."""
        return tuple(self._view(number, view) for number, view in enumerate(self.suggested, start=1))

    def _view(self, number: int, view: SuggestedPhotograph) -> FlightView:
        east, north, up = axes_of(self.up)
        d = view.direction
        is_down = abs(d @ up) > math.cos(math.radians(1))
        position, target = view.camera.center + self.offset, view.target + self.offset
        return FlightView(
            name=f"view {number}",
            position=_rounded(position),
            looks_at=_rounded(target),
            direction=_rounded(d, 6),
            heading_deg=0.0 if is_down else round(math.degrees(math.atan2(d @ east, d @ north)) % 360, 1),
            pitch_deg=round(math.degrees(math.asin(max(-1.0, min(1.0, float(d @ up))))), 1),
            above_target=round(float((position - target) @ up), 3),
            covers=tuple(f"cell {one + 1}" for one in view.covers),
        )

    def to_geojson(self) -> str:
        """Return a GeoJSON FeatureCollection as text: a point for each view, a polygon for each weak cell.

        Coordinates are longitude, latitude (degrees) and height (m); those of the model if `to_globe` is None, which
        `coordinates_are` in the text says.

        Raises:
            ValueError: a coordinate is not finite, as where `to_globe` cannot convert it.
        """
        features, to_globe = list[Mapping[str, object]](), self.to_globe or np.asarray
        for view in self.views():
            features.append(
                {
                    "type": "Feature",
                    "geometry": {
                        "type": "Point",
                        "coordinates": _rounded(to_globe(np.array([view.position]))[0], 9),
                    },
                    "properties": asdict(view),
                }
            )
        for number, cell in enumerate(self.cells, start=1):
            features.append(
                {
                    "type": "Feature",
                    "geometry": {"type": "Polygon", "coordinates": [self._ring(cell, to_globe)]},
                    "properties": {
                        "name": f"cell {number}",
                        "is": cell.why,
                        "description": WEAKNESS[cell.why],
                        "photographs": cell.num_photos,
                        "patch": cell.patch,
                        "angle_deg": round(cell.angle_deg, 1),
                        "lacks_more": number - 1 in self.left,
                    },
                }
            )
        known = {"type": "FeatureCollection", "name": f"next flight: {self.name}"}
        where = {"coordinates_are": "longitude, latitude, height above the ellipsoid" if self.to_globe else LOCAL}
        return json.dumps({**known, **where, "features": features}, indent=1, allow_nan=False) + "\n"

    def to_kml(self) -> str:
        """Return a KML document as text: a placemark with its camera for each view, a polygon for each weak cell.

        If `to_globe` is None, the scene is shown at the equator, with one unit of the model as one metre. Coordinates
        that are not finite are written as inf or nan.
        """
        from jinja2 import Environment, PackageLoader

        filled = Environment(loader=PackageLoader(__package__ or ""), autoescape=True, trim_blocks=True)
        return (
            filled.get_template("flight.kml.j2").render(
                namespace=KML,
                name=self.name,
                note="" if self.to_globe else f"Shown at the equator, one unit of the model as one metre: {LOCAL}",
                views=[(one, _rounded(self._on_globe(np.array([one.position]))[0], 9)) for one in self.views()],
                cells=[
                    (WEAKNESS[cell.why], plural(cell.num_photos, "photograph"), self._ring(cell, self._on_globe))
                    for cell in self.cells
                ],
            )
            + "\n"
        )

    def _ring(self, cell: WeakRegion, to_globe: Convert) -> list[tuple[float, float, float]]:
        """Return the corners of a cell on the globe, with the first again at the end."""
        (east, north, _), half = axes_of(self.up), cell.size / 2
        square = ((-1, -1), (1, -1), (1, 1), (-1, 1))  # counterclockwise from above, as RFC 7946 demands of outer rings
        corners = to_globe([cell.place + half * (x * east + y * north) for x, y in square] + self.offset)
        return [_rounded(one, 9) for one in (*corners, corners[0])]

    def _on_globe(self, places: Floats) -> Floats:
        if self.to_globe:
            return self.to_globe(places)
        local = (places - self.offset) @ np.stack(axes_of(self.up)).T
        return local / (METERS_PER_DEGREE, METERS_PER_DEGREE, 1.0)


def _rounded(place: Floats, digits: int = 4) -> tuple[float, float, float]:
    return triple(round(float(one), digits) for one in place)
