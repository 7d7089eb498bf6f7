"""Headers of photographs: size, orientation, traits (as 16 bits or alpha) and exposure.

Also how the size of a photograph relates to that of its camera. When the header of a JPEG or PNG is read, pixels are
decoded only if the file looks truncated.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import math
import os
import stat
import struct
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from splatbatch.caches import make_cache
from splatbatch.fields import whole_number
from splatbatch.files import MIB, open_regular, read_json, write_text

if TYPE_CHECKING:
    from PIL import Image

P = TypeVar("P", bound=str | Path)
Trait = Literal["cmyk", "deep", "alpha", "animated"]
MOST_PHOTO_BYTES = 8192 * MIB
"""Largest file in bytes that is opened as a photograph; the largest aerial cameras write 3 GiB uncompressed."""
MOST_PIXELS = 1 << 30
"""Most pixels of a photograph that is opened: as RGB 3 GiB of memory. A header of 30 bytes can claim far more."""
_HEIC_BRANDS = {b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"heim", b"heis"}
DEEP_MODES = {"I", "F", "I;16", "I;16B", "I;16L", "I;16N"}
_MOST_OF_16_BITS, _NO_WHITE = 65535, "32 bits per channel, in which white is unknown: save the photograph with 8 or 16"
_ALPHA_MODES = {"RGBA", "LA", "PA", "RGBa", "La"}
_STRIPS = ((273, 279), (324, 325))  # TIFF 6.0: offsets and byte counts of strips, of tiles
_JPEG, _PNG, _LFS = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"version https://git-lfs"
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
_CHUNK = 4096  # bytes: the head of most files that have no thumbnail in them
_TAIL = 32  # bytes: some cameras pad with zeros behind the end marker
_NO_FRAME = frozenset({0xC4, 0xC8, 0xCC})  # DHT, JPG, DAC share the range of the frame markers (ITU T.81, table B.1)
_ORIENTATION = 0x0112
_VERSION = 1  # raise it when headers are read differently: older caches are then ignored
_AT_ONCE = 64  # files per task: handing over single files costs more than reading them
THREADS = 8  # enough to hide the waiting of network file systems; parsing itself holds the interpreter's lock
Known = dict[str, list[Any]]
"""Cached headers by path: [size in bytes, mtime in ns, width, height, orientation, traits]."""


@contextmanager
def opened_photograph(path: str | Path) -> Iterator[Image.Image]:
    """Yield a photograph or mask as a Pillow image, without decoding its pixels; the file is closed after the block.

    Raises:
        OSError: the file cannot be opened, is not a regular file, or exceeds `MOST_PHOTO_BYTES` or `MOST_PIXELS`.
        Exception: errors of Pillow's plug-ins for files that are not photographs.
    """
    from PIL import Image

    if not str(path).lower().endswith((".jpg", ".jpeg", ".png")):
        Image.init()  # a file that Pillow opens while another thread registers readers may miss its own
    Image.MAX_IMAGE_PIXELS = None  # survey cameras do have more pixels than Pillow's "bomb" limit; ours is below
    with open_regular(path, MOST_PHOTO_BYTES) as file, Image.open(file) as image:
        if image.width * image.height > MOST_PIXELS:
            sides = f"{image.width}x{image.height} pixels are too many: at most {MOST_PIXELS:,} are decoded"
            raise OSError(errno.EFBIG, sides, str(path))
        yield image


def pixels_of(image: Image.Image, mode: Literal["RGB", "L"] = "RGB") -> Image.Image:
    """Return an opened photograph or mask with 8 bits per channel; code that reads pixels should use this function.

    Of 16 bits the upper 8 are kept; Pillow would cut values at 255 and make the photograph white. Alpha is dropped.
    Palettes, CMYK and other colours become RGB or grey as Pillow converts them. EXIF orientation is not applied, except
    to a TIFF, by Pillow.

    Args:
        image: image that `opened_photograph` yields.
        mode: `RGB` for three channels, `L` for grey.

    Raises:
        ValueError: the pixels are floats, or integers below 0 or above 65535, whose value for white is unknown.
        Exception: errors of Pillow's plug-ins for damaged files.
    """
    import numpy as np
    from PIL import Image

    if image.mode in DEEP_MODES:
        values = np.asarray(image)
        if image.mode == "F" or values.min() < 0 or values.max() > _MOST_OF_16_BITS:
            raise ValueError(_NO_WHITE)
        image = Image.fromarray((values >> 8).astype(np.uint8))
    return image.convert(mode)


@dataclass(frozen=True)
class ImageHeader:
    """Header of a photograph: width and height in pixels, EXIF orientation, and traits.

    `orientation` is 1 to 8, 1 if the file has none or a faulty one. For JPEG, PNG and WebP it is not applied to the
    size; to that of a TIFF Pillow applies it. `traits` are CMYK colours, more than 8 bits per channel (`deep`),
    transparency (`alpha`), and several pictures (`animated`).
    """

    width: int
    height: int
    orientation: int = 1
    traits: tuple[Trait, ...] = ()

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, as stored; of a TIFF after its orientation is applied."""
        return self.width, self.height


