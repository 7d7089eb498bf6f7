"""Reads cameras that Metashape exported as XML, for an import: the enabled and aligned cameras of one chunk.

Sensors become COLMAP cameras. In a rig, the pose of a slave is computed from that of its master and the slave's place
on the master.

Formulas: Agisoft Metashape User Manual, appendix "Camera models". cx and cy are relative to the middle of the image; B1
is added to the focal length along x, and P1, P2 are in the opposite order to OpenCV's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from xml.parsers import expat

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.groups import grouped
from splatbatch.scene.colmap.files import opened
from splatbatch.scene.colmap.types import Camera, Floats
from splatbatch.scene.imports.capture import (
    ImportLog,
    ImportOptions,
    NoPhotograph,
    PosedPhoto,
    SourceCapture,
    similarity_of,
    some,
)
from splatbatch.scene.imports.lens import OF_METASHAPE, Bend, Lens, bend_of, in_colmap, panorama
from splatbatch.scene.photos.folders import photographs_below
from splatbatch.scene.photos.headers import Size
from splatbatch.scene.similarity import IDENTITY, Similarity
from splatbatch.text import plural

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

LARGEST_MIB = 256
MOST_LEVELS = 64
MOST_TOKEN_BYTES = 1 << 20
"""Longest tag with its attributes, or comment, in bytes; expat 2.5 takes a minute for a tag of 30 MB."""
_PIECE_BYTES = 1 << 16
_REMEDY = "Export the cameras again: File > Export > Export Cameras, as Agisoft XML."
_ECEF = (6.2e6, 6.6e6)
"""Range of distances in metres from the centre of the Earth at which coordinates are taken as geocentric."""
_AGAIN = "Export the cameras again, as Agisoft XML."
MOST_FILES = 200_000
"""Most files of any type below the folder of the photographs; with more, an error asks for the right folder."""
_TERMS = ("f", "fx", "fy", "cx", "cy", "b1", *OF_METASHAPE)
_LONGEST_PX = 1 << 20
_REFIT = (
    "COLMAP has no camera with {keys}. Leave these terms out in Tools > Optimize Cameras and export again. Or export "
    "cameras as Colmap (Metashape 2.2), which undistorts the photographs."
)
_OPTIMISE = "Optimise the cameras in Metashape and export them again, as Agisoft XML."


class XmlDocument:
    """An XML file that was read whole, with the line in which each element begins.

    A file that declares a document type is refused, so that no entity is expanded or fetched. `root` is its outermost
    element.

    Raises:
        SceneError: the file cannot be read, is larger than `LARGEST_MIB`, is no complete XML, or declares a document
            type or entities. Or it is nested deeper than `MOST_LEVELS`, or has a tag or comment longer than
            `MOST_TOKEN_BYTES`.
    """

    def __init__(self, path: Path) -> None:
        from xml.etree.ElementTree import TreeBuilder

        self._level, self._tree, self._lines = 0, TreeBuilder(), dict["Element", int]()
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._parser.EntityDeclHandler = self._refuse
        self._parser.StartElementHandler, self._parser.EndElementHandler = self._start, self._end
        self._parser.CharacterDataHandler = self._tree.data
        with opened(path, LARGEST_MIB) as (file, _):
            try:
                taken = 0
                while piece := file.read(_PIECE_BYTES):
                    self._parser.Parse(piece)
                    taken += len(piece)
                    # expat parses a token from its beginning whenever it gets a further piece of it
                    if taken - self._parser.CurrentByteIndex > MOST_TOKEN_BYTES:
                        raise self._error(f"a tag or a comment is longer than {MOST_TOKEN_BYTES:,} bytes")
                self._parser.Parse(b"", True)
            except (LookupError, ValueError) as error:  # Python's, of an encoding
                raise SceneError(
                    f"the file's encoding cannot be read ({error})", f"{_REMEDY} Metashape writes UTF-8."
                ) from error
            except expat.ExpatError as error:
                what = expat.errors.messages[error.code]
                place = f"line {error.lineno}, column {error.offset + 1}"
                raise SceneError(f"{place}: {what}; the file is no complete XML", _REMEDY) from error
        self.root: Element = self._tree.close()

    def where(self, element: Element, name: str = "") -> str:
        """Return the place of an element for messages: "line 12: camera".

        Args:
            element: element of this document.
            name: name of the element in the text; empty: its tag.
        """
        return f"line {self._lines.get(element, 0)}: {name or element.tag}"

    def _error(self, what: str) -> SceneError:
        return SceneError(f"line {self._parser.CurrentLineNumber}: {what}", _REMEDY)

    def _refuse(self, *_: object) -> None:
        raise self._error("the file declares a document type or an entity, which is refused")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._level += 1
        if self._level > MOST_LEVELS:
            raise self._error(f"elements are nested more than {MOST_LEVELS} deep")
        self._lines[self._tree.start(tag, attributes)] = self._parser.CurrentLineNumber

    def _end(self, tag: str) -> None:
        self._level -= 1
        self._tree.end(tag)


def numbers(element: Element | None, count: int) -> Floats | None:
    """Return the `count` finite numbers in the text of an element, [count].

    None if there is no element, or its text holds anything else.
    """
    if element is None:
        return None
    try:
        values = np.array((element.text or "").split(), dtype=np.float64)
    except ValueError:
        return None
    return values if values.shape == (count,) and np.isfinite(values).all() else None


def is_enabled(element: Element) -> bool:
    """Return whether a chunk or a camera is enabled; True without the attribute `enabled`."""
    return element.get("enabled", "true").strip().lower() not in ("false", "0")


def cameras_below(element: Element | None) -> Iterator[tuple[Element, str]]:
    """Yield every camera below an element, including those in groups, with the label of its outermost group.

    The label is empty for cameras in no group, or in one without a label. Nothing is yielded if there is no element.
    """
    for child in element if element is not None else ():
        if child.tag == "camera":
            yield child, ""
        elif child.tag == "group":
            yield from ((camera, child.get("label", "")) for camera, _ in cameras_below(child))


def chosen_chunk(document: XmlDocument, label: str, log: ImportLog) -> Element:
    """Return the chunk to import; the other chunks with cameras are recorded as left out.

    Args:
        document: the XML file.
        label: label of the chunk; empty: the only chunk that is enabled and has poses, or the only one at all.
        log: record of the import.

    Raises:
        SceneError: no chunk has cameras, or not exactly one chunk fits.
    """
    where = document.where(document.root)
    chunks = [chunk for chunk in document.root.iter("chunk") if chunk.find("cameras") is not None]
    if not chunks:
        remedy = "Export the cameras of an aligned chunk, as Agisoft XML."
        raise SceneError(f"{where}: <{document.root.tag}> holds no chunk with cameras", remedy)
    aligned = [chunk for chunk in chunks if is_enabled(chunk) and _num_posed(chunk)]
    named = [chunk for chunk in chunks if label and chunk.get("label", "") == label]
    candidates = named if label else aligned or chunks
    if len(candidates) == 1:
        for other in (chunk for chunk in chunks if chunk is not candidates[0]):
            log.leave_out(f"chunk {_in_words(other)}")
        return candidates[0]
    known = "; ".join(_in_words(chunk) for chunk in chunks)
    what = f'{len(candidates)} chunks have the label "{label}"' if label else f"{len(candidates)} chunks have poses"
    remedy = "Name one chunk with --chunk LABEL and import each into a folder of its own, or merge them in Metashape."
    raise SceneError(f"{where}: {what}: {known}", remedy)


def _num_posed(chunk: Element) -> int:
    return sum(camera.find("transform") is not None for camera, _ in cameras_below(chunk.find("cameras")))


def _in_words(chunk: Element) -> str:
    state = "" if is_enabled(chunk) else ", disabled"
    return f'"{chunk.get("label", "")}" ({plural(_num_posed(chunk), "camera")} with a pose{state})'


def world_of(
    document: XmlDocument, chunk: Element, component: str | None, log: ImportLog
) -> tuple[Similarity, str, str]:
    """Return how poses of a chunk are moved to the world of the model, and two descriptions for import.json.

    The descriptions are the coordinates of that world in words, and its coordinate reference system as the file writes
    it, empty if there is none. The transform of the component, if it has one, goes before the chunk's own. The identity
    is returned if neither has a transform, or the one taken is faulty.

    Args:
        document: the XML file.
        chunk: the chunk.
        component: id of the component of its cameras; None: the cameras name none, and a component counts if it is the
            only one with a transform.
        log: record of the import. A faulty transform is recorded as a mistake, and a missing one if another component
            has a transform.
    """
    named = (chunk.findtext(name, "").split() for name in ("reference", "crs", "projection"))
    crs = " ".join(next(filter(None, named), ()))
    element = chunk.find("transform")
    components = [one for one in chunk.findall("components/component") if one.find("transform") is not None]
    own = [one for one in components if one.get("id") == component] if component is not None else components
    if len(own) == 1:
        element = own[0].find("transform")
    elif element is None and components:
        known = ", ".join(one.get("id", "?") for one in components)
        what = f"the cameras are of component {component or '(none)'}, but only these have a transform: {known}"
        log.mistake(document.where(chunk, "components"), what, _AGAIN)
    if element is None:
        return (IDENTITY, "the chunk's own coordinates, whose unit is unknown, as the chunk has no transform", crs)
    placed = IDENTITY
    with log.noting(document.where(element, "transform of the chunk"), _AGAIN):
        placed = _similarity(element)
    is_local = not crs or crs.upper().startswith(("LOCAL_CS", "ENGCRS", "LOCAL"))
    is_geocentric = _ECEF[0] < float(np.linalg.norm(placed.translation)) < _ECEF[1]
    where = "geocentric coordinates (ECEF) in metres" if is_geocentric and not is_local else "local coordinates"
    return (placed, f"{where}, after the chunk's transform", crs)


def _similarity(element: Element) -> Similarity:
    """Return the transform of a chunk: rotation, translation and scale, or one matrix of 16 numbers.

    Raises:
        SceneError: it is neither.
    """
    if element.find("rotation") is None and (matrix := numbers(element, 16)) is not None:
        return similarity_of(matrix[:12].reshape(3, 4))
    rotation, translation = numbers(element.find("rotation"), 9), numbers(element.find("translation"), 3)
    scale = numbers(element.find("scale"), 1) if element.find("scale") is not None else np.ones(1)
    if rotation is None or translation is None or scale is None or not scale[0] > 0:
        raise SceneError("the transform is not a rotation of 9 numbers, a translation of 3 and a scale above 0")
    turned = similarity_of(np.column_stack([rotation.reshape(3, 3), translation]))
    return replace(turned, scale=float(scale[0]) * turned.scale)


def _by_label(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the photographs that a label may mean: by name and by stem, with and without folders, in small letters."""
    paths = ((name, PurePosixPath(name)) for name in names)
    meant = ((name, {name, path.name, path.stem, str(path.with_suffix(""))}) for name, path in paths)
    return grouped((label.casefold(), name) for name, labels in meant for label in labels)


