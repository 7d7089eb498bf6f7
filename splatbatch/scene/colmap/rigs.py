"""Reads rigs and frames, two files that COLMAP 3.12 and later write, and writes them for a part of the images."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from splatbatch.errors import SceneError
from splatbatch.scene.colmap.files import ModelError, choose_format, opened
from splatbatch.scene.colmap.types import Image

CAMERA = 0
MOST_MIB = 512
"""Largest file of rigs or frames that is read, in MiB; a million frames of five cameras have 250."""
_OF_WORD: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys("IQB", int), "d": float, "i": {"CAMERA": CAMERA, "IMU": 1}.__getitem__
}  # fmt: skip
_COUNT, _PAIR, _SENSOR = struct.Struct("<Q"), struct.Struct("<II"), struct.Struct("<iI")
_POSE, _DATUM = struct.Struct("<7d"), struct.Struct("<iIQ")
Sensor = tuple[int, int]
Pose = tuple[float, ...]


@dataclass(frozen=True)
class Rig:
    """Sensors fixed to each other, each with its pose in the rig.

    A sensor is a type (0: camera) and an id. A pose is a quaternion w, x, y, z and a translation, from rig to sensor;
    None for the first sensor, which is the reference, and where the file has no pose.
    """

    id: int
    sensors: tuple[tuple[Sensor, Pose | None], ...]


@dataclass(frozen=True)
class RigFrame:
    """The images and other data that the sensors of a rig took at one moment; `pose` leads from world to rig."""

    id: int
    rig_id: int
    pose: Pose
    data: tuple[tuple[int, int, int], ...]
    """Type and id of a sensor, and id of its datum: the image id for a camera."""

    def image_ids(self) -> Iterator[int]:
        """Yield the ids of the frame's images, in the order of its data."""
        return (datum for kind, _, datum in self.data if kind == CAMERA)


@dataclass(frozen=True)
class Rigs:
    """The rigs of a model with their frames."""

    rigs: tuple[Rig, ...]
    frames: tuple[RigFrame, ...]

    def of(self, image_ids: Collection[int]) -> Rigs:
        """Return the rigs and frames of the given images, to be written beside a part of the model.

        Frames without any of the images, and rigs without such a frame, are left out. The other frames keep only the
        given images; rigs keep all of their sensors.
        """
        kept = [frame for frame in self.frames if not {*frame.image_ids()}.isdisjoint(image_ids)]
        left = [tuple(one for one in frame.data if one[0] != CAMERA or one[2] in image_ids) for frame in kept]
        frames = tuple(replace(frame, data=data) for frame, data in zip(kept, left, strict=True))
        used = {frame.rig_id for frame in kept}
        return Rigs(tuple(rig for rig in self.rigs if rig.id in used), frames)

    def camera_ids(self) -> set[int]:
        """Return the ids of the cameras that are sensors of a rig."""
        return {number for rig in self.rigs for (kind, number), _ in rig.sensors if kind == CAMERA}

    def misfit(self, images: Iterable[Image], cameras: Collection[int]) -> str:
        """Return why rigs and frames do not fit a model, in words; empty if they fit.

        Args:
            images: all images of the model.
            cameras: ids of the model's cameras.
        """
        known = {rig.id: {sensor for sensor, _ in rig.sensors} for rig in self.rigs}
        data = [(datum, sensor) for frame in self.frames for kind, sensor, datum in frame.data if kind == CAMERA]
        if len(known) != len(self.rigs) or len({frame.id for frame in self.frames}) != len(self.frames):
            return "two rigs or frames share an id"
        for frame in self.frames:
            if not {one[:2] for one in frame.data} <= known.get(frame.rig_id, set()):
                return f"frame {frame.id} has sensors that rig {frame.rig_id} lacks"
        if sorted(data) != sorted((image.id, image.camera_id) for image in images):
            return "the images that frames name are not the images of the model"
        return "" if self.camera_ids() <= set(cameras) else "a rig has cameras that the model lacks"


def read_rigs(sparse: Path) -> Rigs | None:
    """Return the rigs and frames of the model in a folder; None if it has neither file in its format (.bin or .txt).

    Raises:
        ModelError: one file exists without the other, or the folder holds no complete model; or a file cannot be read,
            is damaged or larger than `MOST_MIB`.
    """
    suffix = choose_format(sparse)
    paths = [sparse / f"{name}.{suffix}" for name in ("rigs", "frames")]
    there = [path for path in paths if path.exists()]
    if not there:
        return None
    if len(there) == 1:
        raise ModelError(there[0], "rigs and frames belong together, but one file is missing")
    form = _TextEntries if suffix == "txt" else _BinaryEntries
    return Rigs(*(_whole(path, read, form) for path, read in zip(paths, (_rigs, _frames), strict=True)))


