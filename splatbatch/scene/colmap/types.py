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
    """A camera model of COLMAP; `params` are the names of its parameters in the order of the file."""

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
    """Return the camera model whose name differs only in upper and lower case (PINHOLE for PinHole); else ""."""
    known = model.upper()
    return known if known != model and known in CAMERA_MODELS else ""


CAMERA_MODELS_BY_ID = {model.id: model for model in CAMERA_MODELS.values()}


@dataclass(frozen=True)
class Camera:
    """Intrinsics shared by some images. The top-left corner of the image is (0, 0), pixel centres lie at .5."""

    id: int
    model: str
    """Name of the camera model; a text file can name one that is not in `CAMERA_MODELS`."""
    width: int
    height: int
    params: tuple[float, ...]

    def param(self, *names: str) -> float:
        """Return the first of the named parameters that the model has.

        Raises:
            SceneError: the model has none of them, or the count of parameters does not fit the model.
        """
        known = CAMERA_MODELS.get(self.model)
        if known is None or len(known.params) != len(self.params):
            wants = f"takes {len(known.params)}" if known else "is unknown"
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
        """Focal length along x in pixels."""
        return self.param("fx", "f")

    @property
    def fy(self) -> float:
        """Focal length along y in pixels."""
        return self.param("fy", "f")

    @property
    def cx(self) -> float:
        """Principal point along x, in pixels from the left edge."""
        return self.param("cx")

    @property
    def cy(self) -> float:
        """Principal point along y, in pixels from the top edge."""
        return self.param("cy")

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.width, self.height

    @property
    def pinhole(self) -> tuple[float, float, float, float]:
        """Focal lengths and principal point (fx, fy, cx, cy), without distortion."""
        return self.fx, self.fy, self.cx, self.cy

    @property
    def has_center(self) -> bool:
        """Whether its model is known, takes its parameters, and has a principal point; a panorama has none."""
        known = CAMERA_MODELS.get(self.model)
        return known is not None and len(known.params) == len(self.params) and "cx" in known.params

    def named_params(self) -> Iterator[tuple[str, float]]:
        """Yield pairs of name and value of its parameters."""
        return zip(CAMERA_MODELS[self.model].params, self.params, strict=True)

    @property
    def K(self) -> Floats:
        """Matrix of the pinhole part, [3, 3]; distortion is not in it."""
        return np.array([[self.fx, 0.0, self.cx], [0.0, self.fy, self.cy], [0.0, 0.0, 1.0]])


@dataclass(frozen=True)
class Image:
    """A photograph with a pose: x_camera = R(quat) x_world + translation."""

    id: int
    name: str
    """Image name: path below the photograph folder, with "/" between its parts."""
    camera_id: int
    quat: tuple[float, float, float, float]
    """Quaternion w, x, y, z as in the file; not necessarily of unit length."""
    translation: tuple[float, float, float]

    def rotation(self) -> Floats:
        """Return the 3x3 rotation from world to camera; NaN where the quaternion is no rotation."""
        return from_quats(np.array([self.quat]))[0]

    def world_to_camera(self) -> Floats:
        """Return the [4, 4] matrix from world to camera coordinates (x right, y down, z forward)."""
        matrix = np.eye(4)
        matrix[:3, :3] = self.rotation()
        matrix[:3, 3] = self.translation
        return matrix

    def center(self) -> Floats:
        """Return the camera centre in world coordinates, [3]."""
        with np.errstate(all="ignore"):
            return -self.rotation().T @ np.array(self.translation)


def rotations_of(images: Iterable[Image]) -> Floats:
    """Return the rotations of images, [I, 3, 3]; NaN where a quaternion is no rotation."""
    return from_quats(np.array([image.quat for image in images], dtype=np.float64).reshape(-1, 4))


def triple(values: Iterable[float]) -> tuple[float, float, float]:
    """Return three numbers as a tuple of Python floats."""
    x, y, z = map(float, values)
    return x, y, z


def finite(rows: Floats) -> Floats:
    """Return the rows of a 2D array, or the values of a 1D array, that are finite."""
    return rows[np.isfinite(rows) if rows.ndim == 1 else np.logical_and.reduce(np.isfinite(rows), axis=1)]


def centers_of(images: Sequence[Image]) -> Floats:
    """Return the camera centres of images, [I, 3]; not finite where a pose is invalid."""
    places = np.array([image.translation for image in images], dtype=np.float64).reshape(-1, 3)
    with np.errstate(all="ignore"):
        return -np.einsum("iba,ib->ia", rotations_of(images), places)


NONE = -1
"""Index of a value that a list does not hold."""


def places_in(known: NDArray[Any], asked: NDArray[Any]) -> Ints:
    """Return the index in `known` of each id in `asked`; `NONE` for ids that are not in it."""
    if not len(known):
        return np.full(len(asked), NONE, dtype=np.int64)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known, asked, sorter=order), len(known) - 1)
    return np.where(known[order[at]] == asked, order[at], NONE)


def starts_of(lengths: NDArray[Any]) -> Ints:
    """Return the starts of consecutive runs with these lengths [N], and the end of the last, [N + 1]."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def elements_of(starts: Ints, runs: Ints) -> Ints:
    """Return the indices of all elements of the given runs, from the starts of all runs."""
    lengths = np.diff(starts)[runs]
    begins = np.cumsum(lengths) - lengths
    return np.repeat(starts[runs] - begins, lengths) + np.arange(int(lengths.sum()))


@dataclass(frozen=True, eq=False)
class Tracks:
    """Observations of points: observations starts[i] to starts[i + 1] belong to point i."""

    starts: Ints  # [P + 1]
    image_ids: NDArray[np.uint32]  # [O]
    point2d_idxs: NDArray[np.uint32]  # [O]

    @property
    def points(self) -> Ints:
        """Index of the point of each observation, [O]."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def by_image(self) -> dict[int, Ints]:
        """Return the indices of each image's observations, by image id."""
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
    """Tracks of the points; None unless the reader was asked for them."""

    def only(self, kept: Mask | Ints) -> Points:
        """Return the chosen points, without their tracks."""
        return Points(self.xyz[kept], self.rgb[kept], self.errors[kept], self.track_lengths[kept], self.ids[kept])

    def __len__(self) -> int:
        return len(self.xyz)


@dataclass(frozen=True, eq=False)
class Points2D:
    """Keypoints of one image."""

    xy: Floats  # [N, 2] in pixels
    point3d_ids: NDArray[np.uint64]  # [N], NO_POINT3D where the keypoint was not triangulated
