"""Runs an import: reads files of another program, checks them against the photographs, and writes a COLMAP model.

The new folder is written under a temporary name and renamed, so that it is complete or absent.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from splatbatch.config import Offset, near, no_such
from splatbatch.errors import ConfigError, OutputError, SceneError
from splatbatch.files import path_beside
from splatbatch.scene.formats import head_of, seen_at
from splatbatch.scene.frame import offset_for, span_between
from splatbatch.scene.imports import colmap_export, metashape, transforms, write
from splatbatch.scene.imports.agreement import check_poses, triangulated
from splatbatch.scene.imports.capture import ImportLog, ImportOptions, SourceCapture
from splatbatch.scene.imports.checks import check_world, fit_to_photographs, without_repeats
from splatbatch.scene.imports.ply import read_cloud
from splatbatch.scene.photos.folders import is_folder
from splatbatch.text import plural

_EXPORTS = (".", "colmap_export", "opensfm/colmap_export", "colmap", "colmap/sparse/0", "sparse/0", "sparse",
            "dense/sparse", "undistorted/sparse")  # fmt: skip
_READERS = {"transforms": transforms.read, "metashape": metashape.read, "colmap": colmap_export.read}
_WORDS = {
    "transforms": "cameras of nerfstudio, instant-ngp or Blender ({names})",
    "metashape": "cameras of Metashape ({names})",
    "colmap": "a COLMAP model outside of sparse/0 ({folder})",
}


@dataclass(frozen=True)
class ImportSource:
    """A source (files of another program) that can be imported."""

    kind: Literal["transforms", "metashape", "colmap"]
    """JSON files with frames, Metashape's XML, or an exported COLMAP model."""
    paths: tuple[Path, ...]
    """The JSON files, the XML file, or the folder of the model; at least one path, as found below the searched path."""

    def in_words(self) -> str:
        """Return a description of the source for messages: "cameras of Metashape (cameras.xml)"."""
        names = ", ".join(path.name for path in self.paths)
        return _WORDS[self.kind].format(names=names, folder=self.paths[0])


def find_sources(path: Path) -> list[ImportSource]:
    """Return the sources that a file or a folder holds, in the order in which an import prefers them.

    Of COLMAP models in a folder, in the sub-folders where exports usually lie, the first alone is returned. Empty if
    there are no sources or the path is missing. Empty also for a file that its name or beginning shows to be of another
    format.

    Raises:
        PermissionError: a folder may not be entered.
    """
    if path.is_file() and path.suffix.lower() in (".json", ".xml") and seen_at(path):  # of another program
        return []
    found = []
    if documents := transforms.find_documents(path):
        found.append(ImportSource("transforms", tuple(documents)))
    files = [path] if path.is_file() else sorted(path.glob("*.xml"))
    for file in (one for one in files if one.suffix.lower() == ".xml"):
        head = head_of(file)
        if path.is_file() or (b"<document" in head and b"<chunk" in head):
            found.append(ImportSource("metashape", (file,)))
    folder = path if path.is_dir() else path.parent
    is_model_file = (
        path.is_file() and path.stem in ("cameras", "images", "points3D") and path.suffix in (".txt", ".bin")
    )
    if path.is_dir() or is_model_file:
        exports = (folder / name for name in (_EXPORTS if path.is_dir() else (".",)))
        found += [ImportSource("colmap", (export,)) for export in exports if colmap_export.suffix_of(export)][:1]
    return found


@dataclass(frozen=True, eq=False)
class ImportResult:
    """Result of an import that was written: the checked content of the source, and the record of changes.

    `num_points` is the number of points of the model. `offset` is to be subtracted from all coordinates before
    training; three zeros: none. `holdout` has the sorted names of the photographs that the source holds out, empty
    if there are none.
    """

    capture: SourceCapture
    log: ImportLog
    num_points: int
    offset: Offset
    holdout: list[str]