@dataclass(frozen=True)
class Unreadable:
    """A photograph that cannot be used: the kind of fault, and why in words, as "0 bytes".

    `truncated` is a file that was cut off, or has damaged pixels and no end; `unreadable` is any fault but the others.
    """

    fault: Literal["missing", "empty", "truncated", "unreadable"]
    what: str


Header = ImageHeader | Unreadable


def read_other(path: Path) -> Header:
    """Return the header of a TIFF, WebP, HEIC or other file that Pillow reads; a damaged file gives `Unreadable`.

    So do files of no known format or beyond the limits of `opened_photograph`, pixels that are floats, and HEIC without
    the package pillow_heif.

    Raises:
        OSError: the file cannot be opened or read.
    """
    with open_regular(path) as file:
        head = file.read(16)
    if head[4:8] == b"ftyp" and head[8:12] in _HEIC_BRANDS and not _has_heif():
        return Unreadable("unreadable", "HEIC needs a further package: pip install pillow-heif")
    if head[:4] == b"RIFF" and int.from_bytes(head[4:8], "little") + 8 > path.stat().st_size:
        return Unreadable("truncated", "the RIFF header claims more bytes than the file has")
    try:
        with opened_photograph(path) as image:
            if image.mode == "F":
                return Unreadable("unreadable", _NO_WHITE)
            if problem := _strip_problem(path, image):
                return Unreadable("truncated", problem)
            # a TIFF's size is that after its orientation is applied, as Pillow does when it loads
            orientation = image.getexif().get(_ORIENTATION, 1)
            bits = (getattr(image, "tag_v2", None) or {}).get(258, 8)  # Pillow reduces 16-bit RGB of a TIFF silently
            checks: dict[Trait, bool] = {
                "cmyk": image.mode == "CMYK",
                "deep": image.mode in DEEP_MODES or max(bits if isinstance(bits, tuple) else (bits,)) > 8,
                "alpha": image.mode in _ALPHA_MODES or "transparency" in image.info,
                "animated": getattr(image, "n_frames", 1) > 1,
            }
            traits = tuple(trait for trait, is_so in checks.items() if is_so)
            return ImageHeader(*image.size, orientation if orientation in range(1, 9) else 1, traits)
    except Exception as error:  # noqa: BLE001 - Pillow's plug-ins raise whatever the bytes lead them to
        return Unreadable("unreadable", _spoken(error))


def decode_problem(path: Path) -> str:
    """Return why the pixels of a photograph cannot be decoded, in words; empty if they can. Raises nothing."""
    try:
        with opened_photograph(path) as image:
            pixels_of(image)
    except Exception as error:  # noqa: BLE001 - see read_other
        return _spoken(error)
    return ""


def _has_heif() -> bool:
    with contextlib.suppress(ImportError):
        importlib.import_module("pillow_heif").register_heif_opener()
        return True
    return False


def _strip_problem(path: Path, image: Any) -> str:
    tags, size = getattr(image, "tag_v2", None) or {}, path.stat().st_size
    for offsets, counts in _STRIPS:
        for offset, count in zip(tags.get(offsets, ()), tags.get(counts, ()), strict=False):
            if offset + count > size:
                return f"the pixels end at byte {offset + count}, but the file has only {size} bytes"
    return ""


def _spoken(error: Exception) -> str:
    text = str(error).split("\n")[0]
    return "no image format that Pillow knows" if "cannot identify" in text else text or type(error).__name__


class _Bad(Exception):
    """Error: the bytes do not follow the file format."""


