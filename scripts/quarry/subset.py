"""Rebuilds part of a reconstruction, rig and ids kept: some frames, some points, coordinates of smaller pictures."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any


def rebuild(source: Any, frame_ids: Iterable[int], point_ids: Iterable[int], shrink: float = 1) -> Any:
    """Return a reconstruction of those frames and of the points that two of their images see.

    Keypoints without such a point are dropped. With `shrink` 4, cameras and keypoints are those of pictures
    a quarter as wide.
    """
    import pycolmap

    kept_frames = sorted(frame_ids)
    image_ids = {data.id for frame_id in kept_frames for data in source.frames[frame_id].image_ids}
    tracks = _tracks(source, sorted(point_ids), image_ids)
    result = pycolmap.Reconstruction()
    _add_cameras_and_rigs(pycolmap, source, result, shrink)
    keypoints = {image_id: [] for image_id in image_ids}
    for point_id, elements in tracks.items():
        for image_id, index in elements:
            keypoints[image_id].append((index, point_id))
    for frame_id in kept_frames:
        _add_frame(pycolmap, (source, result), frame_id, keypoints, shrink)
    order = {
        (image_id, index): new for image_id, found in keypoints.items() for new, (index, _) in enumerate(sorted(found))
    }
    for point_id, elements in tracks.items():
        track = pycolmap.Track()
        for image_id, index in elements:
            track.add_element(image_id, order[image_id, index])
        old = source.points3D[point_id]
        result.add_point3D_with_id(point_id, pycolmap.Point3D(xyz=old.xyz, color=old.color, track=track))
    result.update_point_3d_errors()
    if not (result.is_valid() and all(camera.verify_params() for camera in result.cameras.values())):
        raise ValueError("the rebuilt reconstruction is not valid")
    return result


def write(model: Any, folder: Path) -> None:
    """Write the five files of `model` as `folder`, aside first."""
    aside = folder.with_name(folder.name + ".part")
    aside.mkdir(parents=True)
    model.write(aside)
    aside.rename(folder)


def _tracks(source: Any, point_ids: list[int], image_ids: set[int]) -> dict[int, list[tuple[int, int]]]:
    """Return per point its (image id, keypoint index) within the kept images; only points with two or more images."""
    tracks = {}
    for point_id in point_ids:
        elements = source.points3D[point_id].track.elements
        kept = sorted((e.image_id, e.point2D_idx) for e in elements if e.image_id in image_ids)
        if len({image_id for image_id, _ in kept}) >= 2:
            tracks[point_id] = kept
    return tracks


def _add_cameras_and_rigs(pycolmap: Any, source: Any, result: Any, shrink: float) -> None:
    for camera_id in sorted(source.cameras):
        camera = pycolmap.Camera(source.cameras[camera_id].todict())
        camera.rescale(round(camera.width / shrink), round(camera.height / shrink))
        result.add_camera(camera)
    for rig_id in sorted(source.rigs):
        old = source.rigs[rig_id]
        rig = pycolmap.Rig(rig_id=rig_id)
        rig.add_ref_sensor(old.ref_sensor_id)
        for sensor, pose in old.non_ref_sensors.items():
            rig.add_sensor(sensor, pose)
        result.add_rig(rig)


def _add_frame(pycolmap: Any, models: tuple[Any, Any], frame_id: int, keypoints: dict, shrink: float) -> None:
    source, result = models
    old = source.frames[frame_id]
    frame = pycolmap.Frame(frame_id=frame_id, rig_id=old.rig_id)
    for data in old.data_ids:
        frame.add_data_id(data)
    frame.rig_from_world = old.rig_from_world
    result.add_frame(frame)
    for image_id in sorted(data.id for data in old.image_ids):
        image = source.images[image_id]
        found = [image.points2D[index].xy / shrink for index, _ in sorted(keypoints[image_id])]
        points = pycolmap.Point2DList([pycolmap.Point2D(xy) for xy in found])
        copy = pycolmap.Image(name=image.name, points2D=points, camera_id=image.camera_id, image_id=image_id)
        copy.frame_id = frame_id
        result.add_image(copy)
    result.register_frame(frame_id)
