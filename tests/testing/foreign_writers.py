"""Writers of other programs' formats, from a COLMAP model: nothing here is shared with the readers under test.

Conventions as published: docs.nerf.studio (data conventions), instant-ngp's colmap2nerf, the NeRF Blender scenes, and
the Agisoft Metashape User Manual (camera models; exported XML).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pycolmap

ROOT = Path(__file__).parents[2]
QUARRY = ROOT / "examples/quarry"
CALITERRA = ROOT.parent / "shared/data/caliterra"
NERFSTUDIO = np.array([[1.0, 0, 0, 0], [0, 0, 1, 0], [0, -1, 0, 0]])
"""The applied_transform that nerfstudio writes: its world has z up where COLMAP's has y down."""
WKT = 'PROJCS["WGS 84 / UTM zone 31N",GEOGCS["WGS 84",DATUM["WGS_1984"]],UNIT["metre",1],AUTHORITY["EPSG","32631"]]'


@dataclass
class Scene:
    """A COLMAP model and the folder of its photographs."""

    sparse: Path
    photographs: Path

    def model(self) -> pycolmap.Reconstruction:
        return pycolmap.Reconstruction(self.sparse)

    def images(self) -> list[pycolmap.Image]:
        return sorted(self.model().images.values(), key=lambda image: image.name)


def quarry() -> Scene:
    return Scene(QUARRY / "sparse/0", QUARRY / "images")


def caliterra() -> Scene:
    return Scene(CALITERRA / "sparse/0", CALITERRA / "images")


def camera_to_world(image: pycolmap.Image) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3] = image.cam_from_world().inverse().matrix()
    return matrix


def as_opengl(matrix: np.ndarray) -> np.ndarray:
    return matrix @ np.diag([1.0, -1, -1, 1])


def link_photographs(scene: Scene, folder: Path, below: str = "images") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / below).symlink_to(scene.photographs.absolute())


def write_ply(path: Path, xyz: np.ndarray, rgb: np.ndarray, form: str = "binary_little_endian") -> None:
    head = ["ply", f"format {form} 1.0", f"element vertex {len(xyz)}", *(f"property double {axis}" for axis in "xyz")]
    head += [*(f"property uchar {name}" for name in ("red", "green", "blue")), "end_header", ""]
    table = np.zeros(len(xyz), np.dtype([("xyz", "<f8", 3), ("rgb", "u1", 3)]))
    table["xyz"], table["rgb"] = xyz, rgb
    rows = (" ".join([*map(repr, map(float, a)), *map(str, b)]) for a, b in zip(xyz, rgb, strict=True))
    body = table.tobytes() if form != "ascii" else "\n".join(rows).encode()
    path.write_bytes("\n".join(head).encode() + body)


def points_of(model: pycolmap.Reconstruction) -> tuple[np.ndarray, np.ndarray]:
    points = [model.points3D[number] for number in sorted(model.points3D)]
    return np.array([point.xyz for point in points]), np.array([point.color for point in points])


def pinhole_keys(camera: pycolmap.Camera) -> dict[str, Any]:
    return {
        "w": camera.width, "h": camera.height, "fl_x": camera.focal_length_x, "fl_y": camera.focal_length_y,
        "cx": camera.principal_point_x, "cy": camera.principal_point_y,
    }  # fmt: skip


def write_nerfstudio(scene: Scene, folder: Path, *, applied: bool = True, points: bool = True) -> Path:
    """Write transforms.json as `ns-process-data` does: intrinsics at the top or per frame, applied_transform, PLY."""
    link_photographs(scene, folder)
    model, world = scene.model(), np.eye(4)
    if applied:
        world[:3] = NERFSTUDIO
    lenses = {number: {**pinhole_keys(camera), "k1": 0.0, "k2": 0.0, "p1": 0.0, "p2": 0.0}
              for number, camera in model.cameras.items()}  # fmt: skip
    is_one = len(lenses) == 1
    top: dict[str, Any] = {"camera_model": "OPENCV", **(next(iter(lenses.values())) if is_one else {})}
    top["frames"] = [
        {
            "file_path": f"images/{image.name}",
            "transform_matrix": (world @ as_opengl(camera_to_world(image))).tolist(),
            "colmap_im_id": image.image_id,
            **({} if is_one else lenses[image.camera_id]),
        }
        for image in scene.images()
    ]
    if applied:
        top["applied_transform"] = world[:3].tolist()
    if points:
        xyz, rgb = points_of(model)
        write_ply(folder / "sparse_pc.ply", xyz @ world[:3, :3].T + world[:3, 3], rgb)
        top["ply_file_path"] = "sparse_pc.ply"
    return dump(folder / "transforms.json", top)


