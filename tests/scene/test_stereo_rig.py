from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scenes import HEIGHT, WIDTH, MadeScene, pinhole

from splatbatch.scene.camera_fix import plan_models, write_copies
from splatbatch.scene.colmap.files import ModelError
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.colmap.rigs import frames_bytes, read_rigs

pycolmap = pytest.importorskip("pycolmap")


@pytest.fixture
def stereo(tmp_path: Path) -> MadeScene:
    """A rig of two cameras made by pycolmap; the right one is calibrated 2 px wider than its photographs."""
    made = MadeScene(tmp_path / "stereo", [pinhole(1), pinhole(2, WIDTH + 2)], [])
    model, baseline = pycolmap.Reconstruction(), pycolmap.Rigid3d(pycolmap.Rotation3d(), np.array([-0.2, 0, 0]))
    for camera in made.cameras:
        sizes = {"width": camera.width, "height": camera.height, "params": np.array(camera.params)}
        model.add_camera(pycolmap.Camera({"model": camera.model, "camera_id": camera.id, **sizes}))
    left, right = (pycolmap.sensor_t(type=pycolmap.SensorType.CAMERA, id=number) for number in (1, 2))
    rig = pycolmap.Rig(rig_id=1)
    rig.add_ref_sensor(left)
    rig.add_sensor(right, baseline)
    model.add_rig(rig)
    for number in range(1, 9):
        add_frame(model, number)
    made.sparse.mkdir(parents=True)
    model.write_binary(str(made.sparse))
    made.images = list(read_reconstruction(made.sparse).images)
    for image in made.images:
        made.photograph(image.name, (WIDTH, HEIGHT))
    return made


def add_frame(model: pycolmap.Reconstruction, number: int) -> None:
    frame = pycolmap.Frame(frame_id=number, rig_id=1)
    for camera in (1, 2):
        sensor = pycolmap.sensor_t(type=pycolmap.SensorType.CAMERA, id=camera)
        frame.add_data_id(pycolmap.data_t(sensor_id=sensor, id=10 * number + camera))
    frame.rig_from_world = pycolmap.Rigid3d(pycolmap.Rotation3d(), np.array([0.1 * number, 0, 0]))
    model.add_frame(frame)
    for camera, side in ((1, "left"), (2, "right")):
        image = pycolmap.Image(name=f"{side}/{number}.jpg", camera_id=camera, image_id=10 * number + camera)
        image.frame_id = number
        model.add_image(image)
    model.register_frame(number)


def test_the_bad_eye_of_a_stereo_rig_is_named_and_mended(stereo: MadeScene, tmp_path: Path) -> None:
    kinds = {(finding.kind, finding.subject) for finding in stereo.audit().errors() if finding.kind != "no_points"}
    assert ("unlike_ratios", "camera 1 (left/), camera 2 (right/)") in kinds
    assert {subject for kind, subject in kinds if kind == "few_pixels_off"} == {f"right/{i}.jpg" for i in range(1, 9)}
    assert stereo.audit().exit_code() == 3
    (fixed,) = write_copies(plan_models(stereo.audit(), [stereo.patch()], "crop"), tmp_path / "out", tmp_path / "out")
    theirs, before = pycolmap.Reconstruction(str(fixed.sparse)), pycolmap.Reconstruction(str(stereo.sparse))
    assert (theirs.cameras[1].width, theirs.cameras[2].width) == (WIDTH, WIDTH)
    assert (theirs.num_rigs(), theirs.num_frames(), theirs.num_reg_images()) == (1, 8, 16)
    for number, image in theirs.images.items():
        np.testing.assert_array_equal(image.cam_from_world().matrix(), before.images[number].cam_from_world().matrix())


@pytest.mark.parametrize("name", ["rigs.bin", "frames.bin"])
def test_a_cut_rig_file_is_a_warning(stereo: MadeScene, name: str) -> None:
    path = stereo.sparse / name
    path.write_bytes(path.read_bytes()[:-9])
    assert ("broken_rigs", name) in {(finding.kind, finding.subject) for finding in stereo.audit().warnings()}


def test_rigs_without_frames_are_a_warning(stereo: MadeScene) -> None:
    (stereo.sparse / "frames.bin").unlink()
    assert ("broken_rigs", "rigs.bin") in {(finding.kind, finding.subject) for finding in stereo.audit().warnings()}


def test_frames_that_contradict_the_poses_of_images_are_a_warning(stereo: MadeScene) -> None:
    assert "rigs_differ" not in {finding.kind for finding in stereo.audit().findings}
    path, frame = stereo.sparse / "frames.bin", struct.Struct("<II7d")
    data = bytearray(path.read_bytes())
    number, rig, *pose = frame.unpack_from(data, 8)
    frame.pack_into(data, 8, number, rig, *pose[:4], pose[4] + 0.5, *pose[5:])
    path.write_bytes(data)
    (finding,) = [one for one in stereo.audit().warnings() if one.kind == "rigs_differ"]
    assert finding.message.startswith("2 of 16 images have other poses")


def test_a_rig_of_which_no_image_has_a_finite_pose_is_told_and_ends_nothing(stereo: MadeScene) -> None:
    model = pycolmap.Reconstruction(str(stereo.sparse))
    images = stereo.sparse / "images.bin"
    pose, data = struct.Struct("<7d"), bytearray(images.read_bytes())
    at = 8
    for _ in range(model.num_images()):
        pose.pack_into(data, at + 4, *[float("nan")] * 7)
        at = data.index(b"\0", at + 4 + pose.size + 4) + 1
        at += 8 + 24 * int.from_bytes(data[at : at + 8], "little")
    images.write_bytes(data)
    assert "internal_fault" not in {finding.kind for finding in stereo.audit().findings}


def test_frames_of_other_images_are_a_warning(stereo: MadeScene) -> None:
    path = stereo.sparse / "frames.bin"
    rigs = read_rigs(stereo.sparse)
    assert rigs
    path.write_bytes(frames_bytes(replace(rigs, frames=rigs.frames[1:])))
    (finding,) = [one for one in stereo.audit().warnings() if one.kind == "broken_rigs"]
    assert "are not the images of the model" in finding.message


@pytest.mark.parametrize("line", ["1 1 1 0 0 0 0 0 0", "1 1 1 0 0 0 0 0 0 2 CAMERA 1 7", "1 1 1 0 0 x 0 0 0 0"])
def test_a_text_file_of_frames_that_is_cut_or_garbage_is_told(tmp_path: Path, line: str) -> None:
    for name in ("cameras", "images", "points3D"):
        (tmp_path / f"{name}.txt").touch()
    (tmp_path / "rigs.txt").write_text("1 1 CAMERA 1\n")
    (tmp_path / "frames.txt").write_text(f"{line}\n")
    with pytest.raises(ModelError, match=r"frames\.txt: cut short or damaged"):
        read_rigs(tmp_path)