def _find(written: str, group: str, photographs: Mapping[str, Sequence[str]], folder: Path) -> str:
    """Return the photograph below a folder that a label means; of several, the one in a folder of its group.

    Raises:
        NoPhotograph: there is none.
        SceneError: it may mean several.
    """
    label = written.replace("\\", "/").strip("/")
    found = photographs.get(label.casefold(), ())
    if len(found) > 1:
        found = [name for name in found if name in (label, PurePosixPath(label).name)] or found
    if len(found) > 1 and group:
        of_group = (name for name in found if group.casefold() in map(str.casefold, PurePosixPath(name).parts))
        found = [*of_group] or found
    if not found:
        raise NoPhotograph(written, folder)
    if len(found) > 1:
        remedy = "Name the folder that holds just this chunk's photographs with --images DIR."
        raise SceneError(f"several photographs below {folder} have this name: {some(sorted(found))}", remedy)
    return found[0]


@dataclass(frozen=True, eq=False)
class Sensor:
    """A sensor (camera device) of a chunk, with its place on the master of its rig.

    `label` names the sensor in messages.
    """

    label: str
    element: Element
    on_master: Similarity | None = None
    """Transform from the axes of this sensor to those of its master.

    None: there is no master, or no place is given, or a faulty one.
    """


def read_sensors(document: XmlDocument, chunk: Element, log: ImportLog) -> Mapping[str, Sensor]:
    """Return the sensors of a chunk by id; a faulty place on a master is recorded as a mistake.

    Sensors without an id, or with that of another, are recorded as mistakes and left out. Lenses are not read here.

    Args:
        document: the XML file.
        chunk: the chunk.
        log: record of the import.
    """
    found = {}
    for element in chunk.findall("sensors/sensor"):
        name = f'sensor {element.get("id", "?")} "{element.get("label", "")}"'
        where = document.where(element, name)
        if (key := element.get("id")) is None or key in found:
            log.mistake(where, "the sensor has no id, or the id of another sensor", _OPTIMISE)
            continue
        on_master = None
        with log.noting(where, _OPTIMISE):
            on_master = _on_master(element)
        found[key] = Sensor(name, element, on_master)
    return found


