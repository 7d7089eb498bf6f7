"""Finds photographs and their masks below folders; each folder is listed once, and misspelt names are recognised."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from splatbatch.errors import SceneError
from splatbatch.files import fault_of_name
from splatbatch.scene.photos.headers import ImageHeader, Size, headers_of, size_text

if TYPE_CHECKING:  # numpy, which `status` does without
    from splatbatch.scene.colmap.types import Camera, Image

PHOTOGRAPHS = frozenset({".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".heic", ".bmp"})
"""Suffixes by which files count as photographs, in lower case with their dot."""
PHOTO_FOLDERS = ("images", "photos", "input", "photographs", "pictures", "image", "rgb")
"""Names of folders that are searched for photographs, in lower case, the most usual first."""
MASK_COUNTS = 128
"""Smallest value (0 to 255) of a mask's pixel at which training uses the photograph's pixel; darker ones are ignored.

COLMAP ignores 0 alone, but masks may have been resized and saved as JPEG, which blurs their edges.
"""
DIVISORS = {"full": 1, "1/2": 2, "1/4": 4, "1/8": 8}
LONGEST_SIDE_PX = 1600
"""Longest side in pixels to which `training.resolution: auto` reduces photographs, by a divisor in `DIVISORS`.

The rule of 3DGS (Kerbl 2023): its reference program resizes wider photographs to 1600 px.
"""


def see_name(name: str, where: object, named_in: str = "model") -> None:
    """Check that an image name stays inside its folder, before a file is read or written under the name.

    Args:
        name: image name of the photograph, a path relative to the photograph folder.
        where: place of the name, such as a path, which begins the error message.
        named_in: what names the photograph and must be changed with it, for the hint.

    Raises:
        SceneError: the name leads out of the folder, or cannot be a file name.
    """
    if why := fault_of_name(name):
        raise SceneError(f"{where}: {why}", f"Rename the photograph, on the disk and in the {named_in}.")


@dataclass(frozen=True)
class FoundPhotograph:
    """The photograph exists, or may exist in a folder that cannot be listed. `path` is its whole path."""

    path: str


@dataclass(frozen=True)
class MisspeltName:
    """A photograph exists under a name that differs in upper and lower case, or in the encoding of accents."""

    actual: str
    """Path of the existing file, relative to the photograph folder."""

    in_form: str = ""
    """Unicode form of the wanted name, NFC or NFD, if only the encoding of accents differs; else empty."""


@dataclass(frozen=True)
class MissingPhotograph:
    """No photograph with the wanted name exists."""

    similar: str = ""
    """Name of a file in the same folder with the same stem and another suffix; empty if there is none."""
    elsewhere: str = ""
    """Path, relative to the photograph folder, of a file whose folders are written otherwise; empty if there is none.

    As left_01.jpg or 01.jpg for left/01.jpg.
    """


Location = FoundPhotograph | MisspeltName | MissingPhotograph


class FolderListings:
    """Finds photographs by image name below folders; each folder is listed once, so later changes are not seen."""

    def __init__(self) -> None:
        self.names = cache(_names_in)
        """Function that returns the names in a folder, by its path; empty if it is missing, None if not listable."""
        self._folded: dict[str, dict[str, str]] = {}

    def locate(self, root: Path, name: str) -> Location:
        """Return whether a photograph exists below the folder `root`, and under which name.

        Args:
            root: the photograph folder; may be missing.
            name: image name, relative to that folder.
        """
        parent, _, base = name.rpartition("/")
        folder = str(root / parent) if parent else str(root)
        names = self.names(folder)
        if names is None or base in names:  # a folder that may not be listed may still be entered
            return FoundPhotograph(f"{folder}/{base}")
        actual = self._misspelt(str(root), name)
        if actual:
            return MisspeltName(actual, _form(name, actual))
        similar = _with_stem(PurePosixPath(name).stem, names)
        return MissingPhotograph(similar[0] if similar else "", self._elsewhere(str(root), name))

    def find(self, root: Path, name: str) -> str:
        """Return the image name, relative to `root`, of the existing photograph that a name means; empty: none exists.

        The name may be misspelt, lead through folders that became part of the file's name, or lack its suffix. In a
        folder that cannot be listed, every photograph is taken to exist.

        Raises:
            SceneError: the name lacks its suffix, and several photographs have this stem.
        """
        place = self.locate(root, name)
        if isinstance(place, MisspeltName):
            return place.actual
        if isinstance(place, FoundPhotograph):
            return name
        parent, mark, base = name.rpartition("/")
        same = _with_stem(base, self.names(str(root / parent)) or ())
        found = [one for one in same if PurePosixPath(one).suffix.lower() in PHOTOGRAPHS]
        if len(found) > 1 and not place.elsewhere:
            raise SceneError(
                f"several photographs have this name: {', '.join(found)}",
                "Write the name with the suffix of the right file.",
            )
        return place.elsewhere or (f"{parent}{mark}{found[0]}" if found else "")

    def similar(self, root: Path, name: str) -> str:
        """Return the name of a file with the same stem and another suffix, in the folder of a missing photograph.

        Empty if there is none, or the photograph is not missing.
        """
        place = self.locate(root, name)
        return place.similar if isinstance(place, MissingPhotograph) else ""

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
        flat, there = name.replace("\\", "/"), self.names(root) or frozenset()
        parent, _, base = flat.rpartition("/")
        if flat != name and base in (self.names(f"{root}/{parent}" if parent else root) or ()):
            return flat
        candidates = [flat.replace("/", mark) for mark in ("_", "-", "")] + [base]
        return next((each for each in candidates if each != name and each in there), "")


def _names_in(folder: str) -> frozenset[str] | None:
    """Return the names in a folder; an empty set if it does not exist or cannot, None if it may not be listed."""
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 - names alone are wanted
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a character that no path has, as NUL
        return frozenset()
    except OSError:
        return None


def paths_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the whole paths of the photographs that exist below a folder, by image name; others are left out.

    Args:
        folder: the photograph folder; may be missing. If it cannot be listed, all photographs are taken to exist.
        names: image names, relative to the folder; misspelt names are not found.
    """
    folders = FolderListings()
    places = ((name, folders.locate(folder, name)) for name in names)
    return {name: place.path for name, place in places if isinstance(place, FoundPhotograph)}


