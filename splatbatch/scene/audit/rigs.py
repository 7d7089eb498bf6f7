"""rigs and frames, the two files that COLMAP writes since 3.12: both or neither, and whole."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from splatbatch.scene.audit.findings import Finding, Sink
from splatbatch.scene.colmap.files import ModelError, choose_format, opened, shown
from splatbatch.scene.colmap.rigs import MOST_MIB

_COUNT, _PAIR, _SENSOR = struct.Struct("<Q"), struct.Struct("<II"), struct.Struct("<iI")
_POSE, _DATA = 7 * 8, 16  # bytes: quaternion and translation; sensor type, sensor id, data id
_REMEDY = "Delete rigs and frames together (COLMAP makes trivial ones), or copy both again from the source."


def check_rigs(sparse: Path, scribe: Sink) -> Iterator[Finding]:
    """Yield what keeps COLMAP from reading rigs and frames; poses are read from images and do not need them."""
    suffix = choose_format(sparse)
    paths = [path for path in (sparse / f"rigs.{suffix}", sparse / f"frames.{suffix}") if path.exists()]
    if len(paths) == 1:
        yield scribe.note("broken_rigs", paths[0].name, "rigs and frames: one is there without the other", _REMEDY)
        return
    for path in paths:
        try:
            _walk(path)
        except ModelError as error:
            yield scribe.note("broken_rigs", shown(path.name), shown(error.what), _REMEDY)


def _walk(path: Path) -> None:
    with opened(path, MOST_MIB) as (file, size):
        data = file.read() if path.suffix == ".bin" else b""
    if path.suffix != ".bin":
        return
    skip, offset = (_skip_rig if path.stem == "rigs" else _skip_frame), _COUNT.size
    try:
        for _ in range(min(_COUNT.unpack_from(data)[0], size)):
            offset = skip(data, offset)
    except struct.error as error:
        raise ModelError(path, f"cut or garbage: ends inside an entry at byte {offset} of {size}") from error
    if offset != size:
        raise ModelError(path, f"cut or garbage: its entries take {offset} bytes, the file has {size}")


def _skip_rig(data: bytes, offset: int) -> int:
    _, num_sensors = _PAIR.unpack_from(data, offset)
    offset += _PAIR.size + (_SENSOR.size if num_sensors else 0)  # the reference sensor has no pose
    for _ in range(num_sensors - 1):
        _SENSOR.unpack_from(data, offset)
        (has_pose,) = struct.unpack_from("<B", data, offset + _SENSOR.size)
        offset += _SENSOR.size + 1 + (_POSE if has_pose else 0)
    return offset


def _skip_frame(data: bytes, offset: int) -> int:
    (num_data,) = struct.unpack_from("<I", data, offset + _PAIR.size + _POSE)
    return offset + _PAIR.size + _POSE + 4 + _DATA * int(num_data)
