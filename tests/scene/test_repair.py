from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scenes import HEIGHT, OURS, WIDTH, MadeScene

from splatbatch.errors import SceneError
from splatbatch.scene import camera_fix
from splatbatch.scene.audit.audit import audit_patches, source_patch
from splatbatch.scene.camera_fix import FixedModel, How, fix_models, plan_models, write_copies
from splatbatch.scene.colmap.reconstruction import read_points2d, read_reconstruction
from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera, Image
from splatbatch.scene.reprojection import project

EVERY_MODEL = replace(OURS, camera_models=frozenset(CAMERA_MODELS))


def resize(scene: MadeScene, width: int, height: int) -> None:
    for image in scene.images:
        scene.photograph(image.name, (width, height))


def fix(scene: MadeScene, how: How, out: Path, source: Path | None = None) -> tuple[FixedModel, ...]:
    """Write what is planned: these photographs show nothing that it could be judged by; see test_content.py."""
    audit = audit_patches([scene.patch()], source, EVERY_MODEL)
    plans = plan_models(audit, [scene.patch(), *([source_patch(source, [scene.patch()])] if source else [])], how)
    return write_copies(plans, out, out) if any(plan.changes for plan in plans) else ()


def assert_clean(scene: MadeScene, out: Path) -> None:
    copy = replace(scene.patch(), sparse=out / "p0/sparse/0")
    assert audit_patches([copy], None, EVERY_MODEL).errors() == ()


@pytest.mark.parametrize("suffix", ["bin", "txt"])
def test_scale_brings_k_and_keypoints_to_the_photographs(scene: MadeScene, tmp_path: Path, suffix: str) -> None:
    scene.suffix = suffix
    rewrite_model(scene)
    resize(scene, 48, 36)
    (fixed,) = fix(scene, "scale", tmp_path / "out")
    assert_clean(scene, tmp_path / "out")
    assert sorted(path.suffix for path in fixed.sparse.iterdir()) == [f".{suffix}"] * 3
    assert read_reconstruction(fixed.sparse).cameras[1].params == tuple(v / 2 for v in scene.cameras[0].params)
    assert fixed.before
    assert fixed.after
    assert max(fixed.before.mean_px, fixed.after.mean_px) < 1e-6


def rewrite_model(scene: MadeScene) -> None:
    for path in scene.sparse.iterdir():
        path.unlink()
    scene.write_model()


def test_crop_shifts_the_principal_point_and_the_keypoints(scene: MadeScene, tmp_path: Path) -> None:
    resize(scene, 96, 69)
    (fixed,) = fix(scene, "crop", tmp_path / "out")
    before, after = scene.cameras[0], read_reconstruction(fixed.sparse).cameras[1]
    assert (after.fx, after.fy, after.cx, after.cy) == (before.fx, before.fy, before.cx, before.cy - 1.5)
    assert "principal point shifted by +0 px in x, -1.5 px in y" in fixed.in_words()
    moved = read_points2d(fixed.sparse)[1].xy - read_points2d(scene.sparse)[1].xy
    np.testing.assert_allclose(moved, [[0, -1.5]] * len(moved), atol=1e-12)
    assert_clean(scene, tmp_path / "out")


def test_a_crop_at_half_the_size_is_resized_before_it_is_shifted(scene: MadeScene, tmp_path: Path) -> None:
    resize(scene, 48, 34)
    (fixed,) = fix(scene, "crop", tmp_path / "out")
    before, after = scene.cameras[0], read_reconstruction(fixed.sparse).cameras[1]
    assert (after.fx, after.fy, after.cy) == (before.fx / 2, before.fy / 2, before.cy / 2 - 1)


FOCALS, SMALL = st.floats(0.3, 3), st.floats(-0.05, 0.05)


@st.composite
def cameras(draw: st.DrawFn) -> Camera:
    model = CAMERA_MODELS[draw(st.sampled_from(["SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV"]))]
    width, height = draw(st.integers(200, 6000)), draw(st.integers(200, 6000))
    focal = draw(FOCALS) * max(width, height)
    known = {"f": focal, "fx": focal, "fy": focal * draw(st.floats(0.9, 1.1))}
    known |= {"cx": width * draw(st.floats(0.3, 0.7)), "cy": height * draw(st.floats(0.3, 0.7))}
    params = tuple(known[name] if name in known else draw(SMALL) for name in model.params)
    return Camera(1, model.name, width, height, params)


@pytest.mark.all
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(camera=cameras(), factor=st.floats(0.1, 3.0), suffix=st.sampled_from(["bin", "txt"]))
def test_after_a_fix_every_point_projects_to_its_scaled_pixel(
    tmp_path_factory: pytest.TempPathFactory, camera: Camera, factor: float, suffix: str
) -> None:
    root = tmp_path_factory.mktemp("scaled")
    images = [Image(i, f"{i}.png", 1, *pose) for i, pose in enumerate(POSES, start=1)]
    scene = MadeScene(root / "scene", [camera], images, suffix=suffix)
    scene.write_model()
    width, height = round(camera.width * factor), round(camera.height * factor)
    path = scene.photograph("1.png", (width, height), "1")
    for image in images[1:]:
        os.link(path, scene.photographs / image.name)
    fixed = fix(scene, "scale", root / "out")
    if (width, height) == (camera.width, camera.height):
        assert fixed == ()
        return
    assert_clean(scene, root / "out")
    model, keypoints = read_reconstruction(fixed[0].sparse), read_points2d(fixed[0].sparse)
    ratio = (width / camera.width, height / camera.height)
    for image in model.images:
        points = np.c_[model.points.xyz, np.ones(len(model.points))] @ image.world_to_camera()[:3].T
        expected = project(camera, points) * ratio
        assert np.abs(project(model.cameras[1], points) - expected).max() < 1e-6
        assert np.abs(keypoints[image.id].xy - expected).max() < 1e-6