def read_known(path: str | Path, status: os.stat_result) -> Header:
    """Return the header of a photograph; a file that cannot be used gives `Unreadable`.

    As an empty or damaged file, a git-lfs pointer, a folder, a pipe or device, and what `read_other` refuses.

    Args:
        path: path of the file.
        status: result of os.stat for the file.

    Raises:
        OSError: the file cannot be opened or read.
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


_FAULTS: Mapping[int | None, Unreadable] = {
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), Unreadable("missing", "no such file")),
    **dict.fromkeys((errno.EACCES, errno.EPERM), Unreadable("unreadable", "no permission to read it")),
    errno.ELOOP: Unreadable("unreadable", "the symbolic links run in a circle"),
}


def unreadable(error: OSError) -> Unreadable:
    """Return the fault of a photograph whose opening or reading raised an operating system error.

    It is `missing` if there is no such file or folder, else `unreadable`.
    """
    return _FAULTS.get(error.errno, Unreadable("unreadable", error.strerror or str(error)))


class _Window:
    """A file read through one buffer that moves only when bytes outside it are needed."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor, self.size, self.beyond = descriptor, size, False
        self.start, self.data = 0, os.pread(descriptor, _CHUNK, 0)

    def take(self, at: int, count: int) -> bytes:
        """Return `count` bytes from position `at`.

        Raises:
            _Bad: the file ends before.
        """
        if at < self.start or at + count > self.start + len(self.data):
            if at + count > self.size:
                self.beyond = True
                raise _Bad(f"the file ends inside its header ({self.size} bytes)")
            self.start, self.data = at, os.pread(self.descriptor, max(_CHUNK, count), at)
        offset = at - self.start
        return self.data[offset : offset + count]

    def tail(self) -> bytes:
        """Return the last 32 bytes without trailing zeros."""
        return os.pread(self.descriptor, _TAIL, max(0, self.size - _TAIL)).rstrip(b"\0")


def _read(path: str | Path, window: _Window) -> Header:
    if window.data.startswith(_JPEG):
        photo, is_whole = _read_jpeg(window), window.tail().endswith(b"\xff\xd9")
    elif window.data.startswith(_PNG):
        photo, is_whole = _read_png(window), window.tail().endswith(_PNG_END)
    elif window.data.startswith(_LFS):
        return Unreadable("unreadable", "a git-lfs pointer instead of the photograph: run git lfs pull")
    else:
        return read_other(Path(path))
    # A file may have data after its end (panoramas, motion photographs): only decoding tells it from a cut one.
    problem = "" if is_whole else decode_problem(Path(path))
    return Unreadable("truncated", problem) if problem else photo


def _read_jpeg(window: _Window) -> ImageHeader:
    at, orientation = 2, 1
    while True:
        lead, marker = window.take(at, 2)
        if lead != 0xFF:
            raise _Bad(f"there is no JPEG marker at byte {at}")
        if marker == 0xFF:  # fill bytes may stand before a marker
            at += 1
            continue
        if marker in {0xD9, 0xDA}:
            raise _Bad("the JPEG has no frame header")
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            precision, height, width, components = struct.unpack(">BHHB", window.take(at + 4, 6))
            traits: list[Trait] = ["cmyk"] if components == 4 else []
            return ImageHeader(*_sides(width, height), orientation, tuple(traits + (["deep"] if precision > 8 else [])))
        length = int.from_bytes(window.take(at + 2, 2), "big")
        if marker == 0xE1 and length >= 16 and window.take(at + 4, 6) == b"Exif\0\0":
            orientation = exif_orientation(window, at + 10) or orientation
        at += 2 + max(length, 2)


def _read_png(window: _Window) -> ImageHeader:
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
    return ImageHeader(*_sides(width, height), orientation, tuple(trait for trait, is_so in found.items() if is_so))


def exif_orientation(window: _Window, start: int) -> int:
    """Return the EXIF orientation (1 to 8) of a JPEG or PNG; 0 if there is none or another number, or the EXIF block
    is broken.

    Args:
        window: the opened file.
        start: position in bytes of the TIFF header of the EXIF block.
    """
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
        raise _Bad(f"the header says {width}x{height} pixels")
    return width, height