def write_ngp(scene: Scene, folder: Path) -> Path:
    """Write transforms.json as instant-ngp's colmap2nerf does with --keep_colmap_coords: angles, aabb, sharpness."""
    link_photographs(scene, folder)
    model = scene.model()
    frames = []
    for image in scene.images():
        camera = model.cameras[image.camera_id]
        frame = {"file_path": f"./images/{image.name}", "sharpness": 42.0, **angles(camera), **pinhole_keys(camera)}
        frames.append({**frame, "transform_matrix": as_opengl(camera_to_world(image)).tolist()})
    keys = {"aabb_scale": 16, "k1": 0, "k2": 0, "k3": 0, "k4": 0, "p1": 0, "p2": 0, "is_fisheye": False}
    return dump(folder / "transforms.json", {**keys, "frames": frames})


def angles(camera: pycolmap.Camera) -> dict[str, float]:
    x, y = camera.width / 2 / camera.focal_length_x, camera.height / 2 / camera.focal_length_y
    return {"camera_angle_x": 2 * np.arctan(x), "camera_angle_y": 2 * np.arctan(y)}


def write_blender(scene: Scene, folder: Path) -> Path:
    """Write transforms_train/val/test.json as the Blender scenes of NeRF: one angle of view, no suffixes."""
    model, images = scene.model(), scene.images()
    first = images[0].camera_id
    images = [image for image in images if image.camera_id == first]
    for split, own in (("test", images[::8]), ("val", images[1::8]), ("train", None)):
        chosen = own if own is not None else [one for i, one in enumerate(images) if i % 8 > 1]
        frames = []
        for image in chosen:
            target = folder / split / f"{Path(image.name).name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to((scene.photographs / image.name).absolute())
            matrix = as_opengl(camera_to_world(image)).tolist()
            frames.append({"file_path": f"./{split}/{target.stem}", "rotation": 0.01, "transform_matrix": matrix})
        angle = angles(model.cameras[first])["camera_angle_x"]
        dump(folder / f"transforms_{split}.json", {"camera_angle_x": angle, "frames": frames})
    return folder


def dump(path: Path, top: dict[str, Any]) -> Path:
    path.write_text(json.dumps(top, indent=1))
    return path


def spelt(values: Any) -> str:
    return " ".join(repr(float(value)) for value in np.asarray(values).ravel())


@dataclass
class Chunk:
    """What stands between Metashape's chunk and the world: x_world = scale R x_chunk + t."""

    rotation: np.ndarray
    translation: np.ndarray
    scale: float
    crs: str = WKT

    @staticmethod
    def turned() -> Chunk:
        left, _, right = np.linalg.svd(np.random.default_rng(3).normal(size=(3, 3)))
        rotation = left @ right
        return Chunk(rotation * np.sign(np.linalg.det(rotation)), np.array([3.0, -2.0, 7.0]), 2.5)

    def xml(self) -> str:
        return (
            f'<transform><rotation locked="false">{spelt(self.rotation)}</rotation>'
            f'<translation locked="false">{spelt(self.translation)}</translation>'
            f'<scale locked="false">{self.scale!r}</scale></transform>'
        )

    def pose(self, matrix: np.ndarray) -> np.ndarray:
        inside = np.eye(4)
        inside[:3, :3] = self.rotation.T @ matrix[:3, :3]
        inside[:3, 3] = self.rotation.T @ (matrix[:3, 3] - self.translation) / self.scale
        return inside


def calibration_xml(camera: pycolmap.Camera, extra: str = "") -> str:
    f, size = camera.focal_length_y, (camera.width, camera.height)
    return (
        f'<calibration type="frame" class="adjusted"><resolution width="{size[0]}" height="{size[1]}"/>'
        f"<f>{f!r}</f><cx>{camera.principal_point_x - size[0] / 2!r}</cx>"
        f"<cy>{camera.principal_point_y - size[1] / 2!r}</cy><b1>{camera.focal_length_x - f!r}</b1>{extra}"
        "</calibration>"
    )


def sensor_xml(number: int, camera: pycolmap.Camera, extra: str = "", attributes: str = "") -> str:
    return (
        f'<sensor id="{number}" label="unknown" type="frame"{attributes}><resolution width="{camera.width}" '
        f'height="{camera.height}"/><property name="layer_index" value="0"/>{calibration_xml(camera, extra)}</sensor>'
    )


