"""A COLMAP scene in memory that a test may spoil: cameras, poses, keypoints, points, sizes of photographs."""

from __future__ import annotations

import copy
import os
import struct
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image as Picture

from splatbatch.scene.audit.audit import Audit, AuditExtent, audit_patches
from splatbatch.scene.audit.findings import TrainerRules
from splatbatch.scene.colmap.reconstruction import read_points2d, read_reconstruction
from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera, Image, Points, Points2D, Tracks
from splatbatch.scene.patches import Patch
from splatbatch.scene.reprojection import project

TAKES_ALL = TrainerRules(False, frozenset(CAMERA_MODELS), "a trainer that takes every camera model")


@dataclass
class WholeScene:
    cameras: dict[int, Camera]
    images: list[Image]
    keypoints: dict[int, Points2D]
    points: Points
    photos: dict[str, tuple[int, int]]
    """Sizes of the photographs by name: as their cameras say until a test changes them."""

    @staticmethod
    def read(sparse: Path) -> WholeScene:
        model = read_reconstruction(sparse, tracks=True)
        sizes = {i.name: (model.cameras[i.camera_id].width, model.cameras[i.camera_id].height) for i in model.images}
        return WholeScene(dict(model.cameras), list(model.images), read_points2d(sparse), model.points, sizes)

    def copy(self) -> WholeScene:
        return copy.deepcopy(self)

    def of_camera(self, number: int) -> list[Image]:
        return [image for image in self.images if image.camera_id == number]

    def set_xy(self, image: Image, xy: np.ndarray) -> None:
        self.keypoints[image.id] = replace(self.keypoints[image.id], xy=xy)

    def write(self, root: Path) -> Patch:
        """Write the model, and photographs of one colour: bits alone, each size once."""
        (root / "sparse/0").mkdir(parents=True)
        for name, content in self.files().items():
            (root / "sparse/0" / f"{name}.bin").write_bytes(content)
        for name, size in self.photos.items():
            path, first = root / "images" / name, root / f".{size[0]}x{size[1]}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            if not first.exists():
                Picture.new("1", size).save(first)
            os.link(first, path)
        return Patch("p0", root / "sparse/0", root / "images")

    def audit(self, rules: TrainerRules = TAKES_ALL) -> Audit:
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            return audit_patches([self.write(Path(folder))], None, rules, AuditExtent(groups=0))

    def files(self) -> dict[str, bytes]:
        """Return what the files of the model hold, by their names without suffix."""
        cameras = [
            struct.pack("<IiQQ", c.id, CAMERA_MODELS[c.model].id, c.width, c.height)
            + np.array(c.params, "<f8").tobytes()
            for c in self.cameras.values()
        ]
        lists = {
            "cameras": cameras,
            "images": [self._image(image) for image in self.images],
            "points3D": self._points(),
        }
        return {name: struct.pack("<Q", len(items)) + b"".join(items) for name, items in lists.items()}

    def _image(self, image: Image) -> bytes:
        seen = self.keypoints[image.id]
        record = np.zeros(len(seen.xy), [("xy", "<f8", 2), ("id", "<u8")])
        record["xy"], record["id"] = seen.xy, seen.point3d_ids
        head = struct.pack("<I7dI", image.id, *image.quat, *image.translation, image.camera_id)
        return head + image.name.encode() + struct.pack("<BQ", 0, len(record)) + record.tobytes()

    def _points(self) -> list[bytes]:
        tracks = self.points.tracks
        assert tracks is not None
        elements = np.stack([tracks.image_ids, tracks.point2d_idxs], axis=1).astype("<u4")
        return [
            struct.pack("<Q3d3BdQ", int(number), *xyz, 10, 20, 30, 0.5, tracks.starts[i + 1] - tracks.starts[i])
            + elements[tracks.starts[i] : tracks.starts[i + 1]].tobytes()
            for i, (number, xyz) in enumerate(zip(self.points.ids, self.points.xyz, strict=True))
        ]


def with_own_cameras(scene: WholeScene) -> WholeScene:
    """Give each photograph a camera of its own, as most photogrammetry programs write them."""
    shared = dict(scene.cameras)
    scene.cameras = {image.id: replace(shared[image.camera_id], id=image.id) for image in scene.images}
    scene.images = [replace(image, camera_id=image.id) for image in scene.images]
    return scene