def is_folder(path: Path) -> bool:
    """Return whether a path is an existing folder that can be reached; raises nothing, as for lack of permission."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises where there is no permission


@dataclass(frozen=True)
class FolderContents:
    """A folder that holds at least one photograph of a model."""

    folder: Path
    num: int
    """Number of the wanted photographs that exist in the folder, also under misspelt names."""


def find_photographs(beside: Path, names: Sequence[str]) -> FolderContents | None:
    """Return the folder near a model that holds most of the named photographs; None if no folder holds any.

    The model's folder and three levels above are searched: in each the folders named as in `PHOTO_FOLDERS`, their
    sub-folders, undistorted/images, and the level itself. Of equal folders the first counts. A folder that cannot be
    listed counts as one that holds all.

    Args:
        beside: folder of the model.
        names: image names of the model, or a sample of them.
    """
    folders, best = FolderListings(), None
    for folder in _may_hold(beside, folders):
        num = sum(not isinstance(folders.locate(folder, name), MissingPhotograph) for name in names)
        if num > (best.num if best else 0):
            best = FolderContents(folder, num)
        if num == len(names):
            break
    return best


def _may_hold(beside: Path, folders: FolderListings) -> Iterator[Path]:
    for top in (beside, *beside.absolute().parents[:3]):
        known = {name.casefold(): name for name in sorted(folders.names(str(top)) or ())}
        named = [top / known[name] for name in PHOTO_FOLDERS if name in known]
        undistorted = top / "undistorted" / "images"
        for folder in (*named, undistorted, top):
            if is_folder(folder):
                yield folder
        for folder in named:
            yield from (below for name in sorted(folders.names(str(folder)) or ()) if is_folder(below := folder / name))


def photographs_below(folder: Path, most_files: int | None = None) -> list[str]:
    """Return the sorted paths, relative to a folder, of the photographs in the folder and below, by their suffixes.

    Linked folders are not followed. Folders that an import has made are left out: they hold links to photographs.

    Args:
        folder: the folder; if it is missing, the result is empty. Folders that cannot be listed are passed over.
        most_files: most files of any type below the folder; None: no limit.

    Raises:
        SceneError: there are more than `most_files` files.
    """
    found, seen = [], 0
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not (Path(parent) / name / "import.json").is_file()]
        seen += len(files)
        if most_files is not None and seen > most_files:
            what = f"{folder}: more than {most_files:,} files: not only the photographs of this export"
            raise SceneError(what, "Name the folder of the photographs with --images DIR.")
        prefix = Path(parent).relative_to(folder)
        found += [(prefix / file).as_posix() for file in files if Path(file).suffix.lower() in PHOTOGRAPHS]
    return sorted(found)


def _form(name: str, actual: str) -> str:
    """Return the Unicode form of a name if it differs from `actual` in that alone; else empty."""
    if unicodedata.normalize("NFC", name) != unicodedata.normalize("NFC", actual):
        return ""
    return "NFC" if unicodedata.is_normalized("NFC", name) else "NFD"


def _with_stem(stem: str, names: Iterable[str]) -> list[str]:
    """Return the names with a stem, sorted. The first test alone is fast enough for thousands of missing names."""
    return sorted(known for known in names if known.startswith(stem) and PurePosixPath(known).stem == stem)


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def find_masks(folder: Path | None, names: Iterable[str]) -> dict[str, Path]:
    """Return the path of the mask of every photograph that has a mask, by image name; others are left out.

    The mask of photo.jpg is photo.jpg.png, as COLMAP names it, else photo.png.

    Args:
        folder: folder of the masks; None: there are none. If it cannot be listed, all masks are taken to exist.
        names: image names of the photographs.
    """
    if folder is None:
        return {}
    wanted = {name: (f"{name}.png", str(PurePosixPath(name).with_suffix(".png"))) for name in names}
    there = paths_of(folder, chain.from_iterable(wanted.values()))
    found = {name: next((there[one] for one in both if one in there), "") for name, both in wanted.items()}
    return {name: Path(path) for name, path in found.items() if path}


def divisor_of(resolution: str, sizes: Iterable[Size]) -> int:
    """Return the number by which the sides of photographs are divided at a training resolution.

    Args:
        resolution: value of `training.resolution`: a key of `DIVISORS`, or `auto`. `auto` is the smallest of 1, 2, 4
            and 8 that leaves no side longer than 1600 px, else 8.
        sizes: widths and heights of the photographs in pixels, for `auto`; none: the result is 1.

    Raises:
        KeyError: the resolution is neither.
    """
    if resolution != "auto":
        return DIVISORS[resolution]
    longest = max((max(size) for size in sizes), default=0)
    return next((each for each in DIVISORS.values() if longest <= each * LONGEST_SIDE_PX), max(DIVISORS.values()))


def reduced_copies(images: Path) -> dict[int, Path]:
    """Return the existing folders with reduced copies of photographs (images_2, images_4, images_8), by divisor.

    Smallest divisor first; what the folders hold is not checked.

    Args:
        images: folder of the photographs, beside which the copies lie; need not exist.
    """
    beside = {divisor: images.with_name(f"{images.name}_{divisor}") for divisor in DIVISORS.values() if divisor > 1}
    return {divisor: folder for divisor, folder in beside.items() if is_folder(folder)}


def stored_photographs(images: Path) -> tuple[Path, int]:
    """Return the folder in which photographs lie, and the number by which their sides are divided there.

    The folder is `images` if it exists, else the first existing of images_2, images_4 and images_8 beside it. If none
    exists, it is `images`, with 1.
    """
    if is_folder(images):
        return images, 1
    return next(((folder, divisor) for divisor, folder in reduced_copies(images).items()), (images, 1))


@dataclass(frozen=True)
class PhotographSource:
    """The folder from which photographs are loaded for training, and how much they are reduced."""

    folder: Path
    stored: int
    """Number by which the sides of the stored files are divided already: 4 for images_4."""
    shrink: int
    """Number by which the sides are divided further while loading; 1: not at all."""
    note: str = ""
    """Note for people on why another folder than expected is used; empty if the expected folder is."""

    @property
    def divisor(self) -> int:
        """Number by which the sides of the trained photographs are smaller than those of their cameras."""
        return self.stored * self.shrink


def choose_photographs(
    folder: Path, images: Sequence[Image], cameras: Mapping[int, Camera], resolution: str
) -> PhotographSource:
    """Return from which folder photographs are loaded at a training resolution, and how they are shrunk.

    Reduced copies (images_2, images_4 or images_8 beside `folder`) are used if they hold every photograph at the size
    that the folder's name says. Otherwise the originals are shrunk while loading. If the originals do not exist, other
    complete copies are used; if there are none, loading fails later.

    Args:
        folder: folder of the originals; need not exist.
        images: images of the model.
        cameras: cameras of the model, by id.
        resolution: value of `training.resolution`.

    Raises:
        KeyError: the camera of an image is missing, or the resolution is unknown.
    """
    used = {image.name: cameras[image.camera_id].size for image in images}
    divisor = divisor_of(resolution, used.values())
    note = ""
    if copies := reduced_copies(folder).get(divisor):
        problem = _problem(copies, used, divisor)
        if not problem:
            return PhotographSource(copies, divisor, 1)
        note = f"{copies.name} was not used ({problem}): photographs were shrunk while loading"
    wanted = PhotographSource(folder, 1, divisor, note)
    return wanted if is_folder(folder) else _nearest(wanted, used)


def _nearest(wanted: PhotographSource, used: Mapping[str, Size]) -> PhotographSource:
    """Return the largest complete copies that can be shrunk to the wanted size, else the largest complete copies."""
    copies = reduced_copies(wanted.folder)
    whole = [divisor for divisor, folder in copies.items() if not _problem(folder, used, divisor)]
    if not whole:
        return wanted  # loading says which photograph is missing
    stored = next((each for each in whole if wanted.divisor % each == 0), whole[0])
    note = f"there is no folder {wanted.folder.name}: {copies[stored].name} was used instead"
    return replace(wanted, folder=copies[stored], stored=stored, shrink=max(1, wanted.divisor // stored), note=note)


def _problem(folder: Path, used: Mapping[str, Size], divisor: int) -> str:
    """Return why a folder lacks a photograph at 1 / divisor of its camera's size; empty if it has all."""
    found = dict(zip(used, headers_of(folder / name for name in used).values(), strict=True))
    if unusable := [f"{name}: {one.what}" for name, one in found.items() if not isinstance(one, ImageHeader)]:
        return f"{len(unusable)} of {len(used)} photographs cannot be read there, such as {unusable[0]}"
    sizes = ((name, header.size, used[name]) for name, header in found.items() if isinstance(header, ImageHeader))
    wrong = [
        f"{name} has {size_text(size)} pixels, its camera {size_text(camera)}"
        for name, size, camera in sizes
        if any(abs(size[axis] - camera[axis] / divisor) >= 1 for axis in (0, 1))
    ]
    return f"{len(wrong)} of {len(used)} photographs have the wrong size, such as {wrong[0]}" if wrong else ""


def numbers_of(names: Iterable[str]) -> list[str]:
    """Return a numbered name for each photograph in order, as "0000012.jpg", for programs that misread some characters.

    COLMAP splits lists at blanks and takes # for a comment; OpenImageIO takes ? for the end of a path. The suffix is
    kept if it is in `PHOTOGRAPHS`, since COLMAP knows the file type by it.
    """
    suffixes = (PurePosixPath(name).suffix for name in names)
    return [f"{place:07d}{one if one.lower() in PHOTOGRAPHS else ''}" for place, one in enumerate(suffixes)]


def link_numbers(photographs: Sequence[Path], folder: Path) -> list[str]:
    """Link photographs into a folder under the names of `numbers_of`, and return these names in order.

    Args:
        photographs: paths of the photographs; links hold them as absolute paths.
        folder: folder for the links, made if absent.

    Raises:
        OSError: the folder cannot be written, a link exists already, or the file system has no links.
    """
    folder.mkdir(parents=True, exist_ok=True)
    numbers = numbers_of(one.name for one in photographs)
    for number, path in zip(numbers, photographs, strict=True):
        (folder / number).symlink_to(path.absolute())
    return numbers
