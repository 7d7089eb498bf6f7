"""Where photographs and their masks lie: every folder is listed once, a name that differs only in case is found."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PHOTOGRAPHS = frozenset({".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".heic", ".bmp"})
"""Suffixes of photographs, in small letters."""

MASK_COUNTS = 128
"""Masks: what is darker is ignored. COLMAP ignores 0 alone, but masks are resized and saved as JPEG by then."""


@dataclass(frozen=True)
class Found:
    """The file is there."""

    path: str


@dataclass(frozen=True)
class Misspelt:
    """A file is there whose name differs in the case of letters, or in how accents are encoded."""

    actual: str
    """Path below the folder of photographs."""

    in_form: str = ""
    """The Unicode form of the name in the model, NFC or NFD, if only the encoding of accents differs; else empty."""


@dataclass(frozen=True)
class Absent:
    """There is no such file."""

    similar: str = ""
    """One of the same stem and another suffix; empty if there is none."""
    elsewhere: str = ""
    """Where it lies if its folders are spelt otherwise: left_01.jpg or 01.jpg for left/01.jpg; empty if nowhere."""


Place = Found | Misspelt | Absent


class Folders:
    """Listings of folders, each read once."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str] | None] = {}
        self._folded: dict[str, dict[str, str]] = {}

    def locate(self, root: Path, name: str) -> Place:
        """Return where the photograph `name` lies below `root`."""
        parent, _, base = name.rpartition("/")
        folder = str(root / parent) if parent else str(root)
        names = self.names(folder)
        if names is None or base in names:  # a folder that may not be listed may still be entered
            return Found(f"{folder}/{base}")
        actual = self._misspelt(str(root), name)
        if actual:
            return Misspelt(actual, _form(name, actual))
        return Absent(self._similar(names, name), self._elsewhere(str(root), name))

    def names(self, folder: str) -> frozenset[str] | None:
        """Return the names in a folder; none if it does not exist, None if it may not be listed."""
        if folder not in self._names:
            try:
                self._names[folder] = frozenset(os.listdir(folder))  # noqa: PTH208 - names alone are wanted
            except (FileNotFoundError, NotADirectoryError):
                self._names[folder] = frozenset()
            except OSError:
                self._names[folder] = None
        return self._names[folder]

    def _misspelt(self, folder: str, name: str) -> str:
        actual = []
        for part in PurePosixPath(name).parts:
            if folder not in self._folded:
                self._folded[folder] = {_fold(known): known for known in sorted(self.names(folder) or ())}
            known = part if part in (self.names(folder) or ()) else self._folded[folder].get(_fold(part))
            if known is None:
                return ""
            actual.append(known)
            folder = f"{folder}/{known}"
        return "/".join(actual)

    def _elsewhere(self, root: str, name: str) -> str:
        flat = name.replace("\\", "/")
        base = flat.rpartition("/")[2]
        there = self.names(root) or frozenset()
        parent, _, last = flat.rpartition("/")
        if flat != name and last in (self.names(f"{root}/{parent}" if parent else root) or ()):
            return flat
        candidates = [flat.replace("/", mark) for mark in ("_", "-", "")] + [base]
        return next((each for each in candidates if each != name and each in there), "")

    def _similar(self, names: frozenset[str], name: str) -> str:
        stem = PurePosixPath(name).stem
        return next((known for known in sorted(names) if PurePosixPath(known).stem == stem), "") if names else ""


def is_folder(path: Path) -> bool:
    """Return whether a folder is there and can be reached."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises where there is no permission


def photographs_below(folder: Path) -> list[str]:
    """Return the photographs below a folder, sorted by their relative names; links to folders are not followed."""
    found = []
    for parent, _, files in os.walk(folder):
        prefix = Path(parent).relative_to(folder)
        found += [(prefix / file).as_posix() for file in files if Path(file).suffix.lower() in PHOTOGRAPHS]
    return sorted(found)


def _form(name: str, actual: str) -> str:
    """Return the Unicode form that a name is in, if it differs from another in that alone."""
    if unicodedata.normalize("NFC", name) != unicodedata.normalize("NFC", actual):
        return ""
    return "NFC" if unicodedata.is_normalized("NFC", name) else "NFD"


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def find_masks(folder: Path | None, names: Iterable[str]) -> dict[str, Path]:
    """Return the mask of every photograph that has one: photo.jpg.png as COLMAP names it, else photo.png."""
    if folder is None:
        return {}
    folders, masks = Folders(), {}
    for name in names:
        for candidate in (f"{name}.png", str(PurePosixPath(name).with_suffix(".png"))):
            place = folders.locate(folder, candidate)
            if isinstance(place, Found):
                masks[name] = Path(place.path)
                break
    return masks