class Headers:
    """Reads headers of photographs, each once, with a cache on disk.

    Args:
        cache: JSON file of the cache, in the cache folder of a batch; None: no cache. The file may be absent. If it is
            damaged, or of another version of the format, it is ignored. An entry counts while size and time of the
            photograph are the same.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = cache
        self._known = _load(cache)
        self._fresh: Known = {}
        self._headers: dict[str, Header] = {}

    def read(self, paths: Iterable[str]) -> None:
        """Read the headers of photographs that were not read yet, in threads; raises nothing for faulty files.

        A path with a character that no path can have, as NUL, is unreadable, too.
        """
        new = [path for path in dict.fromkeys(paths) if path not in self._headers]
        chunks = [new[start : start + _AT_ONCE] for start in range(0, len(new), _AT_ONCE)]
        if not chunks:
            return
        with warnings.catch_warnings(), ThreadPoolExecutor(THREADS, thread_name_prefix="headers") as pool:
            warnings.simplefilter("ignore")  # Pillow's: whatever matters about a file becomes its header
            read = chain.from_iterable(
                pool.map(lambda chunk: [_read_with_facts(path, self._known) for path in chunk], chunks)
            )
            for path, (header, entry) in zip(new, read, strict=True):
                self._headers[path] = header
                if entry and self._known.get(path) != entry:
                    self._fresh[path] = entry

    def of(self, path: str) -> Header:
        """Return the header of a photograph that `read` has read; `Unreadable` if it cannot be used.

        Raises:
            KeyError: the photograph was not read.
        """
        return self._headers[path]

    def keep(self) -> None:
        """Write new headers to the cache file, whole or not at all; nothing without a cache or new headers.

        Raises nothing if the file cannot be written.
        """
        if self._cache and self._fresh:
            with contextlib.suppress(OSError, ValueError):
                make_cache(self._cache.parent)
                write_text(self._cache, json.dumps({"version": _VERSION, "photos": self._known | self._fresh}))


def headers_of(photographs: Iterable[P]) -> dict[P, Header]:
    """Return the headers of photographs by path, without a cache; files that cannot be used have `Unreadable`."""
    headers, paths = Headers(), [*photographs]
    headers.read(map(str, paths))
    return {path: headers.of(str(path)) for path in paths}


def sizes_of(photographs: Iterable[P]) -> dict[P, tuple[int, int]]:
    """Return width and height in pixels, by path, of the photographs whose headers can be read; others are left out."""
    return {path: header.size for path, header in headers_of(photographs).items() if isinstance(header, ImageHeader)}


def _read_with_facts(path: str, known: Known) -> tuple[Header, list[Any] | None]:
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path per photograph would double the time
        entry = known.get(path)
        if entry and entry[:2] == [status.st_size, status.st_mtime_ns]:
            width, height, orientation, traits = entry[2:]
            return ImageHeader(width, height, orientation, tuple(traits)), entry
        header = read_known(path, status)
    except OSError as error:
        return unreadable(error), None
    except ValueError as error:  # of os.stat: a character that no path can have
        return Unreadable("unreadable", str(error)), None
    if not isinstance(header, ImageHeader):  # a fault is looked at again each time: it may be mended without a trace
        return header, None
    stamp = [status.st_size, status.st_mtime_ns]
    return header, [*stamp, header.width, header.height, header.orientation, list(header.traits)]


def _load(cache: Path | None) -> Known:
    record = read_json(cache) if cache else None
    if not record or record.get("version") != _VERSION or not isinstance(record.get("photos"), dict):
        return {}
    return {
        path: entry
        for path, entry in record["photos"].items()
        if isinstance(entry, list)
        and len(entry) == 6
        and all(whole_number(number) is not None for number in entry[:5])
        and isinstance(entry[5], list)
        and all(isinstance(trait, str) for trait in entry[5])
    }


EXIF_TAGS = 0x8769
"""Tag of the EXIF directory in which the camera's settings stand (CIPA DC-008, Exif 2.32, 4.6.3)."""
_TIME, _F_NUMBER, _ISO = 0x829A, 0x829D, 0x8827  # the same, 4.6.5


@dataclass(frozen=True)
class Exposure:
    """Exposure of a photograph from its EXIF: time in s, aperture as f-number, and ISO sensitivity; 0: unknown."""

    time_s: float = 0.0
    f_number: float = 0.0
    iso: float = 0.0

    @property
    def logarithm(self) -> float:
        """Natural logarithm of the light on the sensor times its gain; NaN if time or sensitivity is unknown.

        Only differences between photographs mean anything. An unknown aperture counts as f/1: it is then the same for
        all photographs of the lens.
        """
        if not (self.time_s and self.iso):
            return math.nan
        return math.log(self.time_s * self.iso) - 2 * math.log(self.f_number or 1.0)


def read_exposure(path: Path) -> Exposure:
    """Return the exposure of a photograph; zeros for an unreadable file or broken EXIF. Raises nothing."""
    try:
        with opened_photograph(path) as file:
            told = file.getexif().get_ifd(EXIF_TAGS)
        return Exposure(_positive(told.get(_TIME)), _positive(told.get(_F_NUMBER)), _positive(told.get(_ISO)))
    except Exception:  # noqa: BLE001 - Pillow's plug-ins raise whatever the bytes lead them to
        return Exposure()


def _positive(value: Any) -> float:
    """Return a number above 0; 0 for anything else, as a fraction over 0, an empty field, or text."""
    first = value[0] if isinstance(value, tuple) and value else value
    try:
        number = float(first)
    except (TypeError, ValueError, ArithmeticError):
        return 0.0
    return number if 0 < number < math.inf else 0.0


