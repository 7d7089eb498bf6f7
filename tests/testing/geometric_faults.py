"""Faults that only the geometry shows, each as a change of a whole scene, and the cause that should be named."""

# ruff: noqa: E501 - a table is read by its lines

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from whole_scene import WholeScene

from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera, Image, Points2D

Spoil = Callable[[WholeScene], None]


@dataclass(frozen=True)
class Fault:
    name: str
    kinds: tuple[str, ...]
    """Of which one names the cause rightly."""
    spoil: Spoil
    says: str = ""
    """What the message must have in it, besides."""
    needs: str = ""
    """"rig": two cameras; "lens": a distortion; "pinhole": none."""


def in_some(scene: WholeScene, spoil: Spoil, rows: tuple[int, ...]) -> WholeScene:
    """Return a copy of a scene with what a fault does to some photographs and their cameras alone; no rows: to all."""
    spoilt, found = scene.copy(), scene.copy()
    spoil(spoilt)
    if not rows:
        return spoilt
    of_id = {image.id: image for image in spoilt.images}
    for row in rows:
        image = of_id[scene.images[row].id]
        number = scene.images[row].camera_id
        found.images[row], found.keypoints[image.id] = replace(image, camera_id=number), spoilt.keypoints[image.id]
        found.cameras[number] = replace(spoilt.cameras[image.camera_id], id=number)
        found.photos[image.name] = spoilt.photos[image.name]
    return found


def with_params(camera: Camera, **changes: float) -> Camera:
    names = CAMERA_MODELS[camera.model].params
    known = dict(zip(names, camera.params, strict=True))
    for name, value in changes.items():
        for each in [name] if name in known else ["f"] if name in ("fx", "fy") and "f" in known else []:
            known[each] = value
    return replace(camera, params=tuple(known.values()))


def cameras(change: Callable[[Camera], Camera], only: int | None = None) -> Spoil:
    def spoil(scene: WholeScene) -> None:
        chosen = max(scene.cameras) if only == -1 else only
        for number, camera in scene.cameras.items():
            if chosen in (None, number):
                scene.cameras[number] = change(camera)

    return spoil


def scaled_k(factor: float, *, size: bool = False) -> Callable[[Camera], Camera]:
    def change(camera: Camera) -> Camera:
        names = {"fx": camera.fx, "fy": camera.fy, "cx": camera.cx, "cy": camera.cy}
        scaled = with_params(camera, **{name: value * factor for name, value in names.items()})
        sides = (round(camera.width * factor), round(camera.height * factor)) if size else (camera.width, camera.height)
        return replace(scaled, width=sides[0], height=sides[1])

    return change


def focal(x: float, y: float | None = None) -> Callable[[Camera], Camera]:
    return lambda camera: with_params(camera, fx=camera.fx * x, fy=camera.fy * (x if y is None else y))


def principal(x: float, y: float) -> Callable[[Camera], Camera]:
    return lambda camera: with_params(camera, cx=camera.cx + x * camera.width, cy=camera.cy + y * camera.height)


def principal_exchanged(camera: Camera) -> Camera:
    return with_params(camera, cx=camera.cy, cy=camera.cx)


def unbend(camera: Camera) -> Camera:
    return replace(camera, model="PINHOLE", params=(camera.fx, camera.fy, camera.cx, camera.cy))


def bent_pinhole(camera: Camera) -> Camera:
    return replace(camera, model="OPENCV", params=(*camera.params, 0.15, -0.05, 0.0, 0.0))


def negate(camera: Camera) -> Camera:
    first = 3 if CAMERA_MODELS[camera.model].params[0] == "f" else 4
    return replace(camera, params=(*camera.params[:first], *(-value for value in camera.params[first:])))


def images(change: Callable[[Image], Image], part: slice = slice(None)) -> Spoil:
    def spoil(scene: WholeScene) -> None:
        chosen = {image.id for image in scene.images[part]}
        scene.images = [change(image) if image.id in chosen else image for image in scene.images]

    return spoil


def posed(image: Image, matrix: np.ndarray, *, quat: tuple[float, ...] | None = None) -> Image:
    found = quat or quat_of(matrix[:3, :3])
    return replace(image, quat=tuple(map(float, found)), translation=tuple(map(float, matrix[:3, 3])))


def quat_of(turn: np.ndarray) -> tuple[float, ...]:
    import pycolmap

    return tuple(pycolmap.Rotation3d(turn).quat[[3, 0, 1, 2]])


def inverted(image: Image) -> Image:
    return posed(image, np.linalg.inv(image.world_to_camera()))


def opengl(image: Image) -> Image:
    return posed(image, np.diag([1.0, -1, -1, 1]) @ image.world_to_camera())


