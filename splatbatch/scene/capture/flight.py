"""A flight as others read it: GeoJSON (RFC 7946) and KML (OGC 07-147r2); positions, headings, pitches, weak cells."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np

from splatbatch.plain_text import counted
from splatbatch.scene.capture.suggest import Plan, Suggested
from splatbatch.scene.capture.survey import Cell, Floats, axes_of

Convert = Callable[[Floats], Floats]
"""World coordinates, [n, 3], to longitude, latitude and height above the ellipsoid."""
LOCAL = "the model's own axes and units: scene.crs is not set, so that nobody knows where on Earth they lie"
METERS_PER_DEGREE = 111_319.49
"""At the equator, where the KML of a scene without a CRS lies: one unit of the model as one metre."""
KML = "http://www.opengis.net/kml/2.2"


@dataclass(frozen=True)
class Flight:
    """What is to be flown, and how its coordinates become places on Earth."""

    plan: Plan
    name: str
    offset: Floats  # [3], to be added for the coordinates of the model
    crs: str = ""
    to_globe: Convert | None = None

    def records(self) -> list[dict[str, Any]]:
        """Return every view as plain values, in the order in which they help most."""
        return [self._record(number, view) for number, view in enumerate(self.plan.views, start=1)]

    def _record(self, number: int, view: Suggested) -> dict[str, Any]:
        east, north, up = axes_of(self.plan.up)
        d = view.direction
        is_down = abs(d @ up) > math.cos(math.radians(1))
        position, target = view.shot.center + self.offset, view.target + self.offset
        return {
            "name": f"view {number}",
            "position": _rounded(position),
            "looks_at": _rounded(target),
            "direction": [round(float(one), 6) for one in d],
            "heading_deg": 0.0 if is_down else round(math.degrees(math.atan2(d @ east, d @ north)) % 360, 1),
            "pitch_deg": round(math.degrees(math.asin(max(-1.0, min(1.0, float(d @ up))))), 1),
            "above_target": round(float((position - target) @ up), 3),
            "covers": [f"cell {one + 1}" for one in view.covers],
        }

    def to_geojson(self) -> str:
        """Return a FeatureCollection: a point for each view, a polygon for each weak cell."""
        views = [_feature(self._places([view["position"]])[0], view) for view in self.records()]
        cells = [self._cell_feature(number, cell) for number, cell in enumerate(self.plan.cells, start=1)]
        known = {"type": "FeatureCollection", "name": f"next flight: {self.name}"}
        where = {"coordinates_are": "longitude, latitude, height above the ellipsoid" if self.to_globe else LOCAL}
        return json.dumps({**known, **where, "features": [*views, *cells]}, indent=1, allow_nan=False) + "\n"

    def _cell_feature(self, number: int, cell: Cell) -> dict[str, Any]:
        ring = self._places(_corners(cell, self.plan.up) + self.offset)
        said = {"name": f"cell {number}", "is": cell.why, "photographs": cell.num_photos, "patch": cell.patch}
        said |= {"angle_deg": round(cell.angle_deg, 1), "lacks_more": number - 1 in self.plan.left}
        geometry = {"type": "Polygon", "coordinates": [[_rounded(one, 9) for one in (*ring, ring[0])]]}
        return {"type": "Feature", "geometry": geometry, "properties": said}

    def to_kml(self) -> str:
        """Return a document with a placemark, and its camera, for each view, and a polygon for each weak cell."""
        ElementTree.register_namespace("", KML)
        root = ElementTree.Element(f"{{{KML}}}kml")
        document = _add(root, "Document")
        _add(document, "name", f"next flight: {self.name}")
        if self.to_globe is None:
            _add(document, "description", f"At the equator instead, a unit as a metre: {LOCAL}")
        for view in self.records():
            _placemark(document, self._on_globe(np.array([view["position"]]))[0], view)
        for number, cell in enumerate(self.plan.cells, start=1):
            ring = self._on_globe(_corners(cell, self.plan.up) + self.offset)
            _polygon(document, f"cell {number}: {cell.why}, {counted(cell.num_photos, 'photograph')}", ring)
        return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"

    def _places(self, places: Any) -> Floats:
        found = np.asarray(places, dtype=np.float64)
        return self.to_globe(found) if self.to_globe else found

    def _on_globe(self, places: Floats) -> Floats:
        if self.to_globe:
            return self.to_globe(places)
        local = (places - self.offset) @ np.stack(axes_of(self.plan.up)).T
        return local / (METERS_PER_DEGREE, METERS_PER_DEGREE, 1.0)


def _corners(cell: Cell, up: Floats) -> Floats:
    """Return the corners of a cell, [4, 3], counterclockwise from above, as RFC 7946 wants the outer ring."""
    east, north, _ = axes_of(up)
    half = cell.size / 2
    return np.array([cell.place + half * (x * east + y * north) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))])


def _feature(place: Floats, view: dict[str, Any]) -> dict[str, Any]:
    geometry = {"type": "Point", "coordinates": _rounded(place, 9)}
    return {"type": "Feature", "geometry": geometry, "properties": view}


def _rounded(place: Floats, digits: int = 4) -> list[float]:
    return [round(float(one), digits) for one in place]


def _add(parent: ElementTree.Element, tag: str, text: str = "") -> ElementTree.Element:
    child = ElementTree.SubElement(parent, f"{{{KML}}}{tag}")
    child.text = text or None
    return child


def _placemark(parent: ElementTree.Element, place: Floats, view: dict[str, Any]) -> None:
    mark = _add(parent, "Placemark")
    _add(mark, "name", view["name"])
    camera = _add(mark, "Camera")
    told = dict(zip(("longitude", "latitude", "altitude"), _rounded(place, 9), strict=True))
    # a tilt of 0 looks straight down, one of 90 to the horizon
    told |= {"heading": view["heading_deg"], "tilt": round(view["pitch_deg"] + 90, 1), "roll": 0}
    for name, value in told.items():
        _add(camera, name, str(value))
    _add(camera, "altitudeMode", "absolute")
    _add(mark, "description", f"heading {view['heading_deg']}, pitch {view['pitch_deg']}; {', '.join(view['covers'])}")
    point = _add(mark, "Point")
    _add(point, "altitudeMode", "absolute")
    _add(point, "coordinates", ",".join(map(str, _rounded(place, 9))))


def _polygon(parent: ElementTree.Element, name: str, ring: Floats) -> None:
    mark = _add(parent, "Placemark")
    _add(mark, "name", name)
    polygon = _add(mark, "Polygon")
    _add(polygon, "altitudeMode", "absolute")
    line = _add(_add(polygon, "outerBoundaryIs"), "LinearRing")
    _add(line, "coordinates", " ".join(",".join(map(str, _rounded(one, 9))) for one in (*ring, ring[0])))
