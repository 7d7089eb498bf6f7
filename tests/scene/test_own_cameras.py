"""Where each photograph has a camera of its own, as most photogrammetry programs write them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from geometric_faults import FAULTS, Fault, in_some
from loaded_script import load_script
from scipy.spatial.transform import Rotation
from whole_scene import (
    TAKES_ALL,
    WholeScene,
    synthesised,
    walked,
    with_own_cameras,
    with_refined_cameras,
    with_second_camera,
)

from splatbatch.scene.audit.audit import Audit, audit_patches
from splatbatch.scene.audit.table import render

ROOT = Path(__file__).resolve().parents[2]
QUARRY = ROOT / "examples/quarry"
PHONE = ("OPENCV", [820.0, 815, 508, 380, 0.11, -0.08, 0.001, 0.0005])
RIG = ("OPENCV", [700, 695, 512, 384, -0.22, 0.05, 0.001, 0.002])
MODES: dict[str, tuple[Callable[[], WholeScene], tuple[int, ...]]] = {
    "each its own": (lambda: with_own_cameras(walked(*PHONE, seed=1)), ()),
    "each its own, refined": (lambda: with_refined_cameras(synthesised(*RIG, seed=11)), ()),
    "each its own, one spoilt": (lambda: with_own_cameras(WholeScene.read(QUARRY / "sparse/0")), (4,)),
    "a second one of three, these spoilt": (lambda: with_second_camera(walked(*PHONE, seed=1)), (6, 7, 8)),
}
"""Scenes, and the rows of the images that are spoilt; none: all."""
LEAST_NAMED = 0.9


def kinds_of(fault: Fault, rows: tuple[int, ...]) -> set[str]:
    """Return the kinds that name a fault rightly where no other photograph has the cameras."""
    kinds = set(fault.kinds)
    if "half_applied" in kinds:  # there is no other half
        kinds |= {"keypoints_left", "k_rescaled"}
    if rows and ("poses_exchanged" in kinds or fault.name.startswith("poses x")):  # with a pose that none has now
        kinds.add("wrong_pose")
    return kinds


def suits(fault: Fault, scene: WholeScene, rows: tuple[int, ...]) -> bool:
    """Return whether a fault can be planted: none of two cameras, nor of points where some photographs are spoilt."""
    is_bent = any(camera.model != "PINHOLE" for camera in scene.cameras.values())
    if not {"rig": False, "lens": is_bent, "pinhole": not is_bent}.get(fault.needs, True):
        return False
    moves_points = (in_some(scene, fault.spoil, ()).points.xyz != scene.points.xyz).any()
    return not rows or (not moves_points and _differs(in_some(scene, fault.spoil, rows), scene))


def _differs(one: WholeScene, other: WholeScene) -> bool:
    if (one.cameras, one.images, one.photos) != (other.cameras, other.images, other.photos):
        return True
    return any((one.keypoints[key].xy != other.keypoints[key].xy).any() for key in one.keypoints)


@pytest.mark.parametrize("mode", MODES)
def test_intact_scenes_have_no_findings_whichever_cameras_they_have(mode: str) -> None:
    assert MODES[mode][0]().audit().findings == ()


PARTS = [pytest.param(mode, at, 4, marks=pytest.mark.all) for at, mode in enumerate(MODES)]
WHOLE = [pytest.param(mode, 0, 1, marks=pytest.mark.long) for mode in MODES]


@pytest.mark.parametrize(("mode", "first", "step"), [*PARTS, *WHOLE])
def test_faults_of_scenes_with_cameras_of_few_photographs_are_rightly_named(
    mode: str, first: int, step: int, record_property: Callable[[str, object], None]
) -> None:
    make, rows = MODES[mode]
    scene, named, missed = make(), 0, {}
    for fault in [fault for fault in FAULTS if suits(fault, scene, rows)][first::step]:
        audit = in_some(scene, fault.spoil, rows).audit()
        if any(one.kind in kinds_of(fault, rows) and (rows or fault.says in one.message) for one in audit.findings):
            named += 1
        else:
            missed[fault.name] = said(audit)
    record_property("figure", f"{mode}: {named} of {named + len(missed)} named; misses {sorted(missed)}")
    assert named >= LEAST_NAMED * (named + len(missed)), missed


@pytest.mark.all
@pytest.mark.parametrize(("mode", "first"), [("own", 0), ("second", 2)])
def test_faults_of_photographs_with_cameras_of_few_are_rightly_named(
    mode: str, first: int, record_property: Callable[[str, object], None]
) -> None:
    pictures = load_script("plant_pictures")
    faults, missed = [*(pictures.SETS | pictures.OF_RIG).items()][first::4], {}
    with tempfile.TemporaryDirectory() as folder:
        scene = pictures.with_cameras(pictures.Scene("quarry", QUARRY), mode, Path(folder))
        for name, (spoil, says) in faults:
            for copy in pictures.planted(scene, spoil):
                audit = audit_patches([copy.patch()], None, TAKES_ALL)
            if not any(one.kind in pictures.OF_CONTENT and says in one.message for one in audit.findings):
                missed[name] = said(audit)
    record_property("figure", f"{mode}: {len(faults) - len(missed)} of {len(faults)} named; misses {sorted(missed)}")
    assert len(missed) <= (1 - LEAST_NAMED) * len(faults), missed


def said(audit: Audit) -> list[str]:
    return [f"{one.kind}: {one.message}" for one in audit.findings]


@pytest.mark.parametrize("has_own", [False, True])
def test_a_pose_turned_by_10_degrees_is_told_as_such(has_own: bool) -> None:
    scene = walked("PINHOLE", [900.0, 905, 512, 384], seed=5)
    if has_own:
        with_own_cameras(scene)
    image = scene.images[3]
    matrix = Rotation.from_euler("y", 10, degrees=True).as_matrix() @ image.rotation()
    x, y, z, w = Rotation.from_matrix(matrix).as_quat()
    scene.images[3] = replace(image, quat=(w, x, y, z), translation=tuple(-matrix @ image.center()))
    assert [one.kind for one in scene.audit().findings] == ["wrong_pose"]


def test_a_pose_that_is_a_little_off_is_no_fault_of_the_lens_of_that_photograph() -> None:
    scene = with_refined_cameras(walked(*PHONE, seed=2), seed=2, spread=0.02)  # so that no two cameras are alike
    image = scene.images[3]
    matrix = Rotation.from_euler("y", 0.1, degrees=True).as_matrix() @ image.rotation()
    x, y, z, w = Rotation.from_matrix(matrix).as_quat()
    scene.images[3] = replace(image, quat=(w, x, y, z), translation=tuple(-matrix @ image.center()))
    assert scene.audit().findings == ()


def test_a_small_fault_that_most_cameras_of_one_photograph_share_is_told() -> None:
    scene = with_refined_cameras(walked(*PHONE, seed=2), spread=0.02)
    for number, camera in scene.cameras.items():
        fx, fy, cx, cy, *lens = camera.params
        scene.cameras[number] = replace(camera, params=(fx, fy, cx + 1.5, cy, *lens))
    assert scene.audit().findings != ()


def test_cameras_of_one_photograph_that_are_alike_share_a_row() -> None:
    table = render(with_own_cameras(walked("PINHOLE", [900.0, 905, 512, 384], seed=5)).audit())[0]
    assert getattr(table, "row_count", 0) == 1


def test_a_share_of_all_points_is_spelt_as_100_percent() -> None:
    scene = walked("PINHOLE", [900.0, 905, 512, 384], seed=5)
    next(fault for fault in FAULTS if fault.name == "OpenGL axes").spoil(scene)
    assert [one.message.count("100 % of the points") for one in scene.audit().errors()] == [1]
