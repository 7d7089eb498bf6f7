"""One generated case for every class of finding: kind, severity, the file or camera named, and the exit code."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from geometric_faults import FAULTS
from scenes import FOV, HEIGHT, OURS, WIDTH, MadeScene, pinhole

from splatbatch.scene.audit.findings import KINDS, TrainerRules

NAN = float("nan")


@dataclass(frozen=True)
class Case:
    kind: str
    subject: str
    says: str
    spoil: Callable[[MadeScene], object]
    severity: str = "error"
    besides: frozenset[str] = frozenset()
    """Other kinds that follow from the same fault."""
    rules: TrainerRules = OURS


def resize_all(width: int, height: int) -> Callable[[MadeScene], object]:
    return lambda scene: [scene.photograph(image.name, (width, height)) for image in scene.images]


def resize_one(width: int, height: int, **options: object) -> Callable[[MadeScene], object]:
    return lambda scene: scene.photograph("03.jpg", (width, height), **options)


def with_camera(**changes: object) -> Callable[[MadeScene], object]:
    def spoil(scene: MadeScene) -> None:
        scene.cameras = [replace(scene.cameras[0], **changes)]
        scene.write_model()

    return spoil


def with_image(index: int, **changes: object) -> Callable[[MadeScene], object]:
    def spoil(scene: MadeScene) -> None:
        scene.images[index] = replace(scene.images[index], **changes)
        scene.write_model()

    return spoil


def with_model(**changes: object) -> Callable[[MadeScene], object]:
    def spoil(scene: MadeScene) -> None:
        for name, value in changes.items():
            setattr(scene, name, value)
        shutil.rmtree(scene.sparse)
        scene.write_model()

    return spoil


def photo(name: str, content: bytes | None = None, cut: int = 0) -> Callable[[MadeScene], object]:
    def spoil(scene: MadeScene) -> None:
        path = scene.photographs / name
        path.write_bytes(content if content is not None else path.read_bytes()[:-cut])

    return spoil


def model_file(name: str, content: bytes) -> Callable[[MadeScene], object]:
    return lambda scene: (scene.sparse / name).write_bytes(content)


def text_camera(**changes: object) -> Callable[[MadeScene], object]:
    return with_model(suffix="txt", cameras=[replace(pinhole(), **changes)])


def keep(count: int) -> Callable[[MadeScene], object]:
    return lambda scene: with_model(images=scene.images[:count])(scene)


def repaint(name: str, mode: str, **options: object) -> Callable[[MadeScene], object]:
    """Replace the first photograph by another kind of file under a name of its own."""

    def spoil(scene: MadeScene) -> None:
        with_image(0, name=name)(scene)
        scene.photograph(name, (WIDTH, HEIGHT), mode, **options)

    return spoil


def animate(scene: MadeScene) -> None:
    from PIL import Image

    frames = [Image.new("RGB", (WIDTH, HEIGHT), colour) for colour in ("red", "blue")]
    repaint("a.png", "RGB", save_all=True, append_images=frames)(scene)


def stereo(scene: MadeScene) -> None:
    images = [
        replace(image, name=f"{side}/{image.name}", camera_id=camera)
        for camera, side, image in zip([1, 2] * 4, ["left", "right"] * 4, scene.images, strict=True)
    ]
    scene.cameras = [pinhole(1), pinhole(2, WIDTH + 2)]
    with_model(images=images)(scene)
    for image in images:
        scene.photograph(image.name, (WIDTH, HEIGHT))


def loop(scene: MadeScene) -> None:
    (scene.photographs / "03.jpg").unlink()
    (scene.photographs / "03.jpg").symlink_to("03.jpg")


def pipe(scene: MadeScene) -> None:
    (scene.photographs / "03.jpg").unlink()
    os.mkfifo(scene.photographs / "03.jpg")


def sibling(*left_out: str, extra: str = "") -> Callable[[MadeScene], object]:
    def spoil(scene: MadeScene) -> None:
        names = [image.name for image in scene.images if image.name not in left_out] + ([extra] if extra else [])
        (scene.root / "images_4").mkdir()
        for name in names:
            shutil.copy(scene.photographs / "01.jpg", scene.root / "images_4" / name)

    return spoil


def rename_all(scene: MadeScene) -> None:
    for path in scene.photographs.iterdir():
        path.rename(path.with_name(f"DJI_{path.name}"))


def dangle(scene: MadeScene) -> None:
    (scene.photographs / "03.jpg").unlink()
    (scene.photographs / "03.jpg").symlink_to("/media/none/03.jpg")


def below(scene: MadeScene) -> None:
    (scene.photographs / "flight 1").mkdir()
    for path in scene.photographs.glob("*.jpg"):
        path.rename(scene.photographs / "flight 1" / path.name)


def few_points(scene: MadeScene) -> None:
    with_model(xyz=scene.xyz[:5])(scene)


def far_away(scene: MadeScene) -> None:
    with_model(xyz=np.concatenate([scene.xyz, [[1e6, 0.0, 3e6]]]))(scene)


def rounded(scene: MadeScene) -> None:
    far = np.array([500_000.0, 4_400_000.0, 0.0])
    images = [replace(image, translation=tuple(image.translation - image.rotation() @ far)) for image in scene.images]
    with_model(images=images, xyz=(scene.xyz + far).astype(np.float32).astype(np.float64))(scene)


EXIF_6 = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:1234"
SOUND = (86.0, 86.0, 48.0, 36.0)
UNREGISTERED = frozenset({"unregistered"})
MIXED, FEW = frozenset({"mixed_sizes"}), frozenset({"few_pixels_off"})
CASES = [
    Case("scaled", "03.jpg", "images_4, a quarter", resize_all(24, 18)),
    Case("scaled", "03.jpg", "images_2, a half", resize_all(48, 36), "warning", rules=FOV),
    Case("scaled", "03.jpg", "2 times as large", resize_all(192, 144)),
    Case("scaled", "03.jpg", "62.5 % of the size", resize_all(60, 45)),
    Case("few_pixels_off", "03.jpg", "3 px less in height: rounding or a crop", resize_all(96, 69)),
    Case("few_pixels_off", "03.jpg", "2 px more in width", resize_all(98, 72), "warning", rules=FOV),
    Case("few_pixels_off", "03.jpg", "resized (images_2, a half) and 2 px less in height", resize_all(48, 34)),
    Case("transposed", "03.jpg", "exchanged", resize_all(72, 96)),
    Case("transposed", "03.jpg", "EXIF orientation 6", resize_one(72, 96, exif=EXIF_6)),
    Case("transposed", "03.jpg", "exchanged", resize_all(36, 48), rules=FOV),
    Case("other_size", "03.jpg", "another shape", resize_all(96, 50)),
    Case("mixed_sizes", "camera 1", "7 of 96x72, 1 of 96x70", resize_one(96, 70), besides=FEW),
    Case("unlike_ratios", "camera 2 (right/)", "96x72 for 98x72", stereo, besides=FEW),
    Case("no_image_folder", "images", "no such folder", lambda scene: shutil.rmtree(scene.photographs)),
    Case("missing_image", "03.jpg", "no such file", lambda scene: (scene.photographs / "03.jpg").unlink()),
    Case("missing_image", "03.jpg", "no such file at /media/none/03.jpg", dangle),
    Case("no_image_folder", "images", "8 of them lie in", below, besides=UNREGISTERED),
    Case("missing_image", "01.png", "there is 01.jpg", with_image(0, name="01.png")),
    Case("missing_image", "images", "8 images of the model have no file, for", rename_all, besides=UNREGISTERED),
    Case("wrong_case", "01.JPG", "is called 01.jpg", with_image(0, name="01.JPG")),
    Case("empty_image", "03.jpg", "0 bytes", photo("03.jpg", b"")),
    Case("truncated_image", "03.jpg", "truncated", photo("03.jpg", cut=40)),
    Case("truncated_image", "03.jpg", "ends inside its header", photo("03.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF")),
    Case("unreadable_image", "03.jpg", "no image format", photo("03.jpg", b"<html>not found</html>")),
    Case("unreadable_image", "03.jpg", "git-lfs pointer", photo("03.jpg", LFS)),
    Case("unreadable_image", "03.jpg", "links run in a circle", loop),
    Case("unreadable_image", "03.jpg", "not a regular file", pipe),
    Case("cmyk", "03.jpg", "CMYK", lambda scene: scene.photograph("03.jpg", (WIDTH, HEIGHT), "CMYK")),
    Case("sixteen_bit", "a.png", "more than 8 bits", repaint("a.png", "I;16"), "warning"),
    Case("unreadable_image", "a.tif", "white is unknown", repaint("a.tif", "F")),
    Case("sixteen_bit", "a.tif", "more than 8 bits", repaint("a.tif", "I;16"), "warning"),
    Case("alpha", "a.png", "alpha channel", repaint("a.png", "RGBA"), "warning"),
    Case("alpha", "a.webp", "alpha channel", repaint("a.webp", "RGBA", lossless=True), "warning"),
    Case("animated", "a.png", "several frames", animate, "warning"),
    Case("exif_orientation", "03.jpg", "orientation is 6", resize_one(96, 72, exif=EXIF_6), "warning"),
    Case("name_clash", "images_4/03", "03.jpg, 03.png", sibling(extra="03.png"), "warning"),
    Case("shifted_pairing", "images_4/", "lacks 03", sibling("03.jpg"), "warning"),
    Case("principal_point_outside", "camera 1", "(192, 144)", with_camera(params=(86.0, 86.0, 192.0, 144.0))),
    Case("principal_point_far", "camera 1", "(90, 36)", with_camera(params=(86.0, 86.0, 90.0, 36.0)), "warning"),
    Case("impossible_focal", "camera 1", "fx -86", with_camera(params=(-86.0, 86.0, 48.0, 36.0))),
    Case("impossible_focal", "camera 1", "fx 1", with_camera(params=(1.0, 1.0, 48.0, 36.0))),
    Case("unusual_focal", "camera 1", "20 times", with_camera(params=(1920.0, 1920.0, 48.0, 36.0)), "warning"),
    Case("unusual_focal", "camera 1", "not square", with_camera(params=(86.0, 43.0, 48.0, 36.0)), "warning"),
    Case("bad_params", "camera 1", "nan", with_camera(params=(NAN, 86.0, 48.0, 36.0))),
    Case("bad_params", "camera 1", "inf", with_camera(params=(float("inf"), 86.0, 48.0, 36.0))),
    Case("params_count", "camera 1", "3 parameters", text_camera(params=(86.0, 48.0, 36.0))),
    Case("unsupported_model", "camera 1", "OPENCV", with_camera(model="OPENCV", params=(*SOUND, 0.1, 0, 0, 0))),
    Case("unsupported_model", "camera 1", "MADE_UP", text_camera(model="MADE_UP")),
    Case("bad_camera_size", "camera 1", "0x72", with_camera(width=0)),
    Case("no_points", "points3D", "no points", with_model(xyz=np.zeros((0, 3)))),
    Case("bad_points", "points3D", "1 of 2", with_model(xyz=np.array([[0, 0, 4.0], [NAN, 0, 4.0]]))),
    Case("few_points", "points3D", "0 of 8 images see 8", few_points, "warning"),
    Case("far_points", "points3D", "1 of 13 points", far_away, "warning"),
    Case("rounded_points", "points3D", "steps of 0.5", rounded, "warning"),
    Case("unseen_points", "points3D", "12 of 12", with_model(track_ids=[77, 78]), "warning"),
    Case("no_pose", "03.jpg", "no pose", with_image(2, quat=(0.0, 0.0, 0.0, 0.0))),
    Case("bad_pose", "03.jpg", "nan", with_image(2, translation=(0.0, NAN, 0.0))),
    Case("bad_pose", "03.jpg", "too large", with_image(2, quat=(1e200, 1e200, 0.0, 0.0))),
    Case("duplicate_name", "01.jpg", "2 images", with_image(1, name="01.jpg")),
    Case("few_images", "images", "5 images, fewer than", keep(5), "warning"),
    Case("too_few_images", "images", "2 images", keep(2), besides=frozenset({"unregistered"})),
    Case("no_images", "images", "0 images", with_model(images=[])),
    Case("missing_model", "sparse/0", "no such folder", lambda scene: shutil.rmtree(scene.sparse)),
    Case("missing_model", "sparse/0", "images.bin missing", lambda scene: (scene.sparse / "images.bin").unlink()),
    Case("corrupt_model", "cameras.bin", "empty", model_file("cameras.bin", b"")),
    Case("corrupt_model", "images.bin", "git-lfs pointer", model_file("images.bin", LFS)),
    Case("corrupt_model", "points3D.bin", "left over", model_file("points3D.bin", bytes(9))),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.says}")
def test_every_class_is_found_named_and_weighed(scene: MadeScene, case: Case) -> None:
    case.spoil(scene)
    audit = scene.audit(case.rules)
    found = [finding for finding in audit.findings if finding.kind == case.kind and case.subject in finding.subject]
    assert found, audit.findings
    assert case.says in found[0].message
    assert found[0].severity == case.severity
    assert found[0].remedy
    assert found[0].why
    assert {finding.kind for finding in audit.findings} <= {case.kind} | case.besides
    assert audit.exit_code() == (3 if case.severity == "error" else 0)
    assert audit.exit_code(strict=True) == 3
    assert audit.bad_patches() == (("p0",) if case.severity == "error" else ())


def test_the_table_above_leaves_no_class_out() -> None:
    elsewhere = {
        "camera_drift",
        "pose_drift",
        "not_in_source",
        "broken_rigs",
        "distorted",
    }  # test_audit.py, test_stereo_rig.py
    elsewhere |= {
        "several_models", "formats_differ", "unregistered", "unicode_form", "undecodable", "unreadable_mask",
        "mask_size", "black_mask", "photos_exchanged", "other_content", "other_pictures", "displaced", "lens_mix",
        "blank", "blurred", "mask_values", "mask_share", "mask_names", "out_of_view", "pairs_disagree", "rigs_differ",
    }  # test_beside.py, test_content.py, test_untracked.py, test_stereo_rig.py  # fmt: skip
    elsewhere |= {kind for fault in FAULTS for kind in fault.kinds} | {"flat_angles", "wrong_k", "reprojection"}
    elsewhere |= {"internal_fault", "far_apart", "little_overlap", "cut_short"}
    # tests/scheduler/test_wall.py, tests/cli/test_far_scenes.py, test_overlap.py, test_beside.py
    assert set(KINDS) == {case.kind for case in CASES} | elsewhere


def test_of_photographs_of_the_same_shape_no_crop_is_advised_which_would_be_refused(scene: MadeScene) -> None:
    resize_all(60, 45)(scene)
    assert {"--fix scale" in one.remedy and "--fix crop" not in one.remedy for one in scene.audit().findings} == {True}


@pytest.mark.parametrize("suffix", ["bin", "txt"])
def test_a_sound_scene_has_no_findings(scene: MadeScene, suffix: str) -> None:
    with_model(suffix=suffix)(scene)
    audit = scene.audit()
    assert audit.findings == ()
    assert audit.exit_code(strict=True) == 0
    assert audit.rows[0].sizes == (((WIDTH, HEIGHT), 8),)