def _camera(sensor: Sensor, log: ImportLog) -> Camera:
    """Return the COLMAP camera of a sensor.

    Raises:
        SceneError: it has none.
    """
    calibrations = sensor.element.findall("calibration")
    adjusted = [one for one in calibrations if one.get("class") == "adjusted"]
    calibration = next(iter([*adjusted, *calibrations]), None)
    kind = calibration.get("type", "") if calibration is not None else ""
    own = _size(sensor.element)
    size = _size(calibration) or own
    if size is None:
        raise SceneError("the sensor's resolution is missing, or is not in whole pixels")
    if (bend := bend_of("sensor type", kind or sensor.element.get("type", "frame"))) == "panorama":
        return panorama(size)
    if calibration is None:
        raise SceneError("the sensor has no calibration")
    if not adjusted:
        log.convert(f"{sensor.label}: the calibration was never adjusted, so that the initial one was taken")
    if own not in (None, size):
        raise SceneError(f"the sensor has the resolution {own}, but its calibration has {size}")
    written = {key: numbers(one, 1) for key in _TERMS if (one := calibration.find(key)) is not None}
    if broken := [key for key, values in written.items() if values is None]:
        raise SceneError(f"the calibration has no number for {', '.join(broken)}")
    known = {key: float(values[0]) for key, values in written.items() if values is not None}
    terms = dict.fromkeys(_TERMS, 0.0) | known
    lacking = [key for key in ("b2", "skew", "k4", "p3", "p4") if terms[key]]
    extras = [f"{key.upper()} {terms[key]:.3g}" for key in lacking]
    extras += [f"type {bend}"] if bend == "equisolid" else []
    refit = _REFIT.format(keys=", ".join(lacking).upper() or f"a lens of the type {bend}")
    camera, fit = in_colmap(_lens(terms, bend, size), size, ", ".join(extras), refit)
    if fit:
        log.convert(f"{sensor.label}: {fit}")
    log.convert(f"{sensor.label}: {camera.model}, {size[0]}x{size[1]}")
    return camera


