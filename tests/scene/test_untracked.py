"""Models without tracks: poses that are those of no points are told by what lies in view, and with --deep by pairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from geometric_faults import Spoil, cameras, focal, images, inverted, opengl
from whole_scene import TAKES_ALL, WholeScene, walked

from splatbatch.scene.audit.audit import Audit, AuditExtent, audit_patches
from splatbatch.scene.colmap.types import Points2D, Tracks

QUARRY = Path(__file__).resolve().parents[2] / "examples/quarry"
OF_TRACKS = {"unseen_points"}
DEEP = AuditExtent(groups=None)


def untracked(scene: WholeScene) -> WholeScene:
    none = np.zeros(0, np.uint32)
    starts, lengths = np.zeros(len(scene.points) + 1, np.int64), np.zeros(len(scene.points), np.int64)
    scene.points = replace(scene.points, tracks=Tracks(starts, none, none), track_lengths=lengths)
    scene.keypoints = {number: Points2D(np.zeros((0, 2)), np.zeros(0, np.uint64)) for number in scene.keypoints}
    return scene


def audited(scene: WholeScene, root: Path, extent: AuditExtent) -> Audit:
    patch = scene.write(root)
    return audit_patches([replace(patch, images=QUARRY / "images")], None, TAKES_ALL, extent)


@pytest.mark.parametrize(("spoil", "says"), [(inverted, "camera-to-world"), (opengl, "y and z axes are OpenGL's")])
def test_poses_in_another_convention_are_told_and_named(spoil: object, says: str) -> None:
    scene = untracked(WholeScene.read(QUARRY / "sparse/0"))
    images(spoil)(scene)  # type: ignore[arg-type]
    (finding,) = [one for one in scene.audit().findings if one.kind not in OF_TRACKS]
    assert (finding.kind, finding.severity) == ("out_of_view", "error")
    assert says in finding.message


def test_poses_are_not_blamed_for_points_of_another_frame() -> None:
    scene = untracked(WholeScene.read(QUARRY / "sparse/0"))
    scene.points = replace(scene.points, xyz=scene.points.xyz + np.array([500_000.0, 4_400_000.0, 100.0]))
    (finding,) = [one for one in scene.audit().findings if one.kind not in OF_TRACKS]
    assert (finding.kind, finding.severity) == ("far_points", "error")


@pytest.mark.parametrize("name", ["quarry", "walk"])
def test_an_intact_model_without_tracks_is_no_error(name: str) -> None:
    whole = WholeScene.read(QUARRY / "sparse/0") if name == "quarry" else walked("PINHOLE", [900.0, 905, 512, 384])
    assert {one.kind for one in untracked(whole).audit().findings} == OF_TRACKS


@pytest.mark.all
@pytest.mark.parametrize("spoil", [cameras(focal(2)), None])
def test_a_doubled_focal_length_is_contradicted_by_pairs_of_photographs(tmp_path: Path, spoil: Spoil | None) -> None:
    scene = untracked(WholeScene.read(QUARRY / "sparse/0"))
    if spoil:
        spoil(scene)
    found = {one.kind for one in audited(scene, tmp_path, DEEP).errors()}
    assert ("pairs_disagree" in found) == bool(spoil)
    assert bool(found) == bool(spoil)