def write_metashape(scene: Scene, folder: Path, chunk: Chunk | None = None, extra: str = "") -> Path:
    """Write cameras.xml as Metashape 2 does, with photographs in images/; the labels have no suffix."""
    link_photographs(scene, folder)
    chunk, model = chunk or Chunk.turned(), scene.model()
    sensors = "".join(sensor_xml(number, camera, extra) for number, camera in sorted(model.cameras.items()))
    groups: dict[str, list[str]] = {}
    for image in scene.images():
        path = Path(image.name)
        matrix = spelt(chunk.pose(camera_to_world(image)))
        groups.setdefault(path.parent.as_posix(), []).append(
            f'<camera id="{image.image_id}" sensor_id="{image.camera_id}" component_id="0" label="{path.stem}">'
            f"<transform>{matrix}</transform><orientation>1</orientation></camera>"
        )
    cameras = "".join(
        "".join(own) if name == "." else f'<group id="{index}" label="{name}" type="folder">{"".join(own)}</group>'
        for index, (name, own) in enumerate(groups.items())
    )
    inside = (
        f'<sensors>{sensors}</sensors><components><component id="0" label="C1">{chunk.xml()}</component>'
        f"</components><cameras>{cameras}</cameras><reference>{chunk.crs}</reference>"
    )
    return write_document(folder / "cameras.xml", f'<chunk label="Chunk 1" enabled="true">{inside}</chunk>')


def write_document(path: Path, chunks: str) -> Path:
    path.write_text(f'<?xml version="1.0" encoding="UTF-8"?>\n<document version="2.0.0">\n{chunks}\n</document>\n')
    return path


def write_realityscan(scene: Scene, folder: Path) -> Path:
    """Write a COLMAP model as RealityScan's export does: a FULL_OPENCV camera for each image, points without tracks."""
    link_photographs(scene, folder)
    model = scene.model()
    cameras, images, points = [], [], []
    for number, image in enumerate(scene.images(), start=1):
        camera = model.cameras[image.camera_id]
        size = f"{camera.width} {camera.height + (1 if number % 3 == 0 else 0)}"
        cameras.append(f"{number} FULL_OPENCV {size} {spelt(camera.params)} 0 0 0 0 0 0 0 0")
        pose = image.cam_from_world()
        x, y, z, w = pose.rotation.quat
        images.append(f"{number} {spelt([w, x, y, z])} {spelt(pose.translation)} {number} {image.name}\n")
    for number, (xyz, rgb) in enumerate(zip(*points_of(model), strict=True), start=1):
        points.append(f"{number} {spelt(xyz)} {' '.join(map(str, rgb))} 0")
    return _text_model(folder, cameras, images, points)


def write_opensfm(scene: Scene, folder: Path) -> Path:
    """Write a COLMAP model as OpenSfM's export_colmap does: keypoints with a point alone, tracks that count all."""
    link_photographs(scene, folder)
    model = scene.model()
    cameras, images, points = [], [], []
    for number, camera in model.cameras.items():
        cameras.append(f"{number} FULL_OPENCV {camera.width} {camera.height} {spelt(camera.params)} 0 0 0 0 0 0 0 0")
    for image in scene.images():
        pose = image.cam_from_world()
        x, y, z, w = pose.rotation.quat
        seen = [f"{spelt(point.xy)} {point.point3D_id}" for point in image.points2D if point.has_point3D()]
        head = f"{image.image_id} {spelt([w, x, y, z])} {spelt(pose.translation)} {image.camera_id} {image.name}"
        images.append(f"{head}\n{' '.join(seen)}")
    for number, point in model.points3D.items():
        track = " ".join(f"{one.image_id} {one.point2D_idx}" for one in point.track.elements)
        points.append(f"{number} {spelt(point.xyz)} {' '.join(map(str, point.color))} 0.0 {track}")
    return _text_model(folder / "colmap_export", cameras, images, points)


def _text_model(folder: Path, cameras: list[str], images: list[str], points: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, lines in (("cameras", cameras), ("images", images), ("points3D", points)):
        (folder / f"{name}.txt").write_text("# written by a test\n" + "\n".join(lines) + "\n")
    return folder


def keep_frames(path: Path, count: int) -> Path:
    """Leave the first frames of a transforms.json alone: fewer photographs are matched sooner."""
    top = json.loads(path.read_text())
    return dump(path, {**top, "frames": top["frames"][:count]})
