from __future__ import annotations

import errno
import random
import time
from pathlib import Path

import numpy as np
import pytest
from scenes import MadeScene

from splatbatch.errors import SceneError
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_points2d, read_reconstruction
from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera

pycolmap = pytest.importorskip("pycolmap")


def assert_same(ours: Reconstruction, theirs: pycolmap.Reconstruction) -> None:
    for image in ours.images:
        other = theirs.images[image.id]
        assert (image.name, image.camera_id) == (other.name, other.camera_id)
        np.testing.assert_allclose(image.world_to_camera()[:3], other.cam_from_world().matrix(), atol=1e-12)
        np.testing.assert_allclose(image.center(), other.projection_center(), atol=1e-12)
    for camera in ours.cameras.values():
        np.testing.assert_array_equal(camera.K, theirs.cameras[camera.id].calibration_matrix())
    for place, number in enumerate(ours.points.ids.tolist()[:500]):
        point = theirs.points3D[number]
        np.testing.assert_array_equal(ours.points.xyz[place], point.xyz)
        np.testing.assert_array_equal(ours.points.rgb[place], point.color)
        assert ours.points.track_lengths[place] == point.track.length()


@pytest.mark.parametrize("suffix", ["bin", "txt"])
def test_a_model_reads_as_pycolmap_reads_it(tmp_path: Path, suffix: str) -> None:
    scene = MadeScene(tmp_path, suffix=suffix)
    scene.write_model()
    assert_same(read_reconstruction(scene.sparse), pycolmap.Reconstruction(str(scene.sparse)))


def test_a_real_model_reads_as_pycolmap_reads_it(caliterra: Path) -> None:
    assert_same(read_reconstruction(caliterra / "sparse/0"), pycolmap.Reconstruction(str(caliterra / "sparse/0")))


def test_text_and_binary_hold_the_same(caliterra: Path, tmp_path: Path) -> None:
    patch = caliterra / "patches/p2/sparse/0"
    pycolmap.Reconstruction(str(patch)).write_text(str(tmp_path))
    binary, text = read_reconstruction(patch, tracks=True), read_reconstruction(tmp_path, tracks=True)
    assert (binary.cameras, binary.images) == (text.cameras, text.images)
    order, other = np.argsort(binary.points.ids), np.argsort(text.points.ids)
    np.testing.assert_array_equal(binary.points.xyz[order], text.points.xyz[other])
    assert binary.points.tracks
    assert text.points.tracks
    assert sorted(binary.points.tracks.image_ids) == sorted(text.points.tracks.image_ids)
    ours, theirs = read_points2d(patch), read_points2d(tmp_path)
    assert all((ours[number].xy == theirs[number].xy).all() for number in ours)


def test_every_camera_model_is_known_as_pycolmap_knows_it() -> None:
    for name, model in CAMERA_MODELS.items():
        theirs = pycolmap.Camera.create_from_model_name(1, name, 100.0, 640, 480)
        assert int(theirs.model) == model.id
        assert theirs.params_info.replace(" ", "").split(",") == list(model.params)


def test_the_binary_set_wins_when_it_is_complete(scene: MadeScene) -> None:
    for part in ("cameras", "images", "points3D"):
        (scene.sparse / f"{part}.txt").write_text("garbage")
    assert len(read_reconstruction(scene.sparse).images) == 8
    (scene.sparse / "points3D.bin").unlink()
    with pytest.raises(SceneError, match=r"cameras\.txt: line 1 does not describe a camera"):
        read_reconstruction(scene.sparse)


def test_images_come_sorted_by_name(scene: MadeScene) -> None:
    scene.images.reverse()
    scene.write_model()
    assert [image.name for image in read_reconstruction(scene.sparse).images] == sorted(i.name for i in scene.images)


def test_a_camera_says_what_its_model_lacks() -> None:
    with pytest.raises(SceneError, match="EQUIRECTANGULAR has no parameter fx"):
        _ = Camera(3, "EQUIRECTANGULAR", 10, 10, (10.0, 10.0)).fx
    with pytest.raises(SceneError, match="1 parameters, but PINHOLE takes 4"):
        _ = Camera(3, "PINHOLE", 10, 10, (10.0,)).K


