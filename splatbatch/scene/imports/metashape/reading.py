"""Metashape's XML as a capture: the cameras of one chunk that are enabled and aligned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from splatbatch.errors import SceneError
from splatbatch.plain_text import counted
from splatbatch.scene.imports.capture import Capture, Notes, Shot, Wish
from splatbatch.scene.imports.metashape.chunk import World, chosen_chunk, world_of
from splatbatch.scene.imports.metashape.document import (
    Document,
    cameras_below,
    is_enabled,
    numbers,
    read_document,
)
from splatbatch.scene.imports.metashape.photographs import Photographs, folder_beside
from splatbatch.scene.imports.metashape.sensors import Sensor, read_sensors
from splatbatch.scene.imports.mistakes import Mistakes, some
from splatbatch.scene.imports.pose import NoPose, Similarity, similarity_of

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_AGAIN = "Export the cameras again, as Agisoft XML."


@dataclass(frozen=True, eq=False)
class _Station:
    """A camera of the chunk that counts: its pose leads from the camera to the chunk."""

    label: str
    where: str
    group: str
    sensor: str
    pose: Similarity


def read(path: Path, wish: Wish, notes: Notes, mistakes: Mistakes) -> Capture | None:
    """Return what the file says; None where mistakes leave nothing to go on with."""
    try:
        document = read_document(path)
        photographs = Photographs(wish.images or folder_beside(path))
    except SceneError as error:
        mistakes.add(path.name, error.message.removeprefix(f"{path}: "), error.hint)
        return None
    chunk = chosen_chunk(document, wish.chunk, notes, mistakes)
    if chunk is None:
        return None
    stations, component = _stations(document, chunk, (notes, mistakes))
    world = world_of(document, chunk, component, mistakes)
    sensors = read_sensors(document, chunk, notes, mistakes)
    finder = _Finder(photographs, sensors, world, mistakes, wish.skips_missing)
    shots = tuple(shot for station in stations if (shot := finder.shot(station)))
    finder.tell(notes)
    if not shots:
        mistakes.add(document.where(chunk, "cameras"), "no camera is left with a photograph and a pose", _AGAIN)
        return None
    reference = {"from_chunk_to_model": world.placed.matrix(), "chunk": chunk.get("label", "")}
    kind = f"Metashape XML {document.root.get('version', '')}".strip()
    return Capture(kind, shots, None, world.words, world.crs, reference)


def _stations(document: Document, chunk: Element, told: tuple[Notes, Mistakes]) -> tuple[list[_Station], str | None]:
    """Return the cameras that count, and the component that they belong to."""
    notes, mistakes = told
    cameras = list(cameras_below(chunk.find("cameras")))
    disabled = [_label(camera) for camera, _ in cameras if not is_enabled(camera)]
    enabled = [(camera, group) for camera, group in cameras if is_enabled(camera)]
    poses = _poses(document, chunk, [camera for camera, _ in cameras], told)
    posed = [(camera, group) for camera, group in enabled if camera.get("id") in poses]
    unaligned = [
        _label(camera) for camera, _ in enabled
        if camera.get("id") not in poses and camera.find("transform") is None
    ]  # fmt: skip
    for names, why in ((disabled, "disabled"), (unaligned, "without a pose (not aligned)")):
        if names:
            notes.leave_out(f"{counted(len(names), 'camera')} {why}: {some(names)}")
    components = Counter(camera.get("component_id") for camera, _ in posed)
    if len(components) > 1:
        counts = ", ".join(f"component {key}: {counted(count, 'camera')}" for key, count in components.most_common())
        remedy = "Align them to each other (markers, more photographs), or export one component alone."
        what = f"{len(components)} components that do not hang together: {counts}"
        mistakes.add(document.where(chunk, "components"), what, remedy)
    found = []
    for camera, group in posed:
        where = document.where(camera, f'camera {camera.get("id", "?")} "{_label(camera)}"')
        found.append(_Station(_label(camera), where, group, camera.get("sensor_id", ""), poses[camera.get("id")]))
    return found, next(iter(components), None)


def _poses(
    document: Document, chunk: Element, cameras: list[Element], told: tuple[Notes, Mistakes]
) -> Mapping[str | None, Similarity]:
    """Return the poses of the cameras by id: their own, and for slaves of a rig those of their masters."""
    notes, mistakes = told
    poses: dict[str | None, Similarity] = {}
    for camera in cameras:
        element = camera.find("transform")
        if element is None or not is_enabled(camera):
            continue
        matrix = numbers(element, 16)
        where = document.where(element, f'transform of camera "{_label(camera)}"')
        try:
            if matrix is None:
                raise NoPose("is not 16 finite numbers")
            if camera.get("id") in poses:
                raise NoPose(f"has the id {camera.get('id')} of another camera")
            poses[camera.get("id")] = similarity_of(matrix.reshape(4, 4)[:3])
        except NoPose as error:
            mistakes.add(where, str(error), _AGAIN)
    slaves = _slave_poses(document, chunk, cameras, poses, mistakes)
    if slaves:
        notes.convert(
            f"{counted(len(slaves), 'camera')} of a rig stand on their masters, turned and moved as their sensors say, "
            "in units of the chunk"
        )
    return {**poses, **slaves}


def _slave_poses(
    document: Document, chunk: Element, cameras: list[Element], poses: Mapping[str | None, Similarity],
    mistakes: Mistakes,
) -> dict[str | None, Similarity]:  # fmt: skip
    sensors = read_sensors(document, chunk, Notes(), mistakes)
    found: dict[str | None, Similarity] = {}
    for camera in cameras:
        master = poses.get(camera.get("master_id"))
        if master is None or camera.get("id") in poses or not is_enabled(camera):
            continue
        sensor = sensors.get(camera.get("sensor_id", ""))
        if sensor is None or sensor.on_master is None:
            where = document.where(camera, f'camera "{_label(camera)}"')
            what = "has no pose of its own, and its sensor does not say where it sits on its master"
            mistakes.add(where, what, "Export with the rig's offsets, or disable the slaves.")
        else:
            placed = master.rotation @ sensor.on_master.translation + master.translation
            found[camera.get("id")] = Similarity(master.rotation @ sensor.on_master.rotation, placed, 1.0)
    return found


def _label(camera: Element) -> str:
    return camera.get("label", "")


class _Finder:
    """Makes shots of stations; what lacks a photograph or a lens is noted."""

    def __init__(
        self, photographs: Photographs, sensors: Mapping[str, Sensor], world: World, mistakes: Mistakes, skips: bool
    ) -> None:
        self._photographs, self._sensors, self._world = photographs, sensors, world
        self._mistakes, self._skips = mistakes, skips
        self._missing: list[str] = []
        self._taken: dict[str, str] = {}

    def shot(self, station: _Station) -> Shot | None:
        """Return the shot of a station; None where its photograph or its lens is missing."""
        sensor = self._sensors.get(station.sensor)
        name = self._photo(station)
        if sensor is None or sensor.camera is None:
            trouble = f"{sensor.label}: {sensor.trouble}" if sensor else f"sensor {station.sensor or '?'} is not there"
            self._mistakes.add(f"camera of sensor {station.sensor or '?'}", trouble, "Calibrate it, and export again.")
            return None
        if name is None:
            return None
        rotation, center = self._world.placed.of_pose(station.pose.rotation.T, station.pose.translation)
        return Shot(name, self._photographs.folder / name, sensor.camera, rotation, center, station.where)

    def _photo(self, station: _Station) -> str | None:
        found, folder = self._photographs.find(station.label, station.group), self._photographs.folder
        if len(found) == 1:
            other = self._taken.setdefault(found[0], station.where)
            if other == station.where:
                return found[0]
            remedy = "Give photographs names of their own, and align them again."
            self._mistakes.add(station.where, f"{found[0]} is the photograph of {other} too", remedy)
        elif found:
            what = f"may be {some(found)} below {folder}"
            remedy = "Name the folder that holds just this chunk's photographs with --images DIR."
            self._mistakes.add(station.where, what, remedy)
        elif self._skips:
            self._missing.append(station.label)
        else:
            remedy = "Name the folder of the photographs with --images DIR, or leave such cameras out: --skip-missing."
            self._mistakes.add(station.where, f"no photograph of this name below {folder}", remedy)
        return None

    def tell(self, notes: Notes) -> None:
        """Say which photographs have no pose, and which poses no photograph."""
        if self._missing:
            notes.leave_out(f"{counted(len(self._missing), 'pose')} without photograph: {some(self._missing)}")
        others = [name for name in self._photographs.names if name not in self._taken]
        if others:
            notes.leave_out(f"{counted(len(others), 'photograph')} without a pose: {some(others)}")
