"""Types of a COLMAP model: camera models, cameras, images, points. Ids and conventions are COLMAP's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.errors import SceneError
from splatbatch.scene.rotations import from_quats

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
PINHOLE_MODELS = frozenset({"PINHOLE", "SIMPLE_PINHOLE"})
NO_POINT3D = 2**64 - 1


@dataclass(frozen=True)
class CameraModel:
    """A camera model of COLMAP; `params` are the names of the model's parameters in the order of the file."""

    id: int
    name: str
    params: tuple[str, ...]


CAMERA_MODELS = {
    name: CameraModel(number, name, tuple(params.split()))
    for number, name, params in (  # colmap/src/colmap/sensor/models.h; the last six came with COLMAP 3.12 to 4.2
        (0, "SIMPLE_PINHOLE", "f cx cy"),
        (1, "PINHOLE", "fx fy cx cy"),
        (2, "SIMPLE_RADIAL", "f cx cy k"),
        (3, "RADIAL", "f cx cy k1 k2"),
        (4, "OPENCV", "fx fy cx cy k1 k2 p1 p2"),
        (5, "OPENCV_FISHEYE", "fx fy cx cy k1 k2 k3 k4"),
        (6, "FULL_OPENCV", "fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6"),
        (7, "FOV", "fx fy cx cy omega"),
        (8, "SIMPLE_RADIAL_FISHEYE", "f cx cy k"),
        (9, "RADIAL_FISHEYE", "f cx cy k1 k2"),
        (10, "THIN_PRISM_FISHEYE", "fx fy cx cy k1 k2 p1 p2 k3 k4 sx1 sy1"),
        (11, "RAD_TAN_THIN_PRISM_FISHEYE", "fx fy cx cy k0 k1 k2 k3 k4 k5 p0 p1 s0 s1 s2 s3"),
        (12, "SIMPLE_DIVISION", "f cx cy k"),
        (13, "DIVISION", "fx fy cx cy k"),
        (14, "SIMPLE_FISHEYE", "f cx cy"),
        (15, "FISHEYE", "fx fy cx cy"),
        (16, "EUCM", "fx fy cx cy alpha beta"),
        (17, "EQUIRECTANGULAR", "w h"),
    )
}


def misspelt(model: str) -> str:
    """Return the camera model that a name means if only upper and lower case differ: PINHOLE for PinHole; else ""."""
    known = model.upper()
    return known if known != model and known in CAMERA_MODELS else ""


CAMERA_MODELS_BY_ID = {model.id: model for model in CAMERA_MODELS.values()}


@dataclass(frozen=True)
class Camera:
    """Intrinsics shared by some images; `width` and `height` are in pixels.

    The top-left corner of the image is (0, 0); pixel centres lie at .5.
    """

    id: int
    model: str
    """Name of the camera model; a text file can name one that is not in `CAMERA_MODELS`."""
    width: int
    height: int
    params: tuple[float, ...]
    """Values of the model's parameters, in the order of `CameraModel.params`; a text file can have too few or many."""

    def param(self, *names: str) -> float:
        """Return the value of the first of the named parameters that the camera model has.

        Raises:
            SceneError: the model has none of them or is unknown, or the number of parameters does not fit the model.
        """
        known = CAMERA_MODELS.get(self.model)
        if known is None or len(known.params) != len(self.params):
            wants = f"takes {len(known.params)}" if known else "is an unknown model"
            raise SceneError(f"camera {self.id}: {len(self.params)} parameters, but {self.model} {wants}")
        for name in names:
            if name in known.params:
                return self.params[known.params.index(name)]
        raise SceneError(
            f"camera {self.id}: {self.model} has no parameter {names[0]}",
            "Undistort the reconstruction to PINHOLE cameras: colmap image_undistorter.",
        )

    @property
    def fx(self) -> float:
        """Focal length along x in pixels; raises SceneError where `has_center` is False."""
        return self.param("fx", "f")

    @property
    def fy(self) -> float:
        """Focal length along y in pixels; raises SceneError where `has_center` is False."""
        return self.param("fy", "f")

    @property
    def cx(self) -> float:
        """Principal point along x, in pixels from the left edge; raises SceneError where `has_center` is False."""
        return self.param("cx")

    @property
    def cy(self) -> float:
        """Principal point along y, in pixels from the top edge; raises SceneError where `has_center` is False."""
        return self.param("cy")

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.width, self.height

    @property
    def pinhole(self) -> tuple[float, float, float, float]:
        """Focal lengths and principal point (fx, fy, cx, cy), in pixels; SceneError where `has_center` is False."""
        return self.fx, self.fy, self.cx, self.cy

    @property
    def is_known(self) -> bool:
        """Whether the camera model is known, and takes as many parameters as the camera has."""
        known = CAMERA_MODELS.get(self.model)
        return known is not None and len(known.params) == len(self.params)

    @property
    def has_center(self) -> bool:
        """Whether the camera has a principal point: a panorama has none. False also if `is_known` is False."""
        return self.is_known and "cx" in CAMERA_MODELS[self.model].params

    def named_params(self) -> Iterator[tuple[str, float]]:
        """Return pairs of name and value of the camera's parameters, in the order of the file.

        Raises:
            KeyError: the camera model is unknown.
            ValueError: the camera has another number of parameters than its model; raised at the end of the pairs.
        """
        return zip(CAMERA_MODELS[self.model].params, self.params, strict=True)

    @property
    def K(self) -> Floats:
        """Camera matrix [3, 3] in pixels, without distortion; raises SceneError where `has_center` is False."""
        return np.array([[self.fx, 0.0, self.cx], [0.0, self.fy, self.cy], [0.0, 0.0, 1.0]])