POSES = [
    ((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
    ((0.99, 0.1, 0.0, 0.05), (0.1, 0.2, 0.1)),
    ((1.0, 0, 0.1, 0), (0, 0, 1.0)),
]


def test_nothing_is_written_when_nothing_is_wrong(scene: MadeScene, tmp_path: Path) -> None:
    assert fix(scene, "scale", tmp_path / "out") == ()
    assert not (tmp_path / "out").exists()


def spoil_transposed(scene: MadeScene) -> None:
    resize(scene, HEIGHT, WIDTH)


def spoil_model(scene: MadeScene) -> None:
    (scene.sparse / "points3D.bin").write_bytes(b"\x01")


def spoil_photographs(scene: MadeScene) -> None:
    for image in scene.images:
        (scene.photographs / image.name).write_bytes(b"")


REFUSED = [
    (lambda scene: resize(scene, 72, 54), "crop", "both sides times 0.75, so they were resized and not cropped"),
    (spoil_transposed, "scale", "exchanged"),
    (spoil_model, "scale", r"points3D\.bin"),
    (spoil_photographs, "scale", "none of its photographs can be read"),
    (lambda scene: resize(scene, 48, 36), "crop", "both sides times exactly 1/2, so they were resized and not cropped"),
]


@pytest.mark.parametrize(("spoil", "how", "says"), REFUSED)
def test_what_cannot_be_repaired_honestly_is_refused(
    scene: MadeScene, tmp_path: Path, spoil: object, how: How, says: str
) -> None:
    spoil(scene)  # type: ignore[operator]
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SceneError, match=says):
        fix(scene, how, tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == before


def judged(scene: MadeScene, out: Path) -> tuple[FixedModel, ...]:
    audit = audit_patches([scene.patch()], None, EVERY_MODEL)
    return fix_models(audit, [scene.patch()], None, "scale", out)


def test_an_occupied_folder_is_refused(scene: MadeScene) -> None:
    resize(scene, 48, 36)
    with pytest.raises(SceneError, match="not empty"):
        judged(scene, scene.root)


def test_a_repair_that_no_photograph_proves_is_refused(scene: MadeScene, tmp_path: Path) -> None:
    resize(scene, 48, 36)
    with pytest.raises(SceneError, match="too few photographs of the model can be compared"):
        judged(scene, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_failure_half_way_leaves_nothing(scene: MadeScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(model: object) -> None:
        raise OSError(28, "No space left on device")

    resize(scene, 48, 36)
    monkeypatch.setattr(camera_fix, "reprojection_error", full)
    with pytest.raises(SceneError, match="No space left"):
        judged(scene, tmp_path / "deep/out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scene"]


def test_source_and_patch_are_fixed_by_one_call(scene: MadeScene, tmp_path: Path) -> None:
    resize(scene, 48, 36)
    out = tmp_path / "new/out"
    assert [fixed.patch for fixed in fix(scene, "scale", out, scene.root)] == ["p0", "source"]
    assert read_reconstruction(out / "source/sparse/0").cameras == read_reconstruction(out / "p0/sparse/0").cameras
    assert (out / "p0/images/03.jpg").is_file()


def test_points_rigs_and_frames_are_copied_byte_for_byte(scene: MadeScene, tmp_path: Path) -> None:
    for name in ("rigs.bin", "frames.bin"):
        (scene.sparse / name).write_bytes(name.encode())
    resize(scene, 48, 36)
    (fixed,) = fix(scene, "scale", tmp_path / "out")
    for name in ("points3D.bin", "rigs.bin", "frames.bin"):
        assert (fixed.sparse / name).read_bytes() == (scene.sparse / name).read_bytes()


@pytest.mark.all
def test_a_real_scene_keeps_its_reprojection_error(caliterra: Path, tmp_path: Path) -> None:
    small = caliterra.with_name("caliterra-small")
    scene = MadeScene(tmp_path / "scene")
    patch = replace(scene.patch(), sparse=small / "sparse/0", images=caliterra / "images")
    (fixed,) = fix_models(audit_patches([patch], None, OURS), [patch], None, "scale", tmp_path / "out")
    assert fixed.before
    assert fixed.after
    assert fixed.before.num_observations == fixed.after.num_observations > 20_000
    assert f"{fixed.before.mean_px:.4g} px before, {fixed.after.mean_px:.4g} px after" in fixed.in_words()
    assert fixed.after.mean_px / fixed.before.mean_px == pytest.approx(995 / 320, rel=0.01)


@pytest.mark.parametrize("is_relative", [True, False])
@pytest.mark.parametrize("shared", [False, True])
def test_copies_find_photographs_that_are_a_link(
    scene: MadeScene, tmp_path: Path, is_relative: bool, shared: bool
) -> None:
    resize(scene, 48, 36)
    home = scene.sparse.parents[1]
    images = (home.parent if shared else home) / "images"
    scene.photographs.rename(tmp_path / "elsewhere")
    target = os.path.relpath(tmp_path / "elsewhere", images.parent) if is_relative else tmp_path / "elsewhere"
    images.symlink_to(target, target_is_directory=True)
    patch = replace(scene.patch(), images=images)
    audit = audit_patches([patch], None, EVERY_MODEL)
    write_copies(plan_models(audit, [patch], "scale"), tmp_path / "out", tmp_path / "out")
    there = tmp_path / ("out/images" if shared else "out/p0/images")
    assert sorted(path.name for path in there.iterdir()) == sorted(image.name for image in scene.images)
