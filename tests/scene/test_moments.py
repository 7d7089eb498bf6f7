"""Which photographs are of one frame: by rigs, else by names that poses do not deny; and what is held out of frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from stereo import STEP, image, rigs_of_two, stereo

from splatbatch.scene.colmap.types import Image
from splatbatch.scene.holdout import every_nth_frame, in_words
from splatbatch.scene.moments import frames_of, moment_and_camera

Place = Callable[[int, int], tuple[float, float, float]]
"""Where the photograph of a moment by a camera was taken."""


def rig(moment: int, camera: int) -> tuple[float, float, float]:
    """Cameras side by side, that fly on."""
    return (STEP * moment, 0.05 * camera, 0.0)


def flights(moment: int, camera: int) -> tuple[float, float, float]:
    """Each flight begins elsewhere and goes another way."""
    x, y = [(1, 0), (0, 1), (-1, 0)][camera]
    return (2.0 * camera + STEP * moment * x, STEP * moment * y, 0.0)


def late(moment: int, camera: int) -> tuple[float, float, float]:
    """The second camera is up to half a step behind: no cable synchronises them."""
    return (STEP * (moment - camera * ((7 * moment) % 10) / 20), 0.05 * camera, 0.0)


def mislaid(moment: int, camera: int) -> tuple[float, float, float]:
    """A third of the poses is wrong."""
    return flights(moment, camera) if moment % 3 == 0 else rig(moment, camera)


def taken(names: Sequence[str], place: Place, num: int = 12) -> list[Image]:
    """Return photographs by cameras with names of such forms."""
    every = [(moment, camera) for moment in range(num) for camera in range(len(names))]
    return [image(1 + i, names[c].format(m), place(m, c), 1 + c) for i, (m, c) in enumerate(every)]


@pytest.mark.parametrize(
    ("names", "place", "size"),
    [
        (["left/{:04d}.jpg", "right/{:04d}.jpg"], rig, 2),
        (["left/{:d}.jpg", "right/{:04d}.jpg"], rig, 2),  # numbers that are padded otherwise
        (["left/IMG_{:04d}.JPG", "right/img_{:04d}.jpg"], rig, 2),
        (["left/{:04d}.jpg", "right/{:04d}.png"], rig, 2),
        (["cam1/{:04d}.jpg", "cam2/{:04d}.jpg", "cam3/{:04d}.jpg"], rig, 3),
        (["reef/a/day/{:04d}.jpg", "reef/b/day/{:04d}.jpg"], rig, 2),
        (["{:04d}/left.jpg", "{:04d}/right.jpg"], rig, 2),
        (["frame{:03d}/cam0.png", "frame{:03d}/cam1.png", "frame{:03d}/cam2.png"], rig, 3),
        (["IMG_{:04d}_left.jpg", "IMG_{:04d}_right.jpg"], rig, 2),
        (["L_{:04d}.jpg", "R_{:04d}.jpg"], rig, 2),
        (["{:04d}L.jpg", "{:04d}R.jpg"], rig, 2),
        (["Left{:04d}.jpg", "RIGHT{:04d}.jpg"], rig, 2),
        (["cam0_{:04d}.jpg", "cam1_{:04d}.jpg"], rig, 2),
        (["cam_0_{:04d}.jpg", "cam_1_{:04d}.jpg"], rig, 2),
        (["a/{:04d}.jpg", "b/{:04d}.jpg"], late, 2),
        (["a/{:04d}.jpg", "b/{:04d}.jpg"], mislaid, 2),  # in doubt a frame
        (["flight1/DJI_{:04d}.jpg", "flight2/DJI_{:04d}.jpg"], flights, 1),
        (["100MEDIA/DJI_{:04d}.jpg", "101MEDIA/DJI_{:04d}.jpg", "102MEDIA/DJI_{:04d}.jpg"], flights, 1),
        (["front_{:04d}.jpg", "back_{:04d}.jpg"], flights, 1),  # of a house
        (["a/{:04d}.jpg", "b/DSC{:04d}.jpg"], rig, 1),  # unlike names
        (["IMG_{:04d}_1.jpg", "IMG_{:04d}_2.jpg"], rig, 1),  # a number names no camera
        (["cam_{:04d}.jpg"], rig, 1),
        (["photo{:d}.jpg"], rig, 1),
        (["{:d}1.jpg", "{:d}01.jpg"], rig, 1),  # zeros count inside a number
    ],
)
def test_photographs_of_one_moment_are_a_frame(names: list[str], place: Place, size: int) -> None:
    images = taken(names, place)
    found = frames_of(images)
    assert {len(frame) for frame in found} == {size}
    expected = {tuple(sorted(name.format(moment) for name in names)) for moment in range(12)}
    assert size == 1 or {*found} == expected


@pytest.mark.parametrize(
    ("name", "moment", "camera"),
    [
        ("left/0012.jpg", "12", "*/left"),
        ("0012/left.jpg", "12", "*/left"),
        ("Dive 2/R_0100.JPG", "*_100", "dive 2/r"),
        ("img_12_cam3.png", "img_12_*", "cam3"),
        ("cam_0012.png", "cam_12", ""),
        ("camera 1/a.b.c", "camera 1", "a.b"),
        ("bright/0001", "1", "bright"),
        ("", "", ""),
    ],
)
def test_a_path_is_a_moment_and_a_camera(name: str, moment: str, camera: str) -> None:
    assert moment_and_camera(name) == (moment, camera)


def test_photographs_in_one_numbered_folder_are_no_frame() -> None:
    images = [image(i + 1, f"dive2/{name}.jpg", rig(i, 0)) for i, name in enumerate(("reef", "wall", "eel", "arch"))]
    assert {len(frame) for frame in frames_of(images)} == {1}


def test_a_missing_twin_leaves_its_other_alone() -> None:
    images = [one for one in stereo() if one.name != "B/0007.png"]
    found = frames_of(images)
    assert ("A/0007.png",) in found
    assert sorted(map(len, found)) == [1, *[2] * 19]


def test_rigs_count_whatever_names_say_and_trivial_ones_say_nothing() -> None:
    images, named = stereo("rigs"), stereo("folders")
    rigs = rigs_of_two(images)
    assert {len(frame) for frame in frames_of(images)} == {1}
    assert frames_of(images, rigs) == tuple((f"ll{i:02d}.png", f"rr{i:02d}.png") for i in range(20))
    assert frames_of(images[1:], rigs) == frames_of(images[1:])  # frames of other images
    assert {len(frame) for frame in frames_of(named, rigs.of(set()))} == {2}


def test_poses_that_are_none_deny_nothing() -> None:
    nowhere = [image(one.id, one.name, (np.nan, 0, 0), one.camera_id) for one in stereo()]
    assert {len(frame) for frame in frames_of(nowhere)} == {2}


@pytest.mark.parametrize("every", [1, 2, 3, 5, 8, 30])
@pytest.mark.parametrize("num", [0, 1, 2, 7, 8, 9, 41])
def test_of_photographs_that_were_taken_alone_every_nth_is_held_out_as_ever(num: int, every: int) -> None:
    names = [f"{number:03d}.jpg" for number in range(num)]
    assert every_nth_frame([(name,) for name in names], every) == frozenset(names[::every])
    assert every_nth_frame([(name,) for name in names], 0) == frozenset()


@pytest.mark.parametrize(
    ("sizes", "held"),  # of each frame; which frames are held out
    [
        ([2] * 20, [0, 8, 16]),
        ([2] * 8, [0]),
        ([2] * 4, [0]),
        ([5] * 17, [0, 8, 16]),
        ([1] + [2] * 7, [0, 4]),  # never fewer than every 8th photograph
        ([1, 2] * 10, [0, 5, 16]),
    ],
)
def test_of_frames_whole_ones_are_held_out_and_no_fewer_photographs(sizes: list[int], held: list[int]) -> None:
    frames = [tuple(f"{number:02d}/{part}.jpg" for part in range(size)) for number, size in enumerate(sizes)]
    found = every_nth_frame(frames, 8)
    assert found == {name for number in held for name in frames[number]}
    assert -(-sum(sizes) // 8) <= len(found) <= sum(sizes) / 4


@pytest.mark.parametrize("sizes", [[40], [20, 20], [13, 13, 14]])
def test_of_few_moments_of_many_cameras_single_photographs_are_held_out_and_it_is_said(sizes: list[int]) -> None:
    frames = [tuple(f"{number}/{part:02d}.jpg" for part in range(size)) for number, size in enumerate(sizes)]
    found = every_nth_frame(frames, 8)
    assert len(found) == 5
    words = "5 of 40 photographs are held out; for 5 of them another photograph of the same moment is trained on"
    assert in_words(tuple(frames), found).startswith(words)


def test_what_is_held_out_is_said_in_frames_where_there_are_such() -> None:
    frames = frames_of(stereo())
    expected = "6 of 40 photographs are held out: 3 frames, so that no stereo twin is trained on"
    assert in_words(frames, every_nth_frame(frames, 8)) == expected
    alone = tuple((name,) for frame in frames for name in frame)
    assert in_words(alone, every_nth_frame(alone, 8)) == ""