def bring_in(path: Path, target: Path, options: ImportOptions) -> ImportResult:
    """Import a source: write its COLMAP model, links to its photographs, and import.json into a new folder.

    The folder is written completely, or not at all.

    Args:
        path: file or folder of the source.
        target: folder to write, absent or empty; its parent must exist.
        options: options of the import.

    Raises:
        SceneError: the source holds mistakes (at most `MOST_OF_A_KIND` with one remedy are listed), or cannot be
            imported.
        ConfigError: the target is a link, or no empty or new folder, or the folder above it is missing. Or an option
            does not fit the source, or --images names no folder.
        OutputError: the target cannot be written.
        PermissionError: the folder of the source may not be entered.
    """
    log = ImportLog(path, skips_missing=options.skips_missing)
    source = _chosen(path, log)
    _see_target(target)
    if options.chunk and source.kind != "metashape":
        raise ConfigError(f"--chunk {options.chunk}: only Metashape's XML has chunks", "Leave --chunk out.")
    if options.images and not is_folder(options.images):
        raise ConfigError(f"--images {options.images}: {no_such(options.images, 'folder')}")
    with log.noting(source.paths[0].name):
        capture = _checked(_READERS[source.kind](source.paths, options, log), options, log)
    log.stop()  # which raises if there is no capture
    aside = path_beside(target.absolute())
    try:
        shutil.rmtree(aside, ignore_errors=True)
        done = _written(source.paths[0], capture, aside, options, log)
        aside.rename(target.absolute())
    except (ValueError, RuntimeError) as error:  # pycolmap's words for what it does not take
        hint = "Correct focal lengths, sizes or poses that no camera can have, and export again."
        raise SceneError(f"{path}: pycolmap rejects this model: {' '.join(str(error).split())}", hint) from error
    except OSError as error:
        remedy = "Name a new folder on a disk with free space and symbolic links: photographs are linked, not copied."
        raise OutputError(f"{target}: cannot be written ({error.strerror or error})", remedy) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return done


def _see_target(target: Path) -> None:
    try:
        is_free = not target.exists() or not any(target.iterdir())
    except OSError as error:
        raise ConfigError(f"{target}: cannot be used as a folder ({error.strerror})", "Name a new folder.") from error
    if not is_free or target.is_symlink():
        raise ConfigError(f"{target}: exists and is not empty", "Name a new folder: an import overwrites nothing.")
    if not target.absolute().parent.is_dir():
        raise ConfigError(
            f"{target}: the folder above does not exist", f"Make that folder first: mkdir -p {target.parent}"
        )


def _chosen(path: Path, log: ImportLog) -> ImportSource:
    if not path.exists():
        raise SceneError(f"{path}: no such file or folder", near(path))
    found = find_sources(path)
    if not found:
        known = "a transforms.json, Metashape's cameras as XML, or a COLMAP model (cameras, images)"
        raise SceneError(f"{path}: nothing that can be imported", seen_at(path) or f"Name {known}.")
    alike = [one for one in found if one.kind == found[0].kind]
    if len(alike) > 1:
        names = ", ".join(one.paths[0].name for one in alike)
        raise SceneError(f"{path}: {len(alike)} files that could be imported: {names}", "Name one of these files.")
    for other in found[1:]:
        log.leave_out(f"found beside the source: {other.in_words()}")
    return found[0]


def _checked(capture: SourceCapture, options: ImportOptions, log: ImportLog) -> SourceCapture:
    """Return the capture with cameras of its photographs' sizes, and with the points of --points if given."""
    shots = fit_to_photographs(without_repeats(capture.shots, log), log)
    if options.points:
        with log.noting("--points"):
            cloud = read_cloud(options.points, log)
            capture = replace(capture, cloud=replace(cloud, xyz=capture.of_points.of_points(cloud.xyz)))
            log.convert(f"{plural(len(cloud.xyz), 'point')} taken from {options.points.name}, without tracks")
    if capture.cloud is not None and not len(capture.cloud.xyz):
        log.leave_out(f"{capture.cloud.origin}: the file holds no points")
        capture = replace(capture, cloud=None)
    check_world(shots, capture.cloud, log)
    return replace(capture, shots=shots)


def _written(
    source: Path, capture: SourceCapture, folder: Path, options: ImportOptions, log: ImportLog
) -> ImportResult:
    """Write all files of an import into a new folder.

    Raises:
        SceneError: the photographs contradict the poses.
        OSError: it cannot be written.
    """
    folder.mkdir()
    write.link_files(capture.shots, folder)
    shots = capture.shots
    if capture.cloud is not None:
        if capture.cloud.ids is None:
            check_poses(capture, folder, log)
        model = write.posed_model(shots)
        write.add_points(model, shots, capture.cloud)
    elif options.triangulates:
        model = triangulated(capture, folder, options, log)
    else:
        model = write.posed_model([replace(shot, keypoints=None) for shot in shots])
        log.leave_out("points: the source has none, and none were triangulated; training needs points")
    log.stop()
    (folder / write.MODEL).mkdir(parents=True)
    model.write_binary(folder / write.MODEL)
    points = np.array([point.xyz for point in model.points3D.values()]).reshape(-1, 3)
    span = span_between(points, np.array([shot.center for shot in shots]).reshape(-1, 3))
    offset = offset_for([span] if span else [])
    write.write_record(source, capture, log, offset, folder)
    return ImportResult(capture, log, len(points), offset, write.held_out(capture.shots))