def transform_matrix(image: Image) -> Image:
    """As NeRF programs write it: camera-to-world with OpenGL's axes."""
    return posed(image, np.linalg.inv(np.diag([1.0, -1, -1, 1]) @ image.world_to_camera()))


def centre_as_translation(image: Image) -> Image:
    return replace(image, translation=tuple(image.center().tolist()))


def transposed_rotation(image: Image) -> Image:
    return replace(image, quat=(image.quat[0], *(-value for value in image.quat[1:])))


def xyzw(image: Image) -> Image:
    w, x, y, z = image.quat
    return replace(image, quat=(x, y, z, w))


def inverted_xyzw(image: Image) -> Image:
    return xyzw(inverted(image))


def moved(offset: tuple[float, float, float], degrees: float = 0.0) -> Callable[[Image], Image]:
    def change(image: Image) -> Image:
        angle = np.radians(degrees)
        turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
        matrix = image.world_to_camera()
        matrix[:3, :3] = turn @ matrix[:3, :3]
        matrix[:3, 3] = turn @ matrix[:3, 3] + offset
        return posed(image, matrix)

    return change


def points(change: Callable[[np.ndarray], np.ndarray]) -> Spoil:
    def spoil(scene: WholeScene) -> None:
        scene.points = replace(scene.points, xyz=change(scene.points.xyz))

    return spoil


def poses_scaled(factor: float) -> Spoil:
    return images(lambda image: replace(image, translation=tuple(factor * value for value in image.translation)))


def keypoints(change: Callable[[np.ndarray, Camera], np.ndarray], part: slice = slice(None)) -> Spoil:
    def spoil(scene: WholeScene) -> None:
        for image in scene.images[part]:
            scene.set_xy(image, change(scene.keypoints[image.id].xy, scene.cameras[image.camera_id]))

    return spoil


def exchange_poses(scene: WholeScene) -> None:
    a, b = scene.images[1], scene.images[6]
    scene.images[1] = replace(a, quat=b.quat, translation=b.translation)
    scene.images[6] = replace(b, quat=a.quat, translation=a.translation)


def shift_poses(scene: WholeScene) -> None:
    old = list(scene.images)
    scene.images = [
        replace(image, quat=other.quat, translation=other.translation)
        for image, other in zip(old, [*old[1:], old[0]], strict=True)
    ]


def exchange_keypoints(scene: WholeScene) -> None:
    a, b = scene.images[2].id, scene.images[9].id
    scene.keypoints[a], scene.keypoints[b] = scene.keypoints[b], scene.keypoints[a]


def exchange_cameras(scene: WholeScene) -> None:
    first, second = sorted(scene.cameras)[:2]
    other = {first: second, second: first}
    scene.images = [replace(image, camera_id=other.get(image.camera_id, image.camera_id)) for image in scene.images]


def camera_of_some(scene: WholeScene) -> None:
    first, second = sorted(scene.cameras)[:2]
    chosen = {image.id for image in scene.of_camera(first)[:3]}
    scene.images = [replace(image, camera_id=second) if image.id in chosen else image for image in scene.images]


def shift_ids(scene: WholeScene) -> None:
    none = np.uint64(2**64 - 1)
    for number, seen in scene.keypoints.items():
        ids = np.where(seen.point3d_ids == none, none, seen.point3d_ids + np.uint64(1))
        scene.keypoints[number] = Points2D(seen.xy, ids)


def shuffle_points(scene: WholeScene) -> None:
    order = np.random.default_rng(0).permutation(len(scene.points))
    scene.points = replace(scene.points, xyz=scene.points.xyz[order])


def left_behind(factor: float) -> Spoil:
    """Photographs and width and height resized, K and keypoints left."""

    def spoil(scene: WholeScene) -> None:
        for number, camera in scene.cameras.items():
            sides = (round(camera.width * factor), round(camera.height * factor))
            scene.cameras[number] = replace(camera, width=sides[0], height=sides[1])
        scene.photos = {
            image.name: (scene.cameras[image.camera_id].width, scene.cameras[image.camera_id].height)
            for image in scene.images
        }

    return spoil


def rescaled_but_keypoints(factor: float) -> Spoil:
    def spoil(scene: WholeScene) -> None:
        cameras(scaled_k(factor, size=True))(scene)
        for image in scene.images:
            camera = scene.cameras[image.camera_id]
            scene.photos[image.name] = (camera.width, camera.height)

    return spoil


