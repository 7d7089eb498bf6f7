"""Writes the result of an import: a COLMAP model, links to photographs, masks and depth images, and import.json."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from splatbatch.config import Offset
from splatbatch.files import write_json, write_text
from splatbatch.scene.colmap.files import load_pycolmap
from splatbatch.scene.colmap.types import NO_POINT3D, NONE, Camera, places_in, starts_of
from splatbatch.scene.imports.capture import ImportLog, PointCloud, PosedPhoto, SourceCapture
from splatbatch.scene.photos.folders import see_name

MODEL, RECORD, HOLDOUT = "sparse/0", "import.json", "holdout.txt"


def link_files(shots: Iterable[PosedPhoto], folder: Path) -> None:
    """Make symbolic links to photographs, masks and depth images, below images/, masks/ and depths/.

    A link has the name of the photograph in the model. A mask has `.png` after it; a depth image has the suffix of its
    own file instead of the photograph's. Targets of links are absolute.

    Args:
        shots: posed photographs, with different names.
        folder: folder to write into; folders below are made.

    Raises:
        SceneError: a name leads out of the folder.
        OSError: the folder cannot be written, a link exists already, or the file system has no links.
    """
    for shot in shots:
        see_name(shot.name, shot.where, "source")
        _link(shot.photo, folder / "images" / shot.name)
        if shot.mask:
            _link(shot.mask, folder / "masks" / f"{shot.name}.png")
        if shot.depth:
            _link(shot.depth, folder / "depths" / f"{PurePosixPath(shot.name).with_suffix(shot.depth.suffix)}")


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(os.path.abspath(source))  # noqa: PTH100 - a link keeps the name it has


def posed_model(shots: Sequence[PosedPhoto]) -> Any:
    """Return a pycolmap.Reconstruction with cameras, poses and keypoints, but without points.

    An image id is the index of the posed photograph plus one. Equal cameras become one, with ids from 1 on.

    Raises:
        ValueError, RuntimeError: pycolmap does not accept a camera or pose.
    """
    pycolmap = load_pycolmap()
    model, numbers = pycolmap.Reconstruction(), _numbered(shots)
    for camera, number in numbers.items():
        size = {"width": camera.width, "height": camera.height, "has_prior_focal_length": True}
        params = np.array(camera.params)
        model.add_camera_with_trivial_rig(pycolmap.Camera(model=camera.model, params=params, camera_id=number, **size))
    for index, shot in enumerate(shots, start=1):
        keypoints = shot.keypoints.xy if shot.keypoints else np.zeros((0, 2))
        image = pycolmap.Image(
            name=shot.name, keypoints=keypoints, camera_id=numbers[_bare(shot.camera)], image_id=index
        )
        pose = pycolmap.Rigid3d(pycolmap.Rotation3d(shot.rotation), -shot.rotation @ shot.center)
        model.add_image_with_trivial_frame(image, pose)
    return model


def _numbered(shots: Sequence[PosedPhoto]) -> dict[Camera, int]:
    """Return the different cameras with ids from 1 on."""
    every = dict.fromkeys(_bare(shot.camera) for shot in shots)
    return {camera: number for number, camera in enumerate(every, start=1)}


def _bare(camera: Camera) -> Camera:
    return Camera(0, camera.model, *camera.size, camera.params)


def add_points(model: Any, shots: Sequence[PosedPhoto], cloud: PointCloud) -> None:
    """Add points to a model, with tracks made from the keypoints that refer to the points.

    Args:
        model: pycolmap.Reconstruction that `posed_model` made of `shots`; it is changed.
        shots: posed photographs.
        cloud: the points; without `ids` they get no tracks.
    """
    pycolmap = load_pycolmap()
    images, places, starts = _tracks(shots, cloud)
    element, track = pycolmap.TrackElement, pycolmap.Track
    for index, (xyz, rgb) in enumerate(zip(cloud.xyz, cloud.rgb, strict=True)):
        own = range(starts[index], starts[index + 1])
        model.add_point3D(xyz, track([element(images[at], places[at]) for at in own]), rgb)
    if len(images):
        model.update_point_3d_errors()


def _tracks(shots: Sequence[PosedPhoto], cloud: PointCloud) -> tuple[list[int], list[int], list[int]]:
    """Return image ids and keypoint indices of all tracks in the order of the points, and where each point's begin."""
    ids = cloud.ids if cloud.ids is not None else np.zeros(0, np.uint64)
    seen = [(number, shot.keypoints) for number, shot in enumerate(shots, start=1) if shot.keypoints is not None]
    named = np.concatenate([np.zeros(0, np.uint64), *(one.point3d_ids for _, one in seen)])
    at = places_in(ids, named)
    is_known = (at != NONE) & (named != np.uint64(NO_POINT3D))
    lengths = [len(one.point3d_ids) for _, one in seen]
    points, images = at[is_known], np.repeat(np.array([number for number, _ in seen], np.int64), lengths)[is_known]
    places = np.concatenate([np.zeros(0, np.int64), *map(np.arange, lengths)])[is_known]
    by_point = np.argsort(points, kind="stable")
    starts = starts_of(np.bincount(points, minlength=len(cloud.xyz)))
    return images[by_point].tolist(), places[by_point].tolist(), starts.tolist()


def held_out(shots: Sequence[PosedPhoto]) -> list[str]:
    """Return the sorted names of the photographs in the source's splits test and val, which become the hold-out."""
    return sorted(shot.name for shot in shots if shot.split in {"test", "val"})


def write_record(source: Path, capture: SourceCapture, log: ImportLog, offset: Offset, folder: Path) -> None:
    """Write import.json, and holdout.txt with one name a line if the source has test or val splits.

    Existing files are replaced whole.

    Args:
        source: path of the source, written as an absolute path.
        capture: the source that was read.
        log: record of the import, whose conversions and omissions are written.
        offset: offset in units of the model.
        folder: existing folder to write into.

    Raises:
        OSError: a file cannot be written.
    """
    names = held_out(capture.shots)
    if names:
        write_text(folder / HOLDOUT, "\n".join(names) + "\n")
    record = {
        "source": str(source.absolute()),
        "kind": capture.kind,
        "num_photographs": len(capture.shots),
        "num_cameras": len(_numbered(capture.shots)),
        "world": capture.world,
        "crs": capture.crs or None,
        "offset": list(offset),
        "reference": capture.reference,
        "holdout": len(names),
        "masks": sum(shot.mask is not None for shot in capture.shots),
        "depths": sum(shot.depth is not None for shot in capture.shots),
        "points_from": capture.cloud.origin if capture.cloud else None,
        "converted": log.converted,
        "left_out": log.left_out,
    }
    write_json(folder / RECORD, record)