def with_refined_cameras(scene: WholeScene, seed: int = 4, spread: float = 0.0005) -> WholeScene:
    """Give each photograph a K of its own that is refined by itself; `spread` is one sigma of its focal length."""
    random = np.random.default_rng(seed)
    for image in with_own_cameras(scene).images:
        _rescale(scene, image, 1 + spread * float(random.normal()), np.zeros(2))
    return scene


def with_second_camera(
    scene: WholeScene, chosen: slice = slice(6, 9), cropped: tuple[float, float, float, float] | None = None
) -> WholeScene:
    """Give some photographs a camera of their own; keypoints follow, and lie beyond a crop (shares of the sides)."""
    first, number = scene.cameras[scene.images[chosen][0].camera_id], max(scene.cameras) + 1
    left, top, right, bottom = (round(s * side) for s, side in zip(cropped or (0.0,) * 4, first.size * 2, strict=True))
    size = (first.width - left - right, first.height - top - bottom)
    scene.images[chosen] = [replace(image, camera_id=number) for image in scene.images[chosen]]
    for image in scene.of_camera(number):
        scene.cameras[number] = replace(first, id=number, width=size[0], height=size[1])
        _rescale(scene, image, *((1.0, np.array([-left, -top])) if cropped else (1.04, np.array([11.0, -8.0]))))
        scene.photos[image.name] = size
    return scene


def _rescale(scene: WholeScene, image: Image, zoom: float, shift: np.ndarray) -> None:
    """Give the camera of an image another K; its keypoints follow, since lenses bend rays and not pixels."""
    camera = scene.cameras[image.camera_id]
    focals = 1 if CAMERA_MODELS[camera.model].params[0] == "f" else 2
    old = np.array([camera.cx, camera.cy])
    params = (*(zoom * f for f in camera.params[:focals]), *(old + shift), *camera.params[focals + 2 :])
    scene.cameras[image.camera_id] = replace(camera, params=tuple(map(float, params)))
    scene.set_xy(image, (scene.keypoints[image.id].xy - old) * zoom + old + shift)


def bent(camera: Camera) -> Camera:
    """Return a pinhole's camera as it was before its photographs were undistorted."""
    params = (camera.fx, camera.fy, camera.cx, camera.cy, -0.12, 0.02, 0.0, 0.0)
    return replace(camera, model="OPENCV", params=params)


def bent_model(scene: WholeScene) -> WholeScene:
    """Return a model of pinholes as it was before its photographs were undistorted."""
    for number, camera in list(scene.cameras.items()):
        for image in scene.of_camera(number):
            xy = scene.keypoints[image.id].xy
            rays = np.concatenate([(xy - (camera.cx, camera.cy)) / (camera.fx, camera.fy), np.ones((len(xy), 1))], 1)
            scene.set_xy(image, project(bent(camera), rays))
        scene.cameras[number] = bent(camera)
    return scene


def synthesised(model: str, params: list[float], seed: int = 0, noise_px: float = 0.5, cameras: int = 2) -> WholeScene:
    """Return a scene that pycolmap makes up: rigs of some cameras, keypoints with noise; the same for the same seed."""
    import pycolmap

    options = pycolmap.SyntheticDatasetOptions(
        num_rigs=1,
        num_cameras_per_rig=cameras,
        num_frames_per_rig=14,
        num_points3D=500,
        num_points2D_without_point3D=40,
    )
    options.camera_model_id, options.camera_params = getattr(pycolmap.CameraModelId, model), params
    pycolmap.set_random_seed(seed)
    made = pycolmap.synthesize_dataset(options)
    noise = pycolmap.SyntheticNoiseOptions()
    noise.point2D_stddev = noise_px
    pycolmap.synthesize_noise(noise, made)
    with tempfile.TemporaryDirectory(prefix="made-") as folder:
        made.write(folder)
        return _unlike(WholeScene.read(Path(folder)))


