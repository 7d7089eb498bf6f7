"""Small consistent scenes on disk: keypoints are exact projections until a test breaks something."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image as Picture

from splatbatch.scene.audit.audit import Audit, AuditExtent, TrainerRules, audit_patches
from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera, Image
from splatbatch.scene.patches import Patch
from splatbatch.scene.reprojection import project

OURS = TrainerRules(False, frozenset({"PINHOLE", "SIMPLE_PINHOLE"}), "gsplat")
FOV = TrainerRules(True, OURS.camera_models, "brush")
WIDTH, HEIGHT = 96, 72


def pinhole(number: int = 1, width: int = WIDTH, height: int = HEIGHT) -> Camera:
    return Camera(number, "PINHOLE", width, height, (0.9 * width, 0.91 * width, width / 2, height / 2))


def pose(index: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    quat = np.array([1.0, 0.02 * index, -0.03, 0.01 * index])
    return tuple((quat / np.linalg.norm(quat)).tolist()), (0.1 * index, -0.05 * index, 0.02 * index)


@dataclass
class MadeScene:
    root: Path
    cameras: list[Camera] = field(default_factory=lambda: [pinhole()])
    images: list[Image] = field(default_factory=lambda: [Image(i, f"{i:02d}.jpg", 1, *pose(i)) for i in range(1, 9)])
    xyz: np.ndarray = field(default_factory=lambda: np.random.default_rng(7).uniform((-1, -1, 3), (1, 1, 6), (12, 3)))
    track_ids: list[int] | None = None
    suffix: str = "bin"

    @property
    def sparse(self) -> Path:
        return self.root / "sparse/0"

    @property
    def photographs(self) -> Path:
        return self.root / "images"

    def patch(self, name: str = "p0") -> Patch:
        return Patch(name, self.sparse, self.photographs)

    def write(self) -> MadeScene:
        self.write_model()
        for image in self.images:
            camera = next(camera for camera in self.cameras if camera.id == image.camera_id)
            self.photograph(image.name, (camera.width, camera.height))
        return self

    def photograph(self, name: str, size: tuple[int, int], mode: str = "RGB", **options: object) -> Path:
        path = self.photographs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Picture.new(mode, size, 77).save(path, **options)
        return path

    def write_model(self) -> None:
        self.sparse.mkdir(parents=True, exist_ok=True)
        seen = {image.id: self._pixels(image) for image in self.images}
        parts = self._binary(seen) if self.suffix == "bin" else self._text(seen)
        for part, content in parts.items():
            (self.sparse / f"{part}.{self.suffix}").write_bytes(content)

    def audit(self, rules: TrainerRules = OURS, source: Path | None = None, cache: Path | None = None) -> Audit:
        return audit_patches([self.patch()], source, rules, AuditExtent(cache=cache))

    def _pixels(self, image: Image) -> np.ndarray:
        camera = next(camera for camera in self.cameras if camera.id == image.camera_id)
        matrix = image.world_to_camera()
        points = self.xyz @ matrix[:3, :3].T + matrix[:3, 3]
        known = CAMERA_MODELS.get(camera.model)
        is_sound = known and len(known.params) == len(camera.params) and np.isfinite(points).all()
        return project(camera, points) if is_sound and len(points) else np.zeros((len(points), 2))

    def _track(self) -> list[int]:
        return [image.id for image in self.images] if self.track_ids is None else self.track_ids

    def _binary(self, seen: dict[int, np.ndarray]) -> dict[str, bytes]:
        cameras = [
            struct.pack("<IiQQ", c.id, CAMERA_MODELS[c.model].id, c.width, c.height)
            + struct.pack(f"<{len(c.params)}d", *c.params)
            for c in self.cameras
        ]
        images = [
            struct.pack("<I7dI", i.id, *i.quat, *i.translation, i.camera_id)
            + i.name.encode()
            + struct.pack("<BQ", 0, len(seen[i.id]))
            + b"".join(struct.pack("<ddQ", *xy, number) for number, xy in enumerate(seen[i.id], start=1))
            for i in self.images
        ]
        points = [
            struct.pack("<Q3d3BdQ", number, *xyz, 10, 20, 30, 0.5, len(self._track()))
            + b"".join(struct.pack("<II", image, number - 1) for image in self._track())
            for number, xyz in enumerate(self.xyz, start=1)
        ]
        lists = {"cameras": cameras, "images": images, "points3D": points}
        return {part: struct.pack("<Q", len(items)) + b"".join(items) for part, items in lists.items()}

    def _text(self, seen: dict[int, np.ndarray]) -> dict[str, bytes]:
        cameras = [f"{c.id} {c.model} {c.width} {c.height} {_spell(c.params)}" for c in self.cameras]
        images = [
            f"{i.id} {_spell(i.quat)} {_spell(i.translation)} {i.camera_id} {i.name}\n"
            + " ".join(f"{_spell(xy)} {number}" for number, xy in enumerate(seen[i.id].tolist(), start=1))
            for i in self.images
        ]
        points = [
            f"{number} {_spell(xyz)} 10 20 30 0.5 " + " ".join(f"{image} {number - 1}" for image in self._track())
            for number, xyz in enumerate(self.xyz.tolist(), start=1)
        ]
        lists = {"cameras": cameras, "images": images, "points3D": points}
        return {part: "\n".join(["# made by a test", *items, ""]).encode() for part, items in lists.items()}


def _spell(numbers: object) -> str:
    return " ".join(map(repr, numbers))  # type: ignore[call-overload]