def cropped_left(left: float, top: float, right: float, bottom: float) -> Spoil:
    """Photographs and width and height cropped by shares of the sides, K and keypoints left."""

    def spoil(scene: WholeScene) -> None:
        for number, camera in scene.cameras.items():
            sides = (round(camera.width * (1 - left - right)), round(camera.height * (1 - top - bottom)))
            scene.cameras[number] = replace(camera, width=sides[0], height=sides[1])
        for image in scene.images:
            camera = scene.cameras[image.camera_id]
            scene.photos[image.name] = (camera.width, camera.height)

    return spoil


def cropped_but_keypoints(share: float) -> Spoil:
    """Photographs, width, height and principal point cropped about the centre, keypoints left."""

    def spoil(scene: WholeScene) -> None:
        for number, camera in scene.cameras.items():
            cut = (round(camera.width * share), round(camera.height * share))
            smaller = with_params(camera, cx=camera.cx - cut[0], cy=camera.cy - cut[1])
            scene.cameras[number] = replace(smaller, width=camera.width - 2 * cut[0], height=camera.height - 2 * cut[1])
        for image in scene.images:
            camera = scene.cameras[image.camera_id]
            scene.photos[image.name] = (camera.width, camera.height)

    return spoil


def size_alone(factor: float, only: int | None = None) -> Spoil:
    change = lambda camera: replace(camera, width=round(camera.width * factor), height=round(camera.height * factor))  # noqa: E731
    return cameras(change, only)


def right_poses_of_left(scene: WholeScene) -> None:
    first, second = sorted(scene.cameras)[:2]
    lefts, rights = scene.of_camera(first), scene.of_camera(second)
    poses = {right.id: left for left, right in zip(lefts, rights, strict=True)}
    scene.images = [
        replace(image, quat=poses[image.id].quat, translation=poses[image.id].translation)
        if image.id in poses
        else image
        for image in scene.images
    ]