@dataclass(frozen=True)
class Image:
    """A photograph with a pose: x_camera = R(quat) x_world + translation, in units of the model."""

    id: int
    name: str
    """Image name: path below the photograph folder, with "/" between its parts."""
    camera_id: int
    quat: tuple[float, float, float, float]
    """Quaternion w, x, y, z as in the file; not necessarily of unit length."""
    translation: tuple[float, float, float]

    def rotation(self) -> Floats:
        """Return the rotation [3, 3] from world to camera; all NaN if the quaternion is 0 or not finite."""
        return from_quats(np.array([self.quat]))[0]

    def world_to_camera(self) -> Floats:
        """Return the matrix [4, 4] from world to camera coordinates (x right, y down, z forward).

        Its rotation is NaN if the quaternion is 0 or not finite.
        """
        matrix = np.eye(4)
        matrix[:3, :3] = self.rotation()
        matrix[:3, 3] = self.translation
        return matrix

    @np.errstate(all="ignore")
    def center(self) -> Floats:
        """Return the camera centre in world coordinates, [3]; not finite if the pose is invalid."""
        return -self.rotation().T @ np.array(self.translation)

    def has_pose(self) -> bool:
        """Return whether the pose is valid: rotation and camera centre are finite."""
        return bool(np.isfinite(self.center()).all())


def rotations_of(images: Iterable[Image]) -> Floats:
    """Return the rotations of images from world to camera, [I, 3, 3]; NaN where a quaternion is 0 or not finite."""
    return from_quats(np.array([image.quat for image in images], dtype=np.float64).reshape(-1, 4))


def triple(values: Iterable[float]) -> tuple[float, float, float]:
    """Return three numbers, as those of an array, as a tuple of Python floats.

    Raises:
        ValueError: there are not three numbers.
    """
    x, y, z = map(float, values)
    return x, y, z


def finite(rows: Floats) -> Floats:
    """Return the rows of a 2D array whose values are all finite, or the finite values of a 1D array, in order."""
    return rows[np.isfinite(rows) if rows.ndim == 1 else np.logical_and.reduce(np.isfinite(rows), axis=1)]


def centers_of(images: Sequence[Image]) -> Floats:
    """Return the camera centres of images in world coordinates, [I, 3]; not finite where a pose is invalid."""
    places = np.array([image.translation for image in images], dtype=np.float64).reshape(-1, 3)
    with np.errstate(all="ignore"):
        return -np.einsum("iba,ib->ia", rotations_of(images), places)


NONE = -1
"""Index that stands for "not in the list", as `places_in` returns it."""


def places_in(known: NDArray[Any], asked: NDArray[Any]) -> Ints:
    """Return the index in `known` [K] of each id in `asked` [A], [A]; `NONE` (-1) for ids that `known` lacks.

    Of equal ids in `known`, the first counts.
    """
    if not len(known):
        return np.full(len(asked), NONE, dtype=np.int64)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known, asked, sorter=order), len(known) - 1)
    return np.where(known[order[at]] == asked, order[at], NONE)


def starts_of(lengths: NDArray[Any]) -> Ints:
    """Return where consecutive runs of these lengths [N] start, and the end of the last run: [N + 1], from 0 on."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def elements_of(starts: Ints, runs: Ints) -> Ints:
    """Return the indices of all elements of some runs, run after run.

    Args:
        starts: starts of all N runs and the end of the last, [N + 1], as `starts_of` returns them.
        runs: indices of the chosen runs.
    """
    lengths = np.diff(starts)[runs]
    begins = np.cumsum(lengths) - lengths
    return np.repeat(starts[runs] - begins, lengths) + np.arange(int(lengths.sum()))


@dataclass(frozen=True, eq=False)
class Tracks:
    """Observations of points by images: starts[i] up to, not including, starts[i + 1] are those of point i.

    An observation names an image by its id, and one of that image's keypoints by its index.
    """

    starts: Ints  # [P + 1]
    image_ids: NDArray[np.uint32]  # [O]
    point2d_idxs: NDArray[np.uint32]  # [O]

    @property
    def points(self) -> Ints:
        """Index of the point of each observation, [O]."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def by_image(self) -> dict[int, Ints]:
        """Return the indices of each image's observations, ascending, by image id; images without any are left out."""
        order = np.argsort(self.image_ids, kind="stable")
        ids, starts = np.unique(self.image_ids[order], return_index=True)
        return dict(zip(ids.tolist(), np.split(order, starts[1:]), strict=True)) if len(ids) else {}


@dataclass(frozen=True, eq=False)
class Points:
    """The sparse points of a reconstruction, in the order of the file."""

    xyz: Floats  # [P, 3]
    rgb: NDArray[np.uint8]  # [P, 3]
    errors: Floats  # [P], mean reprojection error in pixels as stored
    track_lengths: Ints  # [P]
    ids: NDArray[np.uint64]  # [P]
    tracks: Tracks | None = None
    """Images and keypoints that see each point; None: not read (`tracks=False`), or left out, as by `only`."""

    def only(self, kept: Mask | Ints) -> Points:
        """Return the chosen points, without their tracks.

        Args:
            kept: a mask [P], or indices of points.
        """
        return Points(self.xyz[kept], self.rgb[kept], self.errors[kept], self.track_lengths[kept], self.ids[kept])

    def __len__(self) -> int:
        return len(self.xyz)


@dataclass(frozen=True, eq=False)
class Points2D:
    """Keypoints of one image: positions in pixels, and ids of their 3D points."""

    xy: Floats  # [N, 2] in pixels
    point3d_ids: NDArray[np.uint64]  # [N], NO_POINT3D where the keypoint was not triangulated