def rigs_of(sparse: Path) -> Rigs | None:
    """Return the rigs and frames of the model in a folder; None if there are none, or they cannot be read.

    Such files raise no error: the audit reports them.
    """
    with contextlib.suppress(SceneError):
        return read_rigs(sparse)
    return None


def _whole(path: Path, read: Callable[[Entries], Iterator[Any]], form: type[Entries]) -> tuple[Any, ...]:
    try:
        return tuple(read(form(path)))
    except (struct.error, ValueError, IndexError, KeyError) as error:
        raise ModelError(path, f"cut short or damaged ({error})") from error


def rigs_bytes(rigs: Rigs) -> bytes:
    """Return the content of rigs.bin for these rigs, in COLMAP's format.

    Raises:
        struct.error: a number does not fit into the format, as a negative id from a text file.
    """
    parts = [_COUNT.pack(len(rigs.rigs))]
    for rig in rigs.rigs:
        parts.append(_PAIR.pack(rig.id, len(rig.sensors)))
        for index, (sensor, pose) in enumerate(rig.sensors):
            parts.append(_SENSOR.pack(*sensor))
            if index:
                parts.append(struct.pack("<B", pose is not None) + (_POSE.pack(*pose) if pose else b""))
    return b"".join(parts)


def frames_bytes(rigs: Rigs) -> bytes:
    """Return the content of frames.bin for the frames of these rigs, in COLMAP's format.

    Raises:
        struct.error: a number does not fit into the format, as a negative id from a text file.
    """
    parts = [_COUNT.pack(len(rigs.frames))]
    for frame in rigs.frames:
        parts.append(_PAIR.pack(frame.id, frame.rig_id) + _POSE.pack(*frame.pose) + struct.pack("<I", len(frame.data)))
        parts += [_DATUM.pack(*datum) for datum in frame.data]
    return b"".join(parts)


class _BinaryEntries:
    """Reads the entries of a binary file in order."""

    def __init__(self, path: Path) -> None:
        with opened(path, MOST_MIB) as (file, _):
            self._data = file.read()
        self._at, self._path = 0, path

    def take(self, form: str) -> tuple[Any, ...]:
        """Return the next values, whose types are given as in `struct`."""
        found = struct.unpack_from(f"<{form}", self._data, self._at)
        self._at += struct.calcsize(f"<{form}")
        return found

    def __iter__(self) -> Iterator[_BinaryEntries]:
        for _ in range(self.take("Q")[0]):
            yield self
        if self._at != len(self._data):
            raise ModelError(self._path, f"damaged: the entries take {self._at} bytes, the file has {len(self._data)}")


class _TextEntries:
    """Reads the entries of a text file, one per line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._words: Iterator[str] = iter(())

    def take(self, form: str) -> tuple[Any, ...]:
        """Return the next values, whose types are given as in `struct`; a sensor's type is read from its name."""
        types = form[-1] * int(form[:-1] or 1) if form[:-1].isdecimal() or len(form) == 1 else form
        return tuple(_OF_WORD[one](next(self._words, "")) for one in types)

    def __iter__(self) -> Iterator[_TextEntries]:
        with opened(self._path, MOST_MIB) as (file, _):
            for line in file:
                if line.strip() and not line.startswith(b"#"):
                    self._words = iter(line.decode().split())
                    yield self


Entries = _BinaryEntries | _TextEntries


def _rigs(entries: Entries) -> Iterator[Rig]:
    for entry in entries:
        number, num_sensors = entry.take("II")
        sensors = []
        for index in range(num_sensors):
            kind, sensor = entry.take("iI")
            has_pose = bool(index) and bool(entry.take("B")[0])
            sensors.append(((kind, sensor), entry.take("7d") if has_pose else None))
        yield Rig(number, tuple(sensors))


def _frames(entries: Entries) -> Iterator[RigFrame]:
    for entry in entries:
        number, rig = entry.take("II")
        pose = entry.take("7d")
        data = [entry.take("iIQ") for _ in range(entry.take("I")[0])]
        yield RigFrame(number, rig, pose, tuple((kind, sensor, datum) for kind, sensor, datum in data))