def _lens(terms: Mapping[str, float], bend: Bend, size: Size) -> Lens:
    if terms["fx"]:  # PhotoScan before 1.2: both focal lengths, principal point from the corner
        fx, fy, cx, cy = terms["fx"], terms["fy"] or terms["fx"], terms["cx"], terms["cy"]
    else:
        fx, fy = terms["f"] + terms["b1"], terms["f"]
        cx, cy = size[0] / 2 + terms["cx"], size[1] / 2 + terms["cy"]
    if not (fx > 0 and fy > 0):
        raise SceneError("the calibration has no focal length f above 0")
    return Lens(fx, fy, cx, cy, bend=bend, **{name: terms[key] for key, name in OF_METASHAPE.items() if terms[key]})


def _size(element: Element | None) -> Size | None:
    """Return the resolution of a sensor or a calibration in whole pixels; None where it has none."""
    resolution = element.find("resolution") if element is not None else None
    if resolution is None:
        return None
    try:
        wide, high = (float(resolution.get(key, "")) for key in ("width", "height"))
    except ValueError:
        return None
    is_whole = all(0 < side < _LONGEST_PX and side == int(side) for side in (wide, high))
    return (int(wide), int(high)) if is_whole else None


def _on_master(element: Element) -> Similarity | None:
    """Return the place of a slave on its master: rotation, and location in units of the chunk; None: it is no slave.

    Raises:
        SceneError: it is not a rotation and a location.
    """
    turn, place = element.find("rotation"), element.find("location")
    if turn is None or element.get("master_id") in (None, element.get("id")):
        return None
    place = place if place is not None else element.find("translation")
    rotation = numbers(turn, 9)
    location = numbers(place, 3) if place is not None else np.zeros(3)
    if rotation is None or location is None:
        raise SceneError("rotation and location of the sensor on its master are not 9 and 3 numbers")
    try:
        found = similarity_of(np.column_stack([rotation.reshape(3, 3), location]))
    except SceneError as error:
        raise SceneError(f"rotation of the sensor on its master: {error}") from error
    return replace(found, scale=1.0)


