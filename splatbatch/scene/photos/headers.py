"""What a photograph's header says: size, orientation, oddities; pixels are decoded only where a file looks cut."""

from __future__ import annotations

import errno
import os
import stat
import struct
from pathlib import Path

from splatbatch.files import open_regular
from splatbatch.scene.photos.other_formats import decode_problem, read_other
from splatbatch.scene.photos.photo import Header, Photo, Trait, Unreadable

_JPEG, _PNG, _LFS = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"version https://git-lfs"
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
_CHUNK = 4096  # bytes: the head of most files that have no thumbnail in them
_TAIL = 32  # bytes: some cameras pad with zeros behind the end marker
_NO_FRAME = frozenset({0xC4, 0xC8, 0xCC})  # DHT, JPG, DAC share the range of the frame markers (ITU T.81, table B.1)
_ORIENTATION = 0x0112


class _Bad(Exception):
    """The bytes are not what the format demands."""


def read_known(path: str | Path, status: os.stat_result) -> Header:
    """Return the header of a file whose status is known.

    Raises:
        OSError: it cannot be opened or read.
    """
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for ever
        return Unreadable("unreadable", "not a regular file")
    if status.st_size == 0:
        return Unreadable("empty", "0 bytes")
    with open_regular(path) as file:
        window = _Window(file.fileno(), status.st_size)
        try:
            return _read(path, window)
        except (_Bad, struct.error) as error:
            return Unreadable("truncated" if window.beyond else "unreadable", str(error) or "the header is cut")


def unreadable(error: OSError) -> Unreadable:
    """Return the fault that an error of the system amounts to."""
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        return Unreadable("missing", "no such file")
    if error.errno == errno.ELOOP:
        return Unreadable("unreadable", "its symbolic links run in a circle")
    if error.errno in {errno.EACCES, errno.EPERM}:
        return Unreadable("unreadable", "no permission to read it")
    return Unreadable("unreadable", error.strerror or str(error))


class _Window:
    """A file seen through one buffer that moves only when bytes outside it are wanted."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor, self.size, self.beyond = descriptor, size, False
        self.start, self.data = 0, os.pread(descriptor, _CHUNK, 0)

    def take(self, at: int, count: int) -> bytes:
        """Return `count` bytes from position `at`; fewer exist only in a cut file."""
        if at < self.start or at + count > self.start + len(self.data):
            if at + count > self.size:
                self.beyond = True
                raise _Bad(f"ends inside its header ({self.size} bytes)")
            self.start, self.data = at, os.pread(self.descriptor, max(_CHUNK, count), at)
        offset = at - self.start
        return self.data[offset : offset + count]

    def tail(self) -> bytes:
        """Return the last bytes without padding."""
        return os.pread(self.descriptor, _TAIL, max(0, self.size - _TAIL)).rstrip(b"\0")


def _read(path: str | Path, window: _Window) -> Header:
    if window.data.startswith(_JPEG):
        photo, is_whole = _read_jpeg(window), window.tail().endswith(b"\xff\xd9")
    elif window.data.startswith(_PNG):
        photo, is_whole = _read_png(window), window.tail().endswith(_PNG_END)
    elif window.data.startswith(_LFS):
        return Unreadable("unreadable", "a git-lfs pointer, not the photograph (git lfs pull)")
    else:
        return read_other(Path(path))
    # A file may go on behind its end (panoramas, motion photographs): only decoding tells those from cut ones.
    problem = "" if is_whole else decode_problem(Path(path))
    return Unreadable("truncated", problem) if problem else photo


def _read_jpeg(window: _Window) -> Photo:
    at, orientation = 2, 1
    while True:
        lead, marker = window.take(at, 2)
        if lead != 0xFF:
            raise _Bad(f"no JPEG marker at byte {at}")
        if marker == 0xFF:  # fill bytes may stand before a marker
            at += 1
            continue
        if marker in {0xD9, 0xDA}:
            raise _Bad("the JPEG has no frame header")
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            return _jpeg_frame(window.take(at + 4, 6), orientation)
        length = int.from_bytes(window.take(at + 2, 2), "big")
        if marker == 0xE1 and length >= 16 and window.take(at + 4, 6) == b"Exif\0\0":
            orientation = exif_orientation(window, at + 10) or orientation
        at += 2 + max(length, 2)


def _jpeg_frame(frame: bytes, orientation: int) -> Photo:
    precision, height, width, components = struct.unpack(">BHHB", frame)
    traits: list[Trait] = ["cmyk"] if components == 4 else []
    return Photo(*_sides(width, height), orientation, tuple(traits + (["deep"] if precision > 8 else [])))


def _read_png(window: _Window) -> Photo:
    width, height, depth, colour = struct.unpack(">IIBB", window.take(16, 10))
    found: dict[Trait, bool] = {"deep": depth > 8, "alpha": colour in {4, 6}}
    at, orientation = 8, 1
    while True:
        length, name = struct.unpack(">I4s", window.take(at, 8))
        if name in {b"IDAT", b"IEND"}:
            break
        found["alpha"] |= name == b"tRNS"
        found["animated"] = found.get("animated", False) or name == b"acTL"
        if name == b"eXIf":
            orientation = exif_orientation(window, at + 8) or orientation
        at += 12 + length
    return Photo(*_sides(width, height), orientation, tuple(trait for trait, is_so in found.items() if is_so))


def exif_orientation(window: _Window, start: int) -> int:
    """Return the orientation (1 to 8) that the TIFF block at `start` holds in its first directory; 0 if none."""
    try:
        order = {b"II": "<", b"MM": ">"}[window.take(start, 2)]
        directory = start + struct.unpack(order + "I", window.take(start + 4, 4))[0]
        (count,) = struct.unpack(order + "H", window.take(directory, 2))
        entries = window.take(directory + 2, 12 * min(count, 512))
    except (KeyError, _Bad):  # a broken EXIF block does not spoil the photograph
        window.beyond = False
        return 0
    for tag, value in struct.iter_unpack(order + "H6xHxx", entries):
        if tag == _ORIENTATION:
            return int(value) if 1 <= value <= 8 else 0
    return 0


def _sides(width: int, height: int) -> tuple[int, int]:
    if not (width and height):
        raise _Bad(f"its header says {width}x{height} pixels")
    return width, height