Size = tuple[int, int]
"""Width and height in pixels."""
FEW_PX = 4
"""Largest difference of a side, in pixels, that may be rounding or a crop; the sizes alone do not tell which."""
_FEW_SHARE = 0.1  # of the side: 4 px of a thumbnail are not few
_WORDS = {2: "a half", 3: "a third", 4: "a quarter", 8: "an eighth", 16: "a sixteenth"}


@dataclass(frozen=True)
class SameSize:
    """The photograph has the width and height of its camera."""


@dataclass(frozen=True)
class ScaledSize:
    """Both sides of the photograph are `factor` times those of its camera, rounded to a whole pixel."""

    factor: float


@dataclass(frozen=True)
class NearSize:
    """The photograph is its camera's size times `factor`, but for a few pixels.

    `off` is the rest in x and y, at most 4 px and a tenth of the side; negative: pixels are missing.
    """

    factor: float
    off: Size


@dataclass(frozen=True)
class TransposedSize:
    """The photograph has width and height of its camera exchanged, and then scaled by `factor`."""

    factor: float


@dataclass(frozen=True)
class ShapeMismatch:
    """The photograph has another shape than its camera: it was cropped, padded, stretched, or is of another camera."""


Relation = SameSize | ScaledSize | NearSize | TransposedSize | ShapeMismatch


def relate(camera: Size, photo: Size) -> Relation:
    """Return how the size of a photograph relates to that of its camera.

    The first of these that holds: the same; exchanged; a few pixels off (`NearSize` of factor 1); scaled; exchanged and
    scaled; scaled and a few pixels off. Else `ShapeMismatch`.

    Args:
        camera: width and height of the camera in pixels, above 0.
        photo: width and height of the photograph in pixels, above 0.
    """
    turned = (camera[1], camera[0])
    if photo == camera:
        return SameSize()
    if photo == turned:
        return TransposedSize(1.0)
    if _is_few(camera, photo):
        return NearSize(1.0, (photo[0] - camera[0], photo[1] - camera[1]))
    if (factor := uniform_factor(camera, photo)) is not None:
        return ScaledSize(factor)
    if (factor := uniform_factor(turned, photo)) is not None:
        return TransposedSize(factor)
    return _scaled_and_few(camera, photo)


def uniform_factor(camera: Size, photo: Size) -> float | None:
    """Return the factor from the camera's size to the photograph's, if one factor explains both sides; else None.

    Each side may be rounded up or down to a pixel. 1/2, 1/3, 1/4, 1/8 and 1/16 are preferred.

    Args:
        camera: width and height of the camera in pixels, above 0.
        photo: width and height of the photograph in pixels.
    """
    low = max((photo[axis] - 1) / camera[axis] for axis in (0, 1))
    high = min((photo[axis] + 1) / camera[axis] for axis in (0, 1))
    if low >= high:
        return None
    for divisor in _WORDS:
        if low < 1 / divisor < high:
            return 1 / divisor
    return (photo[0] / camera[0] + photo[1] / camera[1]) / 2


def spell_factor(factor: float) -> str:
    """Return a scale factor (above 0) in words: "images_4, a quarter", "2 times as large" or "37.5 % of the size"."""
    divisor = round(1 / factor)
    if divisor > 1 and abs(1 / factor - divisor) < 1e-9:
        return f"images_{divisor}, {_WORDS.get(divisor, f'1/{divisor}')}"
    if factor > 1:
        return f"{factor:.4g} times as large"
    return f"{100 * factor:.4g} % of the size"


def size_text(size: Size) -> str:
    """Return width and height in pixels as text: "1548x1357"."""
    return f"{size[0]}x{size[1]}"


def _is_few(expected: tuple[float, float], photo: Size) -> bool:
    return all(abs(photo[axis] - expected[axis]) <= min(FEW_PX, _FEW_SHARE * expected[axis]) for axis in (0, 1))


def _scaled_and_few(camera: Size, photo: Size) -> Relation:
    for axis in (0, 1):
        divisor = round(camera[axis] / photo[axis])
        factor = (
            1 / divisor if divisor and abs(camera[axis] / divisor - photo[axis]) < 1 else photo[axis] / camera[axis]
        )
        expected = (camera[0] * factor, camera[1] * factor)
        if _is_few(expected, photo):
            return NearSize(factor, (round(photo[0] - expected[0]), round(photo[1] - expected[1])))
    return ShapeMismatch()