def read(paths: Sequence[Path], options: ImportOptions, log: ImportLog) -> SourceCapture:
    """Return the content of cameras that Metashape exported; points are not in the file.

    Args:
        paths: the XML file, and nothing else.
        options: options of the import, with the label of the chunk and the folder of the photographs.
        log: record of the import; faulty sensors and cameras are recorded as mistakes and left out.

    Raises:
        SceneError: the file cannot be read, the chunk is not clear, or no usable camera is left. Or more than
            `MOST_FILES` files lie below the folder of the photographs.
    """
    [path] = paths
    document = XmlDocument(path)
    beside = (path.parent / name for name in ("images", "Images", "photos", "Photos"))
    usual = next((folder for folder in beside if folder.is_dir()), path.parent)
    folder = options.images or usual
    names = photographs_below(folder, MOST_FILES)
    photographs = _by_label(names)
    chunk = chosen_chunk(document, options.chunk, log)
    sensors = read_sensors(document, chunk, log)
    cameras, component = _aligned(document, chunk, sensors, log)
    placed, world, crs = world_of(document, chunk, component, log)
    lenses = _lenses((camera for camera, _, _ in cameras), sensors, log)
    shots, taken = [], set()
    for camera, group, pose in cameras:
        where = document.where(camera, f'camera {camera.get("id", "?")} "{_label(camera)}"')
        with log.noting(where):
            name = _find(_label(camera), group, photographs, folder)
            taken.add(name)
            rotation, center = placed.of_pose(pose.rotation.T, pose.translation)
            if lens := lenses[camera.get("sensor_id", "")]:
                shots.append(PosedPhoto(name, folder / name, lens, rotation, center, where))
    log.leave_out_unused([name for name in names if name not in taken])
    if not shots:
        where = document.where(chunk, "cameras")
        raise SceneError(f"{where}: no camera has both a photograph and a pose", _AGAIN)
    reference = {"from_chunk_to_model": placed.matrix(), "chunk": chunk.get("label", "")}
    kind = f"Metashape XML {document.root.get('version', '')}".strip()
    return SourceCapture(kind, tuple(shots), None, world, crs, reference)