def _unlike(scene: WholeScene) -> WholeScene:
    """Give each camera but the first a K of its own; keypoints follow, since lenses bend rays and not pixels."""
    for step, (number, camera) in enumerate(sorted(scene.cameras.items())):
        zoom, shift = 1 + 0.05 * step, np.array([9.0, -7.0]) * step
        focals = 1 if CAMERA_MODELS[camera.model].params[0] == "f" else 2
        old = np.array([camera.cx, camera.cy])
        new = old + shift
        params = (*(zoom * f for f in camera.params[:focals]), *new, *camera.params[focals + 2 :])
        scene.cameras[number] = replace(camera, params=tuple(map(float, params)))
        for image in scene.of_camera(number):
            scene.set_xy(image, (scene.keypoints[image.id].xy - old) * zoom + new)
    return scene


def walked(model: str, params: list[float], seed: int = 0, noise_px: float = 0.5, radius: float = 2.5) -> WholeScene:
    """Return a walk around an object in a room: keypoints all over the photographs, as photographs of phones have them.

    Keypoints are pycolmap's projections with noise; poses and points stay as they were made.
    """
    rng = np.random.default_rng(seed)
    camera = Camera(1, model, 1024, 768, tuple(params))
    xyz = np.concatenate([_on_walls(rng, 900, 5.0), rng.normal(0, 0.5, (500, 3))])
    images, keypoints, elements = [], {}, [[] for _ in xyz]
    for number in range(1, 31):
        image = _standing(number, radius, rng)
        matrix = image.world_to_camera()
        local = xyz @ matrix[:3, :3].T + matrix[:3, 3]
        pixels = project(camera, local)
        # a lens that folds over shows a second image of what lies far outside: COLMAP has no such keypoints
        is_seen = (local[:, 2] > 0.3) & (pixels > 0).all(axis=1) & (pixels < (1024, 768)).all(axis=1)
        is_seen &= np.linalg.norm(local[:, :2] / np.maximum(local[:, 2:], 1e-6), axis=1) < 1.2
        chosen = np.flatnonzero(is_seen)
        chosen = chosen[rng.permutation(len(chosen))[:260]]
        for place, point in enumerate(chosen):
            elements[point].append((number, place))
        keypoints[number] = Points2D(
            pixels[chosen] + rng.normal(0, noise_px, (len(chosen), 2)), (chosen + 1).astype(np.uint64)
        )
        images.append(image)
    kept = [index for index, each in enumerate(elements) if len(each) > 1]
    elements = [elements[index] for index in kept]
    none = np.uint64(2**64 - 1)
    for number, seen in keypoints.items():  # what one image alone sees is no point
        is_point = np.isin(seen.point3d_ids, np.array(kept, dtype=np.uint64) + 1)
        keypoints[number] = Points2D(seen.xy, np.where(is_point, seen.point3d_ids, none))
    lengths = np.array([len(each) for each in elements])
    flat = np.array([pair for each in elements for pair in each], np.uint32).reshape(-1, 2)
    tracks = Tracks(np.concatenate([[0], np.cumsum(lengths)]), flat[:, 0], flat[:, 1])
    ids, zeros = np.array(kept, dtype=np.uint64) + 1, np.zeros(len(kept))
    points = Points(xyz[kept], np.zeros((len(kept), 3), np.uint8), zeros, lengths, ids, tracks)
    return WholeScene({1: camera}, images, keypoints, points, {image.name: (1024, 768) for image in images})


def _on_walls(rng: np.random.Generator, count: int, half: float) -> np.ndarray:
    xyz = rng.uniform(-half, half, (count, 3))
    axis, sign = rng.integers(0, 3, count), rng.choice([-1.0, 1.0], count)
    xyz[np.arange(count), axis] = sign * half
    return xyz * (1, 1, 0.5)


def _standing(number: int, radius: float, rng: np.random.Generator) -> Image:
    """Return a camera on a circle that looks inward and a little down."""
    angle = 2 * np.pi * number / 30
    centre = np.array([radius * np.cos(angle), radius * np.sin(angle), radius * (0.24 + 0.08 * rng.standard_normal())])
    forward = -centre / np.linalg.norm(centre) + rng.normal(0, 0.05, 3)
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, (0, 0, 1.0))
    right /= np.linalg.norm(right)
    turn = np.stack([right, np.cross(forward, right), forward])
    import pycolmap

    quat = pycolmap.Rotation3d(turn).quat[[3, 0, 1, 2]]
    return Image(number, f"{number:04d}.jpg", 1, tuple(map(float, quat)), tuple(map(float, -turn @ centre)))
