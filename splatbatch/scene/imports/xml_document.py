"""XML read without trust: no document type, no entities of its own, bounded in size and depth; lines are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from xml.parsers import expat

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.scene.colmap.files import opened
from splatbatch.scene.colmap.types import Floats

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

LARGEST_MIB = 256
MOST_LEVELS = 64
MOST_TOKEN_BYTES = 1 << 20
"""Of a tag with its attributes, or a comment: expat 2.5 takes a minute for 30 MB of one."""
_PIECE_BYTES = 1 << 16
_MIB = 1 << 20
_REMEDY = "Export it again: File > Export > Export Cameras, as Agisoft XML."


@dataclass(frozen=True, eq=False)
class Document:
    """An XML file: its root, and the line that each element begins in."""

    path: Path
    root: Element
    lines: dict[Element, int]

    def where(self, element: Element, name: str = "") -> str:
        """Return the place of an element as a mistake names it."""
        return f"line {self.lines.get(element, 0)}: {name or element.tag}"


def read_document(path: Path) -> Document:
    """Return an XML file.

    Raises:
        SceneError: it cannot be read, is cut, is none, or declares entities.
    """
    with opened(path) as (file, size):
        if size > LARGEST_MIB * _MIB:
            raise SceneError(f"{path}: {size // _MIB} MiB, more than the {LARGEST_MIB} MiB that are read", _REMEDY)
        builder = _Builder(path)
        try:
            builder.read(file)
        except (LookupError, ValueError) as error:  # Python's, of an encoding
            raise SceneError(f"{path}: its encoding is not read ({error})", f"{_REMEDY} It writes UTF-8.") from error
        except expat.ExpatError as error:
            what = expat.errors.messages[error.code]
            place = f"line {error.lineno}, column {error.offset + 1}"
            raise SceneError(f"{path}: {place}: {what}: no whole XML", _REMEDY) from error
    return Document(path, builder.tree.close(), builder.lines)


class _Builder:
    """Takes what expat finds; a document type ends it, so that there is no entity to expand or to fetch."""

    def __init__(self, path: Path) -> None:
        from xml.etree.ElementTree import TreeBuilder

        self._path, self._level = path, 0
        self.tree = TreeBuilder()
        self.lines: dict[Element, int] = {}
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.EntityDeclHandler = self._refuse
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self.tree.data

    def read(self, file: BinaryIO) -> None:
        """Take a file in pieces: expat looks at a token from its beginning whenever it gets a piece more of it."""
        taken = 0
        while piece := file.read(_PIECE_BYTES):
            self.parser.Parse(piece)
            taken += len(piece)
            if taken - self.parser.CurrentByteIndex > MOST_TOKEN_BYTES:
                what = (
                    f"line {self.parser.CurrentLineNumber}: a tag or a comment longer than {MOST_TOKEN_BYTES:,} bytes"
                )
                raise SceneError(f"{self._path}: {what}", _REMEDY)
        self.parser.Parse(b"", True)

    def _refuse(self, *_: object) -> None:
        what = f"line {self.parser.CurrentLineNumber}: declares a document type or an entity"
        raise SceneError(f"{self._path}: {what}, which is not read", _REMEDY)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._level += 1
        if self._level > MOST_LEVELS:
            raise SceneError(f"{self._path}: line {self.parser.CurrentLineNumber}: nested too deeply", _REMEDY)
        self.lines[self.tree.start(tag, attributes)] = self.parser.CurrentLineNumber

    def _end(self, tag: str) -> None:
        self._level -= 1
        self.tree.end(tag)


def numbers(element: Element | None, count: int) -> Floats | None:
    """Return the `count` finite numbers that an element holds; None where it holds something else."""
    if element is None:
        return None
    try:
        values = np.array((element.text or "").split(), dtype=np.float64)
    except ValueError:
        return None
    return values if values.shape == (count,) and np.isfinite(values).all() else None


def is_enabled(element: Element) -> bool:
    """Return whether a chunk or a camera counts; it does unless it is said not to."""
    return element.get("enabled", "true").strip().lower() not in ("false", "0")


def cameras_below(element: Element | None) -> Iterator[tuple[Element, str]]:
    """Yield every camera, those in groups too, with the label of its group."""
    for child in element if element is not None else ():
        if child.tag == "camera":
            yield child, ""
        elif child.tag == "group":
            yield from ((camera, child.get("label", "")) for camera, _ in cameras_below(child))
