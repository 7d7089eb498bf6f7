"""Models of absurd size: refused in seconds and within bounds of memory, with the file and the remedy named."""

from __future__ import annotations

import os
import resource
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scenes import MadeScene

from splatbatch.errors import SceneError
from splatbatch.scene.colmap.binary import POINT, read_points
from splatbatch.scene.colmap.copies import write_shifted
from splatbatch.scene.colmap.reconstruction import read_points2d, read_reconstruction

GIB = 1 << 30
ROOM = 2 * GIB
"""Of address space, beyond what the process has."""


@pytest.fixture
def scene(tmp_path: Path) -> MadeScene:
    return MadeScene(tmp_path).write()


@pytest.fixture
def little_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def sparse_file(path: Path, count: int, size: int = 20 * GIB) -> None:
    """Write a file of zeros that takes no room on the disk, behind a count."""
    path.write_bytes(struct.pack("<Q", count))
    os.truncate(path, size)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("part", ["cameras", "images", "points3D"])
@pytest.mark.parametrize("count", [0, 1, 2, 1000, 10**7, 2 * 10**8, 2**60])
def test_a_binary_file_of_20_gib_of_zeros_is_refused_without_being_read(
    scene: MadeScene, part: str, count: int
) -> None:
    sparse_file(scene.sparse / f"{part}.bin", count)
    with pytest.raises(SceneError, match=rf"{part}\.bin: ") as caught:
        read_reconstruction(scene.sparse, tracks=True)
    assert caught.value.hint


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("part", ["cameras", "images", "points3D"])
def test_a_text_file_of_20_gib_of_zeros_is_refused_without_being_read(tmp_path: Path, part: str) -> None:
    scene = MadeScene(tmp_path, suffix="txt").write()
    os.truncate(scene.sparse / f"{part}.txt", 20 * GIB)
    with pytest.raises(SceneError, match=rf"{part}\.txt: ") as caught:
        read_reconstruction(scene.sparse)
    assert caught.value.hint


@pytest.mark.usefixtures("little_memory")
def test_an_image_or_a_point_of_gigabytes_is_refused(scene: MadeScene) -> None:
    images, points = scene.sparse / "images.bin", scene.sparse / "points3D.bin"
    whole = images.read_bytes()
    head = struct.pack("<QI7dI", 1, 1, 1, 0, 0, 0, 0, 0, 0, 1) + b"a.jpg\0"
    images.write_bytes(head + struct.pack("<Q", 10**9))
    os.truncate(images, len(head) + 8 + 24 * 10**9)
    with pytest.raises(SceneError, match=r"images\.bin: image 'a\.jpg' states 1,000,000,000 keypoints"):
        read_points2d(scene.sparse)
    images.write_bytes(whole)
    points.write_bytes(struct.pack("<QQ3d3BdQ", 1, 1, 0, 0, 0, 0, 0, 0, 0, 10**9))
    os.truncate(points, 8 + POINT.itemsize + 8 * 10**9)
    with pytest.raises(SceneError, match=r"points3D\.bin: point 1 of 1 states a track of 1,000,000,000"):
        read_reconstruction(scene.sparse)


@pytest.mark.all
def test_a_large_sound_model_is_read_with_little_more_memory_than_its_points_take(scene: MadeScene) -> None:
    num = 300_000
    rows = np.zeros(num, np.dtype([("point", POINT), ("track", "<u4", (3, 2))]))
    rows["point"]["id"], rows["point"]["length"] = np.arange(num), 3
    rows["point"]["xyz"] = np.random.default_rng(0).normal(size=(num, 3))
    path = scene.sparse / "points3D.bin"
    path.write_bytes(struct.pack("<Q", num) + rows.tobytes())
    tracemalloc.start()
    points = read_points(path, tracks=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(points.xyz, rows["point"]["xyz"])
    assert np.array_equal(points.tracks.image_ids, rows["track"][:, :, 0].ravel())
    assert peak < 4.6 * path.stat().st_size


def test_a_moved_copy_of_a_model_is_written_piece_by_piece(scene: MadeScene, tmp_path: Path) -> None:
    (tmp_path / "moved").mkdir()
    by = np.array([100.0, -20.0, 3.0])
    write_shifted(scene.sparse, (-100.0, 20.0, -3.0), tmp_path / "moved")
    there = read_reconstruction(tmp_path / "moved", tracks=True)
    here = read_reconstruction(scene.sparse, tracks=True)
    assert np.allclose(there.points.xyz, here.points.xyz + by)
    assert np.allclose([i.center() for i in there.images], [i.center() + by for i in here.images])
    assert np.array_equal(there.points.tracks.image_ids, here.points.tracks.image_ids)


def test_a_point_farther_away_than_anything_can_be_computed_with_is_a_finding(tmp_path: Path) -> None:
    scene = MadeScene(tmp_path)
    scene.xyz[3] = (1e300, 0, 4)
    found = scene.write().audit().findings
    assert any("1 of 12 points lie beyond 1e+18" in one.message for one in found), found
