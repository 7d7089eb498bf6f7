"""What other programs write of a scene becomes that scene again: poses, lenses, points, tracks, georeference."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pycolmap
import pytest
from foreign_writers import (
    CALITERRA,
    QUARRY,
    Chunk,
    Scene,
    caliterra,
    keep_frames,
    points_of,
    quarry,
    write_blender,
    write_metashape,
    write_nerfstudio,
    write_ngp,
    write_opensfm,
    write_ply,
    write_realityscan,
)
from scenes import MadeScene

from splatbatch.errors import SceneError
from splatbatch.scene.imports.capture import ImportOptions
from splatbatch.scene.imports.run import ImportResult, bring_in

QUICK = ImportOptions(triangulates=False)
SAME = 1e-6
WRITERS = {
    "nerfstudio": lambda scene, folder: write_nerfstudio(scene, folder, points=False),
    "plain": lambda scene, folder: write_nerfstudio(scene, folder, points=False, applied=False),
    "ngp": write_ngp,
    "blender": write_blender,
    "metashape": write_metashape,
    "realityscan": write_realityscan,
    "opensfm": write_opensfm,
}


def made(tmp_path: Path) -> Scene:
    """A scene of 8 small grey photographs, read and written in no time."""
    scene = MadeScene(tmp_path / "made").write()
    return Scene(scene.sparse, scene.photographs)


def worst_pose(scene: Scene, folder: Path) -> float:
    """Return by how much poses differ from those of the scene; of photographs of the same name."""
    known = {Path(image.name).name: image for image in reversed(scene.images())}  # of left/ and right/ the left one
    known |= {image.name: image for image in scene.images()}
    images = pycolmap.Reconstruction(folder / "sparse/0").images.values()
    off = [image.cam_from_world().matrix() - _like(image.name, known).cam_from_world().matrix() for image in images]
    return float(np.abs(off).max())


def _like(name: str, known: dict[str, Any]) -> Any:
    return known.get(name) or known[Path(name).name]


def worst_lens(scene: Scene, folder: Path) -> float:
    known, model = {image.name: image for image in scene.images()}, pycolmap.Reconstruction(folder / "sparse/0")
    theirs = scene.model().cameras
    pairs = [(model.cameras[one.camera_id], theirs[known[one.name].camera_id]) for one in model.images.values()]
    return float(max(np.abs(one.calibration_matrix() - other.calibration_matrix()).max() for one, other in pairs))


def bring(source: Path, tmp_path: Path, wish: ImportOptions = QUICK) -> ImportResult:
    return bring_in(source, tmp_path / "out", wish)


@pytest.mark.all(but="opensfm")
@pytest.mark.parametrize("writer", WRITERS)
def test_poses_of_the_quarry_survive_every_format(tmp_path: Path, writer: str) -> None:
    scene = quarry()
    WRITERS[writer](scene, tmp_path / "in")
    bring(tmp_path / "in", tmp_path)
    assert worst_pose(scene, tmp_path / "out") < SAME
    if writer != "blender":  # it says nothing of a principal point
        assert worst_lens(scene, tmp_path / "out") < SAME


@pytest.mark.all
@pytest.mark.skipif(not CALITERRA.is_dir(), reason="the real scene (shared/data/caliterra) is not here")
@pytest.mark.parametrize("writer", WRITERS)
def test_poses_of_a_real_scene_survive_every_format(tmp_path: Path, writer: str) -> None:
    WRITERS[writer](caliterra(), tmp_path / "in")
    bring(tmp_path / "in", tmp_path)
    assert worst_pose(caliterra(), tmp_path / "out") < SAME


def test_photographs_are_links(tmp_path: Path) -> None:
    write_nerfstudio(made(tmp_path), tmp_path / "in", points=False)
    bring(tmp_path / "in", tmp_path)
    photos = list((tmp_path / "out/images").iterdir())
    assert len(photos) == 8 and all(photo.is_symlink() and photo.stat().st_size for photo in photos)


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian"])
def test_points_of_the_ply_file_come_back_to_the_world_of_the_model(tmp_path: Path, form: str) -> None:
    scene = made(tmp_path)
    write_nerfstudio(scene, tmp_path / "in")
    xyz, rgb = points_of(scene.model())
    turned = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])
    write_ply(tmp_path / "in/sparse_pc.ply", xyz @ turned.T, rgb, form)
    bring(tmp_path / "in", tmp_path)
    found, colors = points_of(pycolmap.Reconstruction(tmp_path / "out/sparse/0"))
    assert np.abs(found - xyz).max() < SAME and (colors == rgb).all()


@pytest.mark.parametrize("applied", [True, False])
def test_points_of_a_colmap_model_beside_keep_their_tracks(tmp_path: Path, applied: bool) -> None:
    scene = made(tmp_path)
    write_nerfstudio(scene, tmp_path / "in", points=False)
    (tmp_path / "in/colmap/sparse").mkdir(parents=True)
    (tmp_path / "in/colmap/sparse/0").symlink_to(scene.sparse)
    if not applied:  # as old versions left it out: the worlds differ, and poses tell by how much
        edit(tmp_path / "in/transforms.json", applied_transform=None)
    done = bring(tmp_path / "in", tmp_path)
    model = pycolmap.Reconstruction(tmp_path / "out/sparse/0")
    assert model.compute_mean_track_length() == scene.model().compute_mean_track_length()
    assert model.compute_mean_reprojection_error() < 1e-3
    assert any("tracks were taken from colmap/sparse/0" in line for line in done.log.converted)


def edit(path: Path, **keys: Any) -> None:
    top = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in {**top, **keys}.items() if value is not None}))


def test_applied_scale_is_undone_with_the_transform(tmp_path: Path) -> None:
    scene = made(tmp_path)
    path = write_nerfstudio(scene, tmp_path / "in", points=False)
    top = json.loads(path.read_text())
    for frame in top["frames"]:
        frame["transform_matrix"] = [[*row[:3], 0.25 * row[3]] for row in frame["transform_matrix"][:3]] + [
            [0, 0, 0, 1]
        ]
    path.write_text(json.dumps({**top, "applied_scale": 0.25}))
    bring(tmp_path / "in", tmp_path)
    assert worst_pose(scene, tmp_path / "out") < SAME


def test_masks_and_depth_are_linked_under_the_names_of_their_photographs(tmp_path: Path) -> None:
    path = write_nerfstudio(made(tmp_path), tmp_path / "in", points=False)
    for folder in ("masks", "depths"):
        (tmp_path / "in" / folder).mkdir()
        (tmp_path / f"in/{folder}/m1.png").write_bytes((tmp_path / "in/images/01.jpg").read_bytes())
    top = json.loads(path.read_text())
    top["frames"][0] |= {"mask_path": "masks/m1.png", "depth_file_path": "depths/m1.png"}
    path.write_text(json.dumps(top))
    bring(tmp_path / "in", tmp_path)
    assert (tmp_path / "out/masks/01.jpg.png").is_symlink()
    assert (tmp_path / "out/depths/01.png").is_symlink()


def test_the_test_split_of_a_blender_scene_is_held_out(tmp_path: Path) -> None:
    write_blender(made(tmp_path), tmp_path / "in")
    done = bring(tmp_path / "in", tmp_path)
    assert done.holdout == ["test/01.jpg", "val/02.jpg"]
    assert (tmp_path / "out/holdout.txt").read_text().split() == done.holdout


def test_intrinsics_of_frames_count_before_those_at_the_top(tmp_path: Path) -> None:
    path = write_nerfstudio(made(tmp_path), tmp_path / "in", points=False)
    top = json.loads(path.read_text())
    top["frames"][2]["fl_x"] = 90.0
    path.write_text(json.dumps(top))
    done = bring(tmp_path / "in", tmp_path)
    cameras = pycolmap.Reconstruction(tmp_path / "out/sparse/0").cameras
    assert sorted(round(camera.focal_length_x, 1) for camera in cameras.values()) == [86.4, 90.0]
    assert any("frames have values of their own" in line for line in done.log.converted)


def test_photographs_that_were_resized_take_their_k_along(tmp_path: Path) -> None:
    path = write_nerfstudio(made(tmp_path), tmp_path / "in", points=False)
    top = json.loads(path.read_text())
    path.write_text(json.dumps({**top, **{key: 4 * top[key] for key in ("w", "h", "fl_x", "fl_y", "cx", "cy")}}))
    done = bring(tmp_path / "in", tmp_path)
    camera = pycolmap.Reconstruction(tmp_path / "out/sparse/0").cameras[1]
    assert camera.params.tolist() == pytest.approx([top[key] for key in ("fl_x", "fl_y", "cx", "cy")])
    assert any("focal length and principal point follow" in line for line in done.log.converted)


# Metashape


def test_disabled_and_unaligned_cameras_are_left_out_and_told(tmp_path: Path) -> None:
    path = write_metashape(made(tmp_path), tmp_path / "in")
    text = path.read_text().replace('label="01"', 'label="01" enabled="false"')
    start = text.index("<transform>", text.index('label="02"'))
    path.write_text(text[:start] + text[text.index("</transform>", start) + len("</transform>") :])
    done = bring(tmp_path / "in", tmp_path)
    assert len(done.capture.shots) == 6
    assert {"1 camera disabled: 01", "1 camera without a pose (not aligned): 02"} <= set(done.log.left_out)


def test_one_of_several_chunks_is_named(tmp_path: Path) -> None:
    path = write_metashape(made(tmp_path), tmp_path / "in")
    chunk = path.read_text().partition('<document version="2.0.0">')[2].partition("</document>")[0]
    path.write_text(f'<document version="2.0.0">{chunk}{chunk.replace("Chunk 1", "Chunk 2")}</document>')
    with pytest.raises(SceneError, match=r'(?s)2 chunks have poses: "Chunk 1" \(8 cameras.*--chunk LABEL'):
        bring(path, tmp_path)
    assert len(bring(path, tmp_path, replace(QUICK, chunk="Chunk 2")).capture.shots) == 8


def test_a_disabled_chunk_is_no_choice(tmp_path: Path) -> None:
    path = write_metashape(made(tmp_path), tmp_path / "in")
    chunk = path.read_text().partition('<document version="2.0.0">')[2].partition("</document>")[0]
    other = chunk.replace('"Chunk 1" enabled="true"', '"old" enabled="false"')
    path.write_text(f'<document version="2.0.0">{other}{chunk}</document>')
    assert bring(path, tmp_path).log.left_out[0] == 'chunk "old" (8 cameras with a pose, disabled)'


def test_slaves_of_a_rig_stand_on_their_masters(tmp_path: Path) -> None:
    path = write_metashape(made(tmp_path), tmp_path / "in")
    text = path.read_text()
    sensor = text[text.index("<sensor id=") : text.index("</sensor>")]
    slave = sensor.replace('id="1"', 'id="2" master_id="1"', 1)
    offset = "<rotation>0 -1 0 1 0 0 0 0 1</rotation><location>0.5 0 0</location>"
    text = text.replace("</sensors>", f"{slave}{offset}</sensor></sensors>")
    text = text.replace(
        "</cameras>", '<camera id="99" sensor_id="2" component_id="0" master_id="1" label="x9"/></cameras>'
    )
    path.write_text(text)
    (tmp_path / "made/images/x9.jpg").write_bytes((tmp_path / "made/images/01.jpg").read_bytes())
    shots = {shot.name: shot for shot in bring(path, tmp_path).capture.shots}
    master, own = shots["01.jpg"], shots["x9.jpg"]
    assert np.allclose(master.rotation @ (own.center - master.center), [2.5 * 0.5, 0, 0])
    assert np.allclose(master.rotation @ own.rotation.T, [[0, -1, 0], [1, 0, 0], [0, 0, 1]])


def test_offset_and_coordinate_system_are_kept(tmp_path: Path) -> None:
    far = Chunk(np.eye(3), np.array([4_156_305.0, 671_404.0, 4_774_508.0]), 1.0)
    scene = made(tmp_path)
    write_metashape(scene, tmp_path / "in", replace(far, translation=np.zeros(3)))
    path = tmp_path / "in/cameras.xml"
    path.write_text(path.read_text().replace("0.0 0.0 0.0</translation>", "4156305.0 671404.0 4774508.0</translation>"))
    xyz, rgb = points_of(scene.model())
    write_ply(tmp_path / "points.ply", xyz + far.translation, rgb)
    done = bring(path, tmp_path, replace(QUICK, points=tmp_path / "points.ply"))
    record = json.loads((tmp_path / "out/import.json").read_text())
    assert np.abs(np.array(done.offset) - far.translation).max() < 10 and record["offset"] == list(done.offset)
    assert "EPSG" in record["crs"] and "ECEF" in record["world"]


# COLMAP exports


def test_lenses_without_distortion_and_sizes_a_pixel_off_are_mended(tmp_path: Path) -> None:
    write_realityscan(made(tmp_path), tmp_path / "in")
    done = bring(tmp_path / "in", tmp_path)
    cameras = pycolmap.Reconstruction(tmp_path / "out/sparse/0").cameras.values()
    assert [(camera.model.name, camera.width, camera.height) for camera in cameras] == [("PINHOLE", 96, 72)]
    assert any("12 points without tracks" in line for line in done.log.converted)


@pytest.mark.parametrize("size", ["1 1", "0 0"])
def test_a_size_that_is_none_becomes_the_photographs(tmp_path: Path, size: str) -> None:
    folder = write_opensfm(made(tmp_path), tmp_path / "in")
    text = (folder / "cameras.txt").read_text().replace("96 72", size)
    (folder / "cameras.txt").write_text(text)
    bring(tmp_path / "in", tmp_path)
    assert pycolmap.Reconstruction(tmp_path / "out/sparse/0").cameras[1].width == 96


def test_tracks_that_count_other_keypoints_are_made_anew(tmp_path: Path) -> None:
    scene = made(tmp_path)
    folder = write_opensfm(scene, tmp_path / "in")
    lines = [line.split() for line in (folder / "points3D.txt").read_text().splitlines() if line[0] != "#"]
    moved = [[*line[:8], *(str(int(x) + 50) if i % 2 else x for i, x in enumerate(line[8:]))] for line in lines]
    (folder / "points3D.txt").write_text("\n".join(map(" ".join, moved)) + "\n")
    done = bring(tmp_path / "in", tmp_path)
    model = pycolmap.Reconstruction(tmp_path / "out/sparse/0")
    assert model.compute_mean_track_length() == scene.model().compute_mean_track_length()
    assert any("tracks were made again" in line for line in done.log.converted)


@pytest.mark.parametrize("way", ["missing", "empty", "no keypoint lines"])
def test_exports_without_points_or_keypoints_are_read(tmp_path: Path, way: str) -> None:
    folder = write_realityscan(made(tmp_path), tmp_path / "in")
    if way == "missing":
        (folder / "points3D.txt").unlink()
    elif way == "empty":
        (folder / "points3D.txt").write_text("")
    else:
        lines = [line for line in (folder / "images.txt").read_text().splitlines() if line]
        (folder / "images.txt").write_text("\n".join(lines) + "\n")
    done = bring(tmp_path / "in", tmp_path)
    assert (len(done.capture.shots), done.num_points) == (8, 12 if way == "no keypoint lines" else 0)


def test_the_reference_of_opensfm_is_kept(tmp_path: Path) -> None:
    write_opensfm(made(tmp_path), tmp_path / "in")
    where = {"latitude": 46.5, "longitude": 7.9, "altitude": 801.0}
    (tmp_path / "in/reference_lla.json").write_text(json.dumps(where))
    bring(tmp_path / "in", tmp_path)
    assert json.loads((tmp_path / "out/import.json").read_text())["reference"] == {"reference_lla": where}


# points that the photographs give


@pytest.mark.all
def test_without_points_the_photographs_give_them_and_the_geometry_holds(tmp_path: Path) -> None:
    shutil.copytree(QUARRY / "images/left", tmp_path / "photos/left of it")
    scene = Scene(quarry().sparse, tmp_path / "photos")
    path = keep_frames(write_ngp(quarry(), tmp_path / "in"), 8)
    path.write_text(path.read_text().replace("images/left", "images/left of it"))
    (tmp_path / "in/images").unlink()
    (tmp_path / "in/images").symlink_to(scene.photographs)
    done = bring(tmp_path / "in", tmp_path, ImportOptions())
    model = pycolmap.Reconstruction(tmp_path / "out/sparse/0")
    assert done.num_points > 1000 and model.compute_mean_reprojection_error() < 0.5
    assert worst_pose(scene, tmp_path / "out") < SAME


@pytest.mark.all
def test_triangulating_ends_in_time_and_says_so(tmp_path: Path) -> None:
    write_ngp(quarry(), tmp_path / "in")
    done = bring(tmp_path / "in", tmp_path, ImportOptions(within_s=1.0))
    assert done.num_points == 0 and "the time for matching was over" in done.log.left_out[-1]