@pytest.mark.parametrize(
    ("code", "says"),
    [(errno.EACCES, "no permission"), (errno.EIO, "Input/output error"), (errno.ELOOP, "run in a circle")],
)
def test_what_the_system_refuses_is_said(
    scene: MadeScene, monkeypatch: pytest.MonkeyPatch, code: int, says: str
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(code, "Input/output error", str(path))

    monkeypatch.setattr("splatbatch.scene.colmap.files.open_regular", refuse)
    with pytest.raises(SceneError, match=rf"cameras\.bin: .*{says}") as caught:
        read_reconstruction(scene.sparse)
    assert caught.value.hint


def test_a_link_that_leads_nowhere_is_said(scene: MadeScene) -> None:
    (scene.sparse / "images.bin").unlink()
    (scene.sparse / "images.bin").symlink_to("gone.bin")
    with pytest.raises(SceneError, match=r"images\.bin: a link to gone\.bin, which does not exist"):
        read_reconstruction(scene.sparse)


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("cameras", "1 PINHOLE 96"),
        ("cameras", "1 PINHOLE wide 72 1 1 1 1"),
        ("cameras", "99999999999999 PINHOLE 96 72 1 1 1 1"),
        ("images", "1 1 0 0 0 0 0 0 1"),
        ("images", "1 1 0 0 0 0 0 0 1 a.jpg\n1.5 2.5"),
        ("points3D", "1 0 0 0 300 0 0 0.5"),
        ("points3D", "1 0 0 0 30 0 0 0.5 7"),
        ("points3D", "-1 0 0 0 30 0 0 0.5"),
        ("images", "1 1 0 0 0 0 0 0 1 a\x00b/c.jpg"),
        ("cameras", f"1 PINHOLE {'9' * 400} 72 1 1 1 1"),
        ("points3D", "\x00\x01"),
    ],
)
def test_a_wrong_line_of_text_is_named(tmp_path: Path, part: str, line: str) -> None:
    scene = MadeScene(tmp_path, suffix="txt")
    scene.write_model()
    (scene.sparse / f"{part}.txt").write_text(f"# comment\n{line}\n")
    with pytest.raises(SceneError, match=rf"{part}\.txt: line [23]"):
        read_reconstruction(scene.sparse)


def damage(data: bytes, rng: random.Random) -> bytes:
    """Cut a file, or flip up to four of its bytes, in its head as often as anywhere."""
    if rng.random() < 0.4:
        return data[: rng.randrange(len(data))]
    flipped = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        flipped[rng.randrange(min(len(data), rng.choice([120, len(data)])))] = rng.randrange(256)
    return bytes(flipped)


@pytest.mark.parametrize(
    ("suffix", "count"),
    [pytest.param("bin", 100, marks=pytest.mark.part), ("txt", 100), pytest.param("bin", 2000, marks=pytest.mark.all)],
)
def test_damaged_files_end_in_a_model_or_in_an_error_that_names_the_file(
    tmp_path: Path, suffix: str, count: int
) -> None:
    scene = MadeScene(tmp_path, suffix=suffix).write()
    rng, sound, slowest = random.Random(3), {}, 0.0
    for part in ("cameras", "images", "points3D"):
        sound[part] = (scene.sparse / f"{part}.{suffix}").read_bytes()
    for _ in range(count):
        part = rng.choice(sorted(sound))
        path = scene.sparse / f"{part}.{suffix}"
        path.write_bytes(damage(sound[part], rng))
        start = time.perf_counter()
        audit = scene.audit()
        slowest = max(slowest, time.perf_counter() - start)
        assert audit.exit_code() in {0, 3}
        broken = [finding for finding in audit.findings if finding.kind == "corrupt_model"]
        assert all(part in f"{finding.subject}{finding.message}" for finding in broken)
        path.write_bytes(sound[part])
    assert slowest < 10  # seconds; a believed size field would take for ever