def _aligned(
    document: XmlDocument, chunk: Element, sensors: Mapping[str, Sensor], log: ImportLog
) -> tuple[list[tuple[Element, str, Similarity]], str | None]:
    """Return the enabled cameras with a pose, and the id of their component.

    Of each camera the element, the label of its group, and the pose from the camera to the chunk.
    """
    cameras = list(cameras_below(chunk.find("cameras")))
    enabled = {camera: group for camera, group in cameras if is_enabled(camera)}
    poses = _poses(document, enabled, log)
    poses |= _slave_poses(document, enabled, poses, sensors, log)
    disabled = [_label(camera) for camera, _ in cameras if camera not in enabled]
    unaligned = [
        _label(camera) for camera in enabled if camera.get("id") not in poses and camera.find("transform") is None
    ]
    for names, why in ((disabled, "disabled"), (unaligned, "without a pose (not aligned)")):
        if names:
            log.leave_out(f"{plural(len(names), 'camera')} {why}: {some(names)}")
    posed = [camera for camera in enabled if camera.get("id") in poses]
    components = Counter(camera.get("component_id") for camera in posed)
    if len(components) > 1:
        counts = ", ".join(f"component {key}: {plural(count, 'camera')}" for key, count in components.most_common())
        remedy = "Align the components to each other (markers, more photographs), or export one of them alone."
        what = f"the cameras form {len(components)} components that are not connected: {counts}"
        log.mistake(document.where(chunk, "components"), what, remedy)
    return [(camera, enabled[camera], poses[camera.get("id")]) for camera in posed], next(iter(components), None)


def _poses(document: XmlDocument, cameras: Iterable[Element], log: ImportLog) -> dict[str | None, Similarity]:
    """Return the cameras' own poses by camera id; broken ones are noted as mistakes."""
    poses: dict[str | None, Similarity] = {}
    posed = ((camera, element) for camera in cameras if (element := camera.find("transform")) is not None)
    for camera, element in posed:
        with log.noting(document.where(element, f'transform of camera "{_label(camera)}"'), _AGAIN):
            if (matrix := numbers(element, 16)) is None:
                raise SceneError("the matrix is not 16 finite numbers")
            if camera.get("id") in poses:
                raise SceneError(f"the camera has the id {camera.get('id')} of another camera")
            poses[camera.get("id")] = similarity_of(matrix[:12].reshape(3, 4))
    return poses


def _slave_poses(
    document: XmlDocument, cameras: Iterable[Element], poses: Mapping[str | None, Similarity],
    sensors: Mapping[str, Sensor], log: ImportLog,
) -> dict[str | None, Similarity]:  # fmt: skip
    """Return the poses of a rig's slaves by camera id, from those of their masters."""
    found = {}
    for camera in cameras:
        master = poses.get(camera.get("master_id"))
        if master is None or camera.get("id") in poses:
            continue
        sensor = sensors.get(camera.get("sensor_id", ""))
        if sensor is None or sensor.on_master is None:
            where = document.where(camera, f'camera "{_label(camera)}"')
            what = "the camera has no pose of its own, and its sensor has no place on the master camera"
            log.mistake(where, what, "Export the cameras with the rig's offsets, or disable the slave cameras.")
        else:
            found[camera.get("id")] = replace(master, scale=1.0).after(sensor.on_master)
    if found:
        log.convert(
            f"{plural(len(found), 'camera')} of a rig: poses computed from the master cameras and the rig's offsets, "
            "in units of the chunk"
        )
    return found


def _label(camera: Element) -> str:
    return camera.get("label", "")


def _lenses(cameras: Iterable[Element], sensors: Mapping[str, Sensor], log: ImportLog) -> dict[str, Camera | None]:
    """Return the COLMAP cameras of those sensors that cameras are of, by sensor id; None where there is none."""
    lenses: dict[str, Camera | None] = {}
    for key in dict.fromkeys(camera.get("sensor_id", "") for camera in cameras):
        lenses[key], sensor = None, sensors.get(key)
        with log.noting(
            sensor.label if sensor else f"camera of sensor {key or '?'}",
            "Calibrate the sensor, and export the cameras again.",
        ):
            if sensor is None:
                raise SceneError(f"the file has no sensor {key or '?'}")
            lenses[key] = _camera(sensor, log)
    return lenses
