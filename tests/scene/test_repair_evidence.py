"""Repairs judged by what did not move: unchanged points against keypoints, keypoints against the photograph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from geometric_faults import cameras, inverted, left_behind, scaled_k, size_alone
from geometric_faults import images as posed_images
from whole_scene import TAKES_ALL, WholeScene, synthesised, walked

from splatbatch.errors import SceneError
from splatbatch.scene.audit.audit import AuditExtent, audit_patches
from splatbatch.scene.camera_fix import FixedModel, How, plan_models, verify_copies, write_copies
from splatbatch.scene.colmap.reconstruction import read_points2d, read_reconstruction
from splatbatch.scene.colmap.types import Camera

pycolmap = pytest.importorskip("pycolmap")

FLAT = AuditExtent(groups=0)
"""These photographs are of one colour: what is planned is judged here, by keypoints; by pixels in test_content."""


@pytest.fixture
def walk() -> WholeScene:
    return walked("PINHOLE", [900.0, 905, 512, 384], seed=5)


def resized(scene: WholeScene, width: int, height: int, part: slice = slice(None)) -> None:
    for name in sorted(scene.photos)[part]:
        scene.photos[name] = (width, height)


def fix(scene: WholeScene, how: How, root: Path) -> FixedModel:
    patch = scene.write(root / "scene")
    audit = audit_patches([patch], None, TAKES_ALL, FLAT)
    (fixed,) = write_copies(plan_models(audit, [patch], how), root / "out", root / "out")
    verify_copies(audit, [replace(patch, sparse=fixed.sparse)], FLAT)
    assert pycolmap.Reconstruction(str(fixed.sparse)).is_valid()
    return fixed


def true_error_px(scene: WholeScene, fixed: FixedModel, factor: float = 1.0) -> float:
    """Return how far the points of the copy fall from the intact keypoints on photographs `factor` times as large."""
    from splatbatch.scene.reprojection import project

    model, errors = read_reconstruction(fixed.sparse), []
    place = {int(number): xyz for number, xyz in zip(model.points.ids, model.points.xyz, strict=True)}
    for image in model.images:
        seen, matrix = scene.keypoints[image.id], image.world_to_camera()
        known = [index for index, number in enumerate(seen.point3d_ids) if int(number) in place]
        xyz = np.array([place[int(seen.point3d_ids[index])] for index in known])
        pixels = project(model.cameras[image.camera_id], xyz @ matrix[:3, :3].T + matrix[:3, 3])
        errors.append(np.linalg.norm(pixels - factor * seen.xy[known], axis=1))
    return float(np.median(np.concatenate(errors)))


def test_resized_photographs_bring_k_and_keypoints_along(walk: WholeScene, tmp_path: Path) -> None:
    resized(walk, 512, 384)
    fixed = fix(walk.copy(), "scale", tmp_path)
    assert true_error_px(walk, fixed, 0.5) < 1


def test_width_and_height_alone_are_set_where_k_and_keypoints_fit(walk: WholeScene, tmp_path: Path) -> None:
    spoilt = walk.copy()
    size_alone(0.5)(spoilt)
    fixed = fix(spoilt, "scale", tmp_path)
    assert "width and height alone" in fixed.in_words()
    assert true_error_px(walk, fixed) < 1


def test_the_right_camera_of_a_rig_is_mended_alone(tmp_path: Path) -> None:
    rig = synthesised("OPENCV", [700, 695, 512, 384, -0.22, 0.05, 0.001, 0.002], seed=11)
    spoilt = rig.copy()
    size_alone(1.5, 2)(spoilt)
    fixed = fix(spoilt, "scale", tmp_path)
    assert [change.before.id for change in fixed.changes] == [2]
    assert true_error_px(rig, fixed) < 1.5


def test_cameras_that_were_halved_without_their_keypoints_are_doubled_without_them(
    walk: WholeScene, tmp_path: Path
) -> None:
    spoilt = walk.copy()
    cameras(scaled_k(0.5, size=True))(spoilt)
    fixed = fix(spoilt, "scale", tmp_path)
    assert "keypoints left as they are" in fixed.in_words()
    assert true_error_px(walk, fixed) < 1
    for number, seen in read_points2d(fixed.sparse).items():
        np.testing.assert_array_equal(seen.xy, walk.keypoints[number].xy)


def test_k_that_was_left_behind_by_a_rescale_follows(walk: WholeScene, tmp_path: Path) -> None:
    spoilt = walk.copy()
    left_behind(0.75)(spoilt)
    fixed = fix(spoilt, "scale", tmp_path)
    assert true_error_px(walk, fixed, 0.75) < 1


@pytest.mark.parametrize("suffix", ["bin", "txt"])
def test_photographs_of_several_sizes_get_a_camera_for_each(walk: WholeScene, tmp_path: Path, suffix: str) -> None:
    resized(walk, 512, 384, slice(0, 7))
    patch = walk.write(tmp_path / "scene")
    if suffix == "txt":
        pycolmap.Reconstruction(str(patch.sparse)).write_text(str(patch.sparse))
        for path in patch.sparse.glob("*.bin"):
            path.unlink()
    plans = plan_models(audit_patches([patch], None, TAKES_ALL, FLAT), [patch], "scale")
    (fixed,) = write_copies(plans, tmp_path / "out", tmp_path / "out")
    assert audit_patches([replace(patch, sparse=fixed.sparse)], None, TAKES_ALL, FLAT).findings == ()
    model = read_reconstruction(fixed.sparse)
    small = {image.name for image in model.images if image.camera_id == 2}
    assert small == set(sorted(walk.photos)[:7])
    assert (model.cameras[1].width, model.cameras[2].width) == (1024, 512)
    assert pycolmap.Reconstruction(str(fixed.sparse)).is_valid()
    assert "(now camera 2)" in fixed.in_words()


def test_photographs_at_three_quarters_are_no_crop(walk: WholeScene, tmp_path: Path) -> None:
    resized(walk, 768, 576)
    with pytest.raises(SceneError, match="resized and not cropped"):
        fix(walk, "crop", tmp_path)


def test_a_crop_says_that_it_is_taken_about_the_centre(walk: WholeScene, tmp_path: Path) -> None:
    resized(walk, 1024, 668)
    assert "for a crop about the centre" in fix(walk, "crop", tmp_path).in_words()


def test_what_is_wrong_besides_sizes_is_refused(walk: WholeScene, tmp_path: Path) -> None:
    resized(walk, 512, 384)
    posed_images(inverted)(walk)
    with pytest.raises(SceneError, match="camera-to-world"):
        fix(walk, "scale", tmp_path)
    assert not (tmp_path / "out").exists()


def test_k_that_fits_neither_before_nor_after_is_refused(walk: WholeScene, tmp_path: Path) -> None:
    def spoil(camera: Camera) -> Camera:
        return replace(scaled_k(0.8)(camera), width=512, height=384)

    cameras(spoil)(walk)
    with pytest.raises(SceneError, match="nothing was written"):
        fix(walk, "scale", tmp_path)
    assert not (tmp_path / "out").exists()
