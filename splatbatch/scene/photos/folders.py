"""Where photographs and their masks lie: every folder is listed once, a name that differs only in case is found."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class Found:
    """The file is there."""

    path: str


@dataclass(frozen=True)
class Misspelt:
    """A file is there whose name differs in the case of letters, or in how accents are encoded."""

    actual: str
    """Path below the folder of photographs."""


@dataclass(frozen=True)
class Absent:
    """There is no such file; `similar` has the same stem and another suffix, empty if there is none."""

    similar: str = ""


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
        return Misspelt(actual) if actual else Absent(self._similar(names, name))

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

    def _similar(self, names: frozenset[str], name: str) -> str:
        stem = PurePosixPath(name).stem
        return next((known for known in sorted(names) if PurePosixPath(known).stem == stem), "") if names else ""


def is_folder(path: Path) -> bool:
    """Return whether a folder is there and can be reached."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises where there is no permission


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