def stray(share: float) -> Spoil:
    def change(xyz: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng(0)
        is_moved = rng.random(len(xyz)) < share
        return xyz + is_moved[:, None] * rng.normal(0, xyz.std(), xyz.shape)

    return points(change)


def shaken(scene: WholeScene) -> None:
    rng = np.random.default_rng(1)
    scene.images = [moved((0, 0, 0), float(rng.choice([-3, 3]) * rng.uniform(1, 2)))(image) for image in scene.images]


def opposite_translation(image: Image) -> Image:
    return replace(image, translation=tuple(-value for value in image.translation))


def axes_exchanged(xyz: np.ndarray) -> np.ndarray:
    return np.stack([xyz[:, 0], -xyz[:, 2], xyz[:, 1]], axis=1)


def spin(xyz: np.ndarray) -> np.ndarray:
    turn = np.array([[np.cos(0.5), -np.sin(0.5), 0], [np.sin(0.5), np.cos(0.5), 0], [0, 0, 1]])
    return 1.7 * xyz @ turn.T + (3.0, -2.0, 1.0)


K_KINDS, HALF = ("focal_off",), slice(0, None, 2)
FAULTS = [
    Fault("principal point 12 % off", ("principal_point_off",), cameras(principal(0.12, 0.12))),
    Fault("principal point 3 % off in x", ("principal_point_off",), cameras(principal(0.03, 0))),
    Fault("principal point 8 % off in y, one camera", ("principal_point_off",), cameras(principal(0, -0.08), -1)),
    Fault("cx and cy exchanged", ("principal_point_off",), cameras(principal_exchanged), "exchanged"),
    Fault("principal point at 0, 0", ("principal_point_off",), cameras(lambda c: with_params(c, cx=1.0, cy=1.0))),
    Fault("focal x2", K_KINDS, cameras(focal(2)), "2 times"),
    Fault("focal x10", K_KINDS, cameras(focal(9.9)), "9.9 times"),
    Fault("focal x0.5", K_KINDS, cameras(focal(0.5)), "0.5 times"),
    Fault("focal 5 % long", K_KINDS, cameras(focal(1.05)), "1.05 times"),
    Fault("focal x1.3, one camera", K_KINDS, cameras(focal(1.3), -1), "1.3 times"),
    Fault("K halved alone", ("k_rescaled",), cameras(scaled_k(0.5))),
    Fault("K as shares of the width", ("k_rescaled",), cameras(scaled_k(1 / 1000))),
    Fault("K x1.25 alone", ("k_rescaled",), cameras(scaled_k(1.25))),
    Fault("K x0.8 alone, one camera", ("k_rescaled",), cameras(scaled_k(0.8), -1)),
    Fault("K and size halved, keypoints left, photographs halved", ("keypoints_left",), rescaled_but_keypoints(0.5)),
    Fault("K and size x0.75, photographs x0.75, keypoints left", ("keypoints_left",), rescaled_but_keypoints(0.75)),
    Fault("cropped about the centre, keypoints left", ("keypoints_left",), cropped_but_keypoints(0.1)),
    Fault("photographs and size x0.8, K left", ("k_left_behind",), left_behind(0.8)),
    Fault("photographs and size x0.5, K left", ("k_left_behind",), left_behind(0.5)),
    Fault("photographs and size x1.25, K left", ("k_left_behind",), left_behind(1.25)),
    Fault("photographs and size cropped by 20 % in x, K left", ("k_left_behind",), cropped_left(0.1, 0, 0.1, 0)),
    Fault("keypoints of half the images x0.5", ("half_applied",), keypoints(lambda xy, c: xy * 0.5, HALF)),
    Fault("keypoints of 3 images x0.8", ("half_applied",), keypoints(lambda xy, c: xy * 0.8, slice(0, 3))),
    Fault("keypoints of some images shifted by a crop", ("half_applied",), keypoints(lambda xy, c: xy - 20, slice(2, 7))),
    Fault("keypoints mirrored", ("mirrored",), keypoints(lambda xy, c: np.array([c.width, 0]) + xy * (-1, 1))),
    Fault("keypoints turned by 90 degrees", ("turned",), keypoints(lambda xy, c: np.stack([c.height - xy[:, 1], xy[:, 0]], 1))),
    Fault("width and height alone halved", ("size_alone",), size_alone(0.5)),
    Fault("width and height alone x1.5, one camera", ("size_alone",), size_alone(1.5, -1)),
    Fault("poses camera-to-world", ("inverted_poses",), images(inverted), "camera-to-world"),
    Fault("poses camera-to-world, OpenGL axes", ("inverted_poses",), images(transform_matrix), "OpenGL"),
    Fault("OpenGL axes", ("flipped_axes",), images(opengl), "OpenGL"),
    Fault("camera centres as translations", ("inverted_poses",), images(centre_as_translation), "centres"),
    Fault("rotations transposed", ("inverted_poses",), images(transposed_rotation), "rotations"),
    Fault("quaternions x, y, z, w", ("quaternion_order",), images(xyzw)),
    Fault("camera-to-world and x, y, z, w", ("inverted_poses",), images(inverted_xyzw), "x, y, z, w"),
    Fault("every other pose camera-to-world", ("inverted_poses",), images(inverted, HALF)),
    Fault("poses of two images exchanged", ("poses_exchanged",), exchange_poses),
    Fault("poses shifted by one", ("poses_exchanged",), shift_poses, "shifted"),
    Fault("keypoints of two images exchanged", ("poses_exchanged", "half_applied"), exchange_keypoints),
    Fault("one pose turned by 5 degrees", ("wrong_pose", "half_applied"), images(moved((0, 0, 0), 5), slice(4, 5))),
    Fault("points x2, poses not", ("points_moved",), points(lambda xyz: 2 * xyz), "scaled by 0.5"),
    Fault("poses x0.1, points not", ("points_moved",), poses_scaled(0.1), "scaled by 0.1"),
    Fault("points shifted", ("points_moved",), points(lambda xyz: xyz + np.array([100.0, -50, 7])), "shifted"),
    Fault("points z up, poses not", ("points_moved",), points(axes_exchanged), "axes"),
    Fault("points turned, scaled and shifted", ("points_moved",), points(spin), "turned"),
    Fault("a quarter of the points moved", ("stray_points",), stray(0.25)),
    Fault("every pose turned by 3 to 6 degrees", ("wrong_pose",), shaken),
    Fault("translations negated", ("inverted_poses",), images(opposite_translation), "sign"),
    Fault("OpenGL axes of half the images", ("flipped_axes",), images(opengl, HALF)),
    Fault("fy 10 % long", ("focal_off", "wrong_k"), cameras(lambda c: with_params(c, fy=c.fy * 1.1))),
    Fault("points numbered one too low", ("points_mismatch",), shift_ids, "one"),
    Fault("points of another model", ("points_mismatch",), shuffle_points, "belong"),
    Fault("cameras exchanged", ("cameras_exchanged",), exchange_cameras, needs="rig"),
    Fault("three images with the other camera", ("cameras_exchanged",), camera_of_some, needs="rig"),
    Fault("right eyes with the left eyes' poses", ("poses_exchanged", "wrong_pose"), right_poses_of_left, needs="rig"),
    Fault("distortion dropped", ("distortion_dropped",), cameras(unbend), needs="lens"),
    Fault("distortion of the wrong sign", ("wrong_lens",), cameras(negate), needs="lens"),
    Fault("undistorted, a distortion made up", ("distortion_kept",), cameras(bent_pinhole), needs="pinhole"),
]  # fmt: skip
