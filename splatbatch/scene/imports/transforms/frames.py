"""The frames of a transforms.json: photograph, mask, depth and pose of each, all mistakes noted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.imports.capture import Mistakes, Notes, spelt
from splatbatch.scene.imports.pose import OPENGL, NoPose, Similarity, as_matrix, similarity_of
from splatbatch.scene.imports.transforms.document import Document
from splatbatch.scene.imports.transforms.intrinsics import KEYS as OF_LENS
from splatbatch.scene.photos.folders import PHOTOGRAPHS, Folders

KEYS = OF_LENS | {
    "file_path", "transform_matrix", "mask_path", "depth_file_path", "colmap_im_id", "sharpness", "rotation",
}  # fmt: skip
"""What is read of a frame, or is known to say nothing about the model."""
_ROLLING = ("transform_matrix_start", "transform_matrix_end", "rolling_shutter")


@dataclass(frozen=True, eq=False)
class Frame:
    """A frame whose photograph was found and whose pose is one; its lens is not looked at yet."""

    where: str
    document: Document
    keys: Mapping[str, Any]
    written: str
    """The file_path, without a leading ./ and with the suffix of the file."""
    photo: Path
    rotation: Floats  # [3, 3], from the world of the file to the camera
    center: Floats  # [3]
    mask: Path | None
    depth: Path | None


class FrameReader:
    """Reads the frames of all documents of a source; photographs that are missing are counted or mistakes."""

    def __init__(self, images: Path | None, notes: Notes, mistakes: Mistakes, *, skips_missing: bool) -> None:
        self._images, self._notes, self._mistakes, self._skips = images, notes, mistakes, skips_missing
        self._folders, self._scaled = Folders(), 0
        self.missing: list[str] = []

    def read(self, document: Document) -> list[Frame]:
        """Return the frames of a document."""
        found = []
        for index, keys in enumerate(document.top["frames"]):
            where = f"{document.path.name}: frames[{index}]"
            if not isinstance(keys, dict):
                self._mistakes.add(where, f"{spelt(keys)} is no frame", "A frame has file_path and transform_matrix.")
            elif frame := self._frame(document, keys, where):
                found.append(frame)
        if self._scaled:
            self._notes.convert(f"{self._scaled} of the poses carry a scale: it was taken out of their rotations")
        return found

    def _frame(self, document: Document, keys: Mapping[str, Any], where: str) -> Frame | None:
        written = keys.get("file_path")
        if not isinstance(written, str) or not written.strip():
            self._mistakes.add(where, f"file_path {spelt(written)}", "Name the photograph in file_path.")
            return None
        place = f'{where} "{written}"'
        pose = self._pose(keys, place)
        photo = self._photo(document, written, place)
        extras = [self._beside(document, keys, key, place) for key in ("mask_path", "depth_file_path")]
        if pose is None or photo is None:
            return None
        name = _plain(written)
        name = name if PurePosixPath(name).suffix == photo.suffix else f"{name}{photo.suffix}"
        return Frame(place, document, keys, name, photo, OPENGL @ pose.rotation.T, pose.translation, *extras)

    def _pose(self, keys: Mapping[str, Any], place: str) -> Similarity | None:
        if any(key in keys for key in _ROLLING) and "transform_matrix" not in keys:
            what = "has a pose at the start and one at the end (rolling shutter), and no transform_matrix"
            self._mistakes.add(place, what, "Export one pose for each photograph.")
            return None
        if "transform_matrix" not in keys:
            remedy = "Remove frames without a pose, or register them."
            self._mistakes.add(place, "transform_matrix is missing: a photograph without a pose", remedy)
            return None
        try:
            pose = similarity_of(as_matrix(keys["transform_matrix"]))
        except NoPose as error:
            remedy = "A transform_matrix is a 4x4 matrix from camera to world: a rotation and a place, no mirror."
            self._mistakes.add(place, f"transform_matrix {error}", remedy)
            return None
        self._scaled += abs(pose.scale - 1) > 1e-3
        return pose

    def _photo(self, document: Document, written: str, place: str) -> Path | None:
        candidates = self._candidates(document, _plain(written))
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            names = ", ".join(sorted(path.name for path in candidates))
            self._mistakes.add(place, f"may be {names}", "Write file_path with the suffix of the file that is meant.")
        elif self._skips:
            self.missing.append(written)
        else:
            similar = self._similar(document.folder / _plain(written))
            what = f"no such photograph{f'; there is {similar}' if similar else ''}"
            remedy = (
                "Put the photographs where file_path says, name their folder with --images, or leave such poses out "
                "with --skip-missing."
            )
            self._mistakes.add(place, what, remedy)
        return None

    def _candidates(self, document: Document, written: str) -> list[Path]:
        """Return the files that a file_path may mean: there, or below the folder of --images."""
        roots = [document.folder / written]
        if self._images:
            parts = PurePosixPath(written).parts
            roots = [self._images.joinpath(*parts[index:]) for index in range(len(parts))] + roots
        for path in roots:
            if found := self._as_file(path):
                return found
        return []

    def _as_file(self, path: Path) -> list[Path]:
        """Return the file itself, else those of this name with the suffix of a photograph."""
        names = self._folders.names(str(path.parent)) or frozenset()
        if path.name in names and path.is_file():
            return [path]
        known = [name for name in names if PurePosixPath(name).stem == path.name]
        return [path.with_name(name) for name in known if PurePosixPath(name).suffix.lower() in PHOTOGRAPHS]

    def _similar(self, path: Path) -> str:
        names = self._folders.names(str(path.parent)) or frozenset()
        return next((name for name in sorted(names) if PurePosixPath(name).stem == path.stem), "")

    def _beside(self, document: Document, keys: Mapping[str, Any], key: str, place: str) -> Path | None:
        written = keys.get(key)
        if written is None:
            return None
        path = document.folder / _plain(written) if isinstance(written, str) else None
        if path is not None and path.is_file():
            return path
        self._mistakes.add(place, f"{key} {spelt(written)}: no such file", f"Put it there, or remove {key}.")
        return None


def _plain(written: str) -> str:
    """Return a path as this system writes it: no leading ./, no backslashes of Windows."""
    path = written if "/" in written else written.replace("\\", "/")
    return os.path.normpath(path)


def common_names(frames: Sequence[Frame]) -> list[str]:
    """Return what the photographs are called below one folder: as written, less the images/ that all begin with.

    Paths that are absolute, or leave the folder of the file, lose what they all have in common.
    """
    written = [frame.written for frame in frames]
    if any(path.startswith(("/", "..")) or path[1:2] == ":" for path in written):
        real = [str(frame.photo.absolute()) for frame in frames]
        top = os.path.commonpath([os.path.dirname(path) for path in real])  # noqa: PTH120 - of text
        return [os.path.relpath(path, top) for path in real]
    first = {path.partition("/")[0] if "/" in path else "" for path in written}
    shared = first.pop() if len(first) == 1 else ""
    if shared.partition("_")[0] in ("images", "image", "input", "rgb"):
        return [path.partition("/")[2] for path in written]
    return written
