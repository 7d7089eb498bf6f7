"""Sources that are wrong: all mistakes at once, each with its place and remedy; nothing is written, nothing raised."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_writers import (
    Scene,
    camera_to_world,
    keep_frames,
    quarry,
    write_metashape,
    write_nerfstudio,
    write_ngp,
    write_opensfm,
    write_ply,
    write_realityscan,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scenes import MadeScene

from splatbatch.errors import ConfigError, SceneError, SplatbatchError
from splatbatch.scene.imports.capture import ImportOptions
from splatbatch.scene.imports.run import bring_in

QUICK = ImportOptions(triangulates=False)


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one scene in every format, read in no time."""
    top = tmp_path_factory.mktemp("sources")
    made = MadeScene(top / "made").write()
    scene = Scene(made.sparse, made.photographs)
    write_nerfstudio(scene, top / "ns", applied=False)
    write_metashape(scene, top / "ms")
    write_realityscan(scene, top / "rs")
    write_opensfm(scene, top / "os")
    return top


def mistakes(path: Path, tmp_path: Path, wish: ImportOptions = QUICK) -> str:
    """Return what an import says that writes nothing."""
    with pytest.raises(SceneError) as raised:
        bring_in(path, tmp_path / "out", wish)
    assert not (tmp_path / "out").exists()
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []
    return f"{raised.value.message} {raised.value.hint}"


Change = Callable[[dict[str, Any]], Any]


def json_with(source: Path, tmp_path: Path, change: Change) -> Path:
    """Return a changed copy of the transforms.json, beside the same photographs."""
    top = json.loads((source / "ns/transforms.json").read_text())
    top = change(top) or top
    (tmp_path / "in").mkdir()
    (tmp_path / "in/images").symlink_to(source / "made/images")
    (tmp_path / "in/sparse_pc.ply").write_bytes((source / "ns/sparse_pc.ply").read_bytes())
    path = tmp_path / "in/transforms.json"
    path.write_text(json.dumps(top))
    return path


def put(*keys: Any) -> Change:
    """Return a change that puts the last of the keys where the others lead."""
    *way, last, value = keys

    def change(top: Any) -> None:
        for key in way:
            top = top[key]
        top[last] = value

    return change


MIRROR = [[-1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
SHEAR = [[1, 0.5, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


def roll(frame: dict[str, Any]) -> None:
    frame["transform_matrix_start"] = frame.pop("transform_matrix")


BAD_JSON: dict[str, tuple[Change, str]] = {
    "unknown model": (put("camera_model", "ORTHOPHOTO"), r"top level: camera_model 'ORTHOPHOTO' is no known lens"),
    "no frames": (put("frames", []), r"transforms.json: the list of frames is empty"),
    "frames no list": (put("frames", {"a": 1}), r"frames is missing, or is not a list"),
    "frame no object": (put("frames", 3, "hello"), r"frames\[3\]: 'hello' is no frame"),
    "no path": (put("frames", 3, "file_path", None), r"frames\[3\]: file_path null"),
    "photo missing": (put("frames", 3, "file_path", "images/no.jpg"), r'frames\[3\] "images/no.jpg": no photo'),
    "other suffix": (put("frames", 3, "file_path", "images/04.png"), r"no photograph of this name; there is 04.jpg"),
    "mirrored": (put("frames", 3, "transform_matrix", MIRROR), r'frames\[3\] "images/04.jpg": .* mirrors'),
    "sheared": (put("frames", 3, "transform_matrix", SHEAR), r"is no rotation: it stretches by 1\.28"),
    "3x3": (put("frames", 3, "transform_matrix", [[1, 0, 0]] * 3), r"has the shape 3x3, not 4x4"),
    "ragged": (put("frames", 3, "transform_matrix", [[1, 0], [1]]), r"the matrix holds values that are not numbers"),
    "words": (put("frames", 3, "transform_matrix", "none"), r"transform_matrix: the matrix holds values"),
    "not finite": (put("frames", 3, "transform_matrix", [[float("nan")] * 4] * 4), r"the matrix holds NaN|not numbers"),
    "last row": (put("frames", 3, "transform_matrix", [[1, 0, 0, 0]] * 4), r"the last row of the matrix is 1, 0, 0, 0"),
    "no rotation": (put("frames", 3, "transform_matrix", [[0] * 4] * 3 + [[0, 0, 0, 1]]), r"its determinant is 0"),
    "no pose": (lambda top: top["frames"][3].pop("transform_matrix") and None, r"a photograph without a pose"),
    "twice": (put("frames", 3, "file_path", "images/03.jpg"), r"the photograph 03.jpg has 2 poses"),
    "focal text": (put("fl_x", "wide"), r"top level: fl_x 'wide': the value is not a finite"),
    "focal 0": (put("fl_x", 0), r"a focal length must be above 0"),
    "focal negative": (put("fl_y", -5), r"a focal length must be above 0"),
    "no focal": (lambda top: {k: v for k, v in top.items() if not k.startswith("fl_")}, r"fl_x is missing"),
    "fx": (lambda top: {**{k: v for k, v in top.items() if not k.startswith("fl_")}, "fx": 60, "fy": 60},
           r"fx is written instead of fl_x\n.*Rename the keys fx and fy"),
    "K": (lambda top: {**{k: v for k, v in top.items() if not k.startswith("fl_")}, "K": [[60, 0, 48]]},
          r"K is written instead of fl_x\n.*Write fl_x, fl_y, cx and cy instead of the matrix"),
    "angle": (lambda top: {**{k: v for k, v in top.items() if not k.startswith("fl_")}, "camera_angle_x": 60},
              r"camera_angle_x 60 is no angle of view"),
    "contrary": (put("camera_angle_x", 0.3), r"contradicts camera_angle_x"),
    "pinhole with k": (lambda top: {**top, "camera_model": "PINHOLE", "k1": 0.1}, r"no distortion, but .* k1 0.1"),
    "k4 too large": (put("k4", -9e3), r"k4 -9000 of a radial polynomial: the lens folds over"),
    "half a size": (put("h", None), r"h null: the value is not a finite|w 96, h null"),
    "other shape": (put("h", 50), r"camera has 96x50 pixels, its photograph 01.jpg has 96x72"),
    "turned": (lambda top: {**top, "w": 72, "h": 96}, r"width and height are exchanged"),
    "applied mirrors": (put("applied_transform", MIRROR[:3]), r"applied_transform: the matrix mirrors"),
    "applied shape": (put("applied_transform", [1, 2]), r"applied_transform: the matrix has the shape 2"),
    "applied scale": (put("applied_scale", -2), r"applied_scale -2 is not a number above 0"),
    "mask missing": (put("frames", 3, "mask_path", "masks/no.png"), r"mask_path 'masks/no.png': no such file"),
    "depth no text": (put("frames", 3, "depth_file_path", 7), r"depth_file_path 7: no such file"),
    "points missing": (put("ply_file_path", "no.ply"), r"ply_file_path 'no.ply': no such file"),
    "split of nobody": (put("test_filenames", ["images/77.jpg"]), r"'images/77.jpg' is the photograph of"),
    "mixed units": (put("frames", 3, "transform_matrix", [[1, 0, 0, 9e4], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]),
                    r'frames\[3\] "images/04.jpg": the camera is [\d,]+ times as far'),
    "nowhere": (put("frames", 3, "transform_matrix", 0, 3, 1e300), r'"images/04.jpg": the camera.s position \(1e\+300'),
    "rolling shutter": (lambda top: roll(top["frames"][3]), r"rolling shutter"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_JSON)
def test_what_is_wrong_in_a_transforms_json_is_said_with_its_place(source: Path, tmp_path: Path, name: str) -> None:
    change, expected = BAD_JSON[name]
    assert re.search(expected, mistakes(json_with(source, tmp_path, change), tmp_path))


def test_all_mistakes_are_told_at_once(source: Path, tmp_path: Path) -> None:
    def spoil(top: dict[str, Any]) -> None:
        for name in ("mirrored", "photo missing", "mask missing"):
            BAD_JSON[name][0](top)
        put("frames", 5, "transform_matrix", SHEAR)(top)
        put("ply_file_path", "no.ply")(top)

    said = mistakes(json_with(source, tmp_path, spoil), tmp_path)
    assert said.count("frames[3]") == 3 and "frames[5]" in said and "no.ply" in said and said.count("→") == 4


def test_a_mistake_that_all_frames_share_is_told_once(source: Path, tmp_path: Path) -> None:
    assert mistakes(json_with(source, tmp_path, put("fl_x", "wide")), tmp_path).count("is not a finite number") == 1


def test_of_thousands_of_mistakes_some_are_shown_and_the_rest_counted(source: Path, tmp_path: Path) -> None:
    def spoil(top: dict[str, Any]) -> None:
        top["frames"] = [{**top["frames"][0], "file_path": f"images/{i}.jpg"} for i in range(5000)]

    said = mistakes(json_with(source, tmp_path, spoil), tmp_path)
    assert "5001 mistakes" in said.replace(",", "") and "4,992 more mistakes like these" in said and len(said) < 5000


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "\x00\xff", '{"frames": [', "[" * 10_000, '{"frames": [[[[]]]]}', "{'frames': []}"]
)
def test_what_is_no_whole_json_is_said(source: Path, tmp_path: Path, text: str) -> None:
    path = json_with(source, tmp_path, lambda top: None)
    path.write_text(text, errors="surrogateescape")
    assert "mistake" in mistakes(path, tmp_path)


@pytest.mark.parametrize("name", ["a\x00b/01.jpg", "images/\x00.jpg", "\ud800/01.jpg"])
def test_a_path_that_no_file_can_have_is_a_mistake(source: Path, tmp_path: Path, name: str) -> None:
    def spoil(top: dict[str, Any]) -> None:
        top["frames"][0]["file_path"] = name

    assert "mistake" in mistakes(json_with(source, tmp_path, spoil), tmp_path)


def test_a_json_that_was_cut_anywhere_writes_nothing(source: Path, tmp_path: Path) -> None:
    path = json_with(source, tmp_path, lambda top: None)
    text = path.read_text()
    for end in range(1, len(text) - 1, len(text) // 20):
        path.write_text(text[:end])
        assert "no complete JSON" in mistakes(path, tmp_path)


TOP_KEYS = [
    "w", "h", "fl_x", "fl_y", "cx", "cy", "k1", "k4", "p1", "camera_model", "applied_transform", "applied_scale",
    "ply_file_path", "frames", "test_filenames", "camera_angle_x", "is_fisheye",
]  # fmt: skip
FRAME_KEYS = ["file_path", "transform_matrix", "mask_path", "depth_file_path", "fl_x", "w", "k3", "colmap_im_id"]
JUNK = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(TOP_KEYS), junk=JUNK)
def test_junk_at_the_top_is_never_a_traceback(
    source: Path, tmp_path_factory: pytest.TempPathFactory, key: str, junk: Any
) -> None:
    folder = tmp_path_factory.mktemp("junk")
    with_junk(json_with(source, folder, put(key, junk)), folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(FRAME_KEYS), junk=JUNK)
def test_junk_in_a_frame_is_never_a_traceback(
    source: Path, tmp_path_factory: pytest.TempPathFactory, key: str, junk: Any
) -> None:
    folder = tmp_path_factory.mktemp("junk")
    with_junk(json_with(source, folder, put("frames", 2, key, junk)), folder)


def with_junk(path: Path, folder: Path) -> None:
    try:
        bring_in(path, folder / "out", QUICK)
    except SplatbatchError:
        assert not (folder / "out").exists()


# Metashape


def xml_with(source: Path, tmp_path: Path, *changes: tuple[str, str]) -> Path:
    """Return a copy of the XML with some words exchanged, once each."""
    text = (source / "ms/cameras.xml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/images").symlink_to(source / "made/images")
    (tmp_path / "in/cameras.xml").write_text(text)
    return tmp_path / "in/cameras.xml"


HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
LAUGHS = '<!DOCTYPE d [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
OUTSIDE = '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
BAD_XML: dict[str, tuple[tuple[str, str], str]] = {
    "billion laughs": ((HEAD, HEAD + LAUGHS), r"line 1: the file declares a document type"),
    "outside entity": ((HEAD, HEAD + OUTSIDE), r"declares a document type or an entity"),
    "deep": (("<sensors>", "<a>" * 100 + "</a>" * 100 + "<sensors>"), r"elements are nested more than 64 deep"),
    "open tag": (("</chunk>", ""), r"line \d+, column \d+: mismatched tag; "),
    "other xml": (("<chunk", "<other"), r"mismatched tag|holds no chunk"),
    "pose words": (('label="01"><transform>', 'label="01"><transform>no '), r'"01": .* is not 16'),
    "unknown type": (('<calibration type="frame"', '<calibration type="rpc"'), r".rpc. is no known lens \(known: E"),
    "no calibration": (("calibration", "former"), r"mismatched tag"),
    "no focal": (("<f>", "<f>0</f><g>"), r"mismatched tag"),
    "focal words": (("<b1>", "<k1>wide</k1><b1>"), r"the calibration has no number for k1"),
    "sizes": (('<resolution width="96"', '<resolution width="80"'), r"resolution \(80, 72\), but its calib"),
    "label": (('label="03"', 'label="77"'), r'line \d+: camera 3 "77": no photograph of this name below'),
    "label twice": (('label="03"', 'label="04"'), r'camera 4 "04": the photograph 04.jpg has 2 poses'),
    "no sensor": (('sensor_id="1"', 'sensor_id="9"'), r"camera of sensor 9: the file has no sensor 9"),
    "scale": (("2.5</scale>", "-1</scale>"), r"and a scale above 0"),
    "mirrored chunk": (('<rotation locked="false">', '<rotation locked="false">-1 0 0 0 1 0 0 0 1</rotation><x>'),
                       r"mismatched tag"),
    "two components": (('component_id="0"', 'component_id="1"'), r"2 components that are not connected"),
    "mixed ids": (('camera id="2"', 'camera id="1"'), r"has the id 1 of another camera"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_XML)
def test_what_is_wrong_in_metashapes_xml_is_said_with_its_line(source: Path, tmp_path: Path, name: str) -> None:
    change, expected = BAD_XML[name]
    assert re.search(expected, mistakes(xml_with(source, tmp_path, change), tmp_path))


def test_a_mirrored_pose_or_chunk_of_metashape_is_refused(source: Path, tmp_path: Path) -> None:
    path = xml_with(source, tmp_path)
    mirrored = "<rotation>-1 0 0 0 1 0 0 0 1</rotation>"
    pose = "<transform>1 0 0 0 0 1 0 0 0 0 -1 0 0 0 0 1</transform>"
    text = re.sub(r'<rotation locked="false">[^<]*</rotation>', mirrored, path.read_text())
    path.write_text(re.sub(r"<transform>[^<]+</transform>", pose, text, count=1))
    assert mistakes(path, tmp_path).count("mirrors") == 2


def test_an_xml_that_was_cut_anywhere_writes_nothing(source: Path, tmp_path: Path) -> None:
    path = xml_with(source, tmp_path)
    text = path.read_text()
    for end in range(1, len(text.rstrip()) - 1, len(text) // 20):
        path.write_text(text[:end])
        assert "no complete XML" in mistakes(path, tmp_path)


def test_labels_that_may_be_two_photographs_are_not_guessed(source: Path, tmp_path: Path) -> None:
    path = xml_with(source, tmp_path)
    (tmp_path / "photos/a").mkdir(parents=True)
    for name in ("01.jpg", "a/01.jpg"):
        (tmp_path / "photos" / name).write_bytes((source / "made/images/01.jpg").read_bytes())
    said = mistakes(path, tmp_path, ImportOptions(images=tmp_path / "photos", triangulates=False))
    assert "have this name: 01.jpg, a/01.jpg" in said


# COLMAP exports

BAD_MODEL: dict[str, tuple[str, tuple[str, str], str]] = {
    "unknown model": ("cameras.txt", ("FULL_OPENCV", "RICOH"), r"camera 1: unknown camera model RICOH"),
    "parameters": ("cameras.txt", ("0 0 0 0 0 0 0 0", "0 0"), r"the camera has 6 parameters, but FULL_OPENCV has 12"),
    "not finite": (
        "cameras.txt",
        ("0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 nan"),
        r"a parameter of the camera is not a finite number",
    ),
    "normalised": (
        "cameras.txt",
        ("96 72 86.4 87.36 48.0 36.0", "1 1 0.9 0.91 0.5 0.5"),
        r"is not in pixels of the photo",
    ),
    "other shape": ("cameras.txt", ("96 72", "96 40"), r"camera has 96x40 pixels, its photograph 01.jpg has 96x72"),
    "no camera": (
        "images.txt",
        (" 1 01.jpg", " 9 01.jpg"),
        r'image 1 "01.jpg": the image names camera 9, which cameras.txt lacks',
    ),
    "no photo": ("images.txt", ("01.jpg", "77.jpg"), r'image 1 "77.jpg": no photograph of this name below'),
    "twice": ("images.txt", ("02.jpg", "01.jpg"), r"the photograph 01.jpg has 2 poses"),
    "pose nan": ("images.txt", ("\n1 ", "\n1 nan "), r"line 2 does not describe an image|the pose is not finite"),
    "point words": ("points3D.txt", ("\n1 ", "\n1 x "), r"points3D.txt: line 2 does not describe a point"),
}


@pytest.mark.parametrize("name", BAD_MODEL)
def test_what_is_wrong_in_an_export_is_said_with_its_place(source: Path, tmp_path: Path, name: str) -> None:
    part, (old, new), expected = BAD_MODEL[name]
    (tmp_path / "in").mkdir()
    for each in ("cameras.txt", "images.txt", "points3D.txt"):
        text = (source / "rs" / each).read_text()
        assert each != part or old in text
        (tmp_path / "in" / each).write_text(text.replace(old, new, 1) if each == part else text)
    (tmp_path / "in/images").symlink_to(source / "made/images")
    assert re.search(expected, mistakes(tmp_path / "in", tmp_path))


MODEL_FILES = [
    (kind, f"{part}.txt") for kind in ("rs", "os/colmap_export") for part in ("cameras", "images", "points3D")
]
ODD = ["0", "-1", "1e308", "-1e308", "1e-320", "nan", "inf", "x", "", "99999999999999999999", "0.5", "\\", "../a"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(which=st.sampled_from(MODEL_FILES), at=st.integers(0, 40), odd=st.sampled_from(ODD))
def test_odd_words_in_an_export_are_never_a_traceback(
    source: Path, tmp_path_factory: pytest.TempPathFactory, which: tuple[str, str], at: int, odd: str
) -> None:
    folder, (kind, part) = tmp_path_factory.mktemp("odd"), which
    (folder / "in").mkdir()
    (folder / "in/images").symlink_to(source / "made/images")
    for each in ("cameras.txt", "images.txt", "points3D.txt"):
        words = re.split(r"(\s+)", (source / kind / each).read_text())
        if each == part:
            words[min(10 + 2 * at, len(words) - 1)] = odd  # behind the comment
        (folder / "in" / each).write_text("".join(words))
    with_junk(folder / "in", folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 300), odd=st.sampled_from(ODD))
def test_odd_words_in_metashapes_xml_are_never_a_traceback(
    source: Path, tmp_path_factory: pytest.TempPathFactory, at: int, odd: str
) -> None:
    folder = tmp_path_factory.mktemp("odd")
    path = xml_with(source, folder)
    words = re.split(r"([\s<>\"=/]+)", path.read_text())
    words[min(20 + 2 * at, len(words) - 1)] = odd
    path.write_text("".join(words))
    with_junk(path, folder)


# poses that only the photographs can tell of


def spoilt(tmp_path: Path, change: Callable[[np.ndarray], np.ndarray]) -> Path:
    path = keep_frames(write_ngp(quarry(), tmp_path / "in"), 8)
    top = json.loads(path.read_text())
    matrices = {f"./images/{image.name}": change(camera_to_world(image)) for image in quarry().images()}
    for frame in top["frames"]:
        frame["transform_matrix"] = matrices[frame["file_path"]].tolist()
    path.write_text(json.dumps(top))
    return path


def mirrored(matrix: np.ndarray) -> np.ndarray:
    matrix = matrix @ np.diag([1.0, -1, -1, 1])
    matrix[0, 3] *= -1
    return matrix


SPOILT: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "OpenCV's axes": (lambda matrix: matrix, r"more would fit if the camera axes are OpenCV's"),
    "world to camera": (
        np.linalg.inv,
        r"more would fit if the matrices lead from the world to the camera",
    ),
    "mirrored world": (mirrored, r"more would fit if the camera positions are mirrored along x"),
}


@pytest.mark.all
@pytest.mark.parametrize("name", SPOILT)
def test_poses_that_the_photographs_contradict_are_refused_with_the_cause(tmp_path: Path, name: str) -> None:
    change, cause = SPOILT[name]
    said = mistakes(spoilt(tmp_path, change), tmp_path, ImportOptions())
    assert "poses: the photographs contradict the poses" in said and re.search(cause, said)


@pytest.mark.all
def test_points_in_other_units_are_refused(tmp_path: Path) -> None:
    path = write_nerfstudio(quarry(), tmp_path / "in", applied=False)
    model = quarry().model()
    xyz = np.array([point.xyz for point in model.points3D.values()])
    middle = np.mean([image.projection_center() for image in model.images.values()], axis=0)
    write_ply(tmp_path / "in/sparse_pc.ply", middle + 10 * (xyz - middle), np.full(xyz.shape, 90, np.uint8))
    assert re.search(r"times as far from the cameras as the photographs show", mistakes(path, tmp_path))


def test_points_of_another_world_are_refused(source: Path, tmp_path: Path) -> None:
    path = json_with(source, tmp_path, lambda top: None)
    xyz = np.random.default_rng(1).normal(size=(50, 3)) - np.array([0, 0, 4e5])
    write_ply(tmp_path / "in/sparse_pc.ply", xyz, np.zeros((50, 3)))
    assert "only 0 % of the photographs have any of the points in view" in mistakes(path, tmp_path)


AXES = "property float x\nproperty float y\nproperty float z\n"
BAD_PLY = [
    ("", r"empty"),
    ("hello", r"no PLY file"),
    ("ply\nformat binary_little_endian 1.0\nend_header\n", r"not vertex"),
    (
        f"ply\nformat binary_little_endian 1.0\nelement vertex 9999999999\n{AXES}end_header\n1234",
        r"the file is cut: 9,999,9",
    ),
    (
        f"ply\nformat ascii 1.0\nelement vertex 2\n{AXES}end_header\n1 2 3\n",
        r"the file is cut: it ends inside point 2 of 2",
    ),
    (f"ply\nformat ascii 1.0\nelement vertex 1\n{AXES[:34]}end_header\n1 2\n", r"lack x, y or z"),
    ("ply\nformat klingon 1.0\nelement vertex 1\nend_header\n", r"is no format of PLY"),
]


@pytest.mark.parametrize(("head", "expected"), BAD_PLY)
def test_ply_files_that_are_none_are_said(source: Path, tmp_path: Path, head: str, expected: str) -> None:
    path = json_with(source, tmp_path, lambda top: None)
    (tmp_path / "in/sparse_pc.ply").write_text(head)
    assert re.search(expected, mistakes(path, tmp_path))


# what the import is told


def test_missing_photographs_may_be_left_out(source: Path, tmp_path: Path) -> None:
    path = json_with(source, tmp_path, put("frames", 3, "file_path", "images/nope.jpg"))
    done = bring_in(path, tmp_path / "out", ImportOptions(skips_missing=True, triangulates=False))
    assert len(done.capture.shots) == 7 and "1 pose without a photograph: images/nope.jpg" in done.log.left_out
    assert "1 photograph without a pose: 04.jpg" in done.log.left_out


def test_an_import_overwrites_nothing(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").touch()
    with pytest.raises(ConfigError, match="exists and is not empty"):
        bring_in(source / "ns", tmp_path / "out", QUICK)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_two_files_of_a_kind_are_not_guessed(source: Path, tmp_path: Path) -> None:
    path = xml_with(source, tmp_path)
    (path.with_name("other.xml")).write_text(path.read_text())
    assert "2 files that could be imported: cameras.xml, other.xml" in mistakes(path.parent, tmp_path)


@pytest.mark.all
def test_thousands_of_photographs_take_seconds(source: Path, tmp_path: Path) -> None:
    def many(top: dict[str, Any]) -> None:
        top["frames"] = [{**top["frames"][i % 8], "file_path": f"images/{i:05d}.jpg"} for i in range(3000)]
        top.pop("ply_file_path")

    path = json_with(source, tmp_path, many)
    (tmp_path / "in/images").unlink()
    (tmp_path / "in/images").mkdir()
    for i in range(3000):
        (tmp_path / f"in/images/{i:05d}.jpg").hardlink_to(source / "made/images/01.jpg")
    assert len(bring_in(path, tmp_path / "out", QUICK).capture.shots) == 3000


@pytest.mark.parametrize("encoding", ["klingon", "utf-7", "shift_jis", "UTF-32"])
def test_an_xml_in_an_encoding_that_is_not_read_is_a_mistake(source: Path, tmp_path: Path, encoding: str) -> None:
    path = xml_with(source, tmp_path, ('encoding="UTF-8"', f'encoding="{encoding}"'))
    assert re.search(r"encoding cannot be read|no complete XML", mistakes(path, tmp_path))


@pytest.mark.parametrize("token", ['<a b="{}"/>', '<a b="{}', "<!-- {} -->", "<?pi {} ?>"])
def test_a_tag_of_30_mb_is_refused_at_once(source: Path, tmp_path: Path, token: str) -> None:
    path = xml_with(source, tmp_path, ("<sensors>", f"{token.format('x>' * 15_000_000)}<sensors>"))
    began = time.process_time()
    assert "a tag or a comment is longer than 1,048,576 bytes" in mistakes(path, tmp_path)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([put("k1", 1e30)], "k1 1e+30: the value is larger than any lens has"),
        ([put("fl_x", None)], "fl_x null: the value is not a finite number"),
        ([put("fl_x", 0)], "fl_x 0, fl_y "),
    ],
)
def test_what_is_said_of_numbers_is_true(source: Path, tmp_path: Path, changes: list, words: str) -> None:
    said = mistakes(json_with(source, tmp_path, *changes), tmp_path)
    assert words in said
    assert "None" not in said
    assert "1e+30 is no finite" not in said


@pytest.fixture
def transforms(scene: MadeScene, tmp_path: Path) -> Path:
    """Return a transforms.json of a made-up scene, whose frames share a camera."""
    return write_nerfstudio(Scene(scene.sparse, scene.photographs), tmp_path / "in", applied=False)


def test_val_and_test_may_hold_the_same_photographs(transforms: Path, tmp_path: Path) -> None:
    top = json.loads(transforms.read_text())
    for split, frames in (("train", top["frames"][2:]), ("val", top["frames"][:2]), ("test", top["frames"][:2])):
        (transforms.parent / f"transforms_{split}.json").write_text(json.dumps(top | {"frames": frames}))
    transforms.unlink()
    done = bring_in(transforms.parent, tmp_path / "out", QUICK)
    assert len(done.holdout) == 2


def test_a_camera_that_frames_share_counts_once(transforms: Path, tmp_path: Path) -> None:
    top = json.loads(transforms.read_text())
    larger = {name: 2 * top[name] for name in ("w", "h", "fl_x", "fl_y", "cx", "cy")}
    transforms.write_text(json.dumps(top | larger))
    [told] = [one for one in bring_in(transforms, tmp_path / "out", QUICK).log.converted if "camera" in one]
    assert told.startswith("1 camera:")


def test_a_reconstruction_of_opensfm_is_known_under_another_name(tmp_path: Path) -> None:
    shot = {"rotation": [0, 0, 0], "translation": [0, 0, 0], "camera": "v2"}
    (tmp_path / "reef.json").write_text(json.dumps([{"cameras": {"v2": {}}, "shots": {"a.jpg": shot}, "points": {}}]))
    with pytest.raises(SceneError) as refused:
        bring_in(tmp_path / "reef.json", tmp_path / "out", QUICK)
    assert "OpenSfM" in refused.value.message + refused.value.hint


@pytest.mark.parametrize(
    ("name", "head", "what"),
    [
        ("reef.json", '{\n "sfm_data_version": "0.3"}', "OpenMVG"),
        ("reef.json", '{"version": ["1", "2", "7"]}', "AliceVision"),
        ("reef.txt.json", '{"format": "application/opf-project+json"}', "Pix4D"),
    ],
)
def test_what_other_programs_write_is_known_under_another_name(tmp_path: Path, name: str, head: str, what: str) -> None:
    (tmp_path / name).write_text(head)
    assert what in mistakes(tmp_path / name, tmp_path)


@pytest.mark.parametrize("name", ["reconstruction.json", "sfm_data.json", "sfm.json"])
def test_a_transforms_json_is_known_under_the_name_of_another_format(
    transforms: Path, tmp_path: Path, name: str
) -> None:
    path = transforms.rename(transforms.with_name(name))
    assert len(bring_in(path, tmp_path / "out", QUICK).capture.shots) == 8


def test_a_photograph_in_other_letters_is_found_and_told(transforms: Path, tmp_path: Path) -> None:
    top = json.loads(transforms.read_text())
    top["frames"][3]["file_path"] = top["frames"][3]["file_path"].replace(".jpg", ".JPG")
    transforms.write_text(json.dumps(top))
    done = bring_in(transforms, tmp_path / "out", QUICK)
    assert "1 photograph found under another name: images/04.JPG" in done.log.converted


def test_a_photograph_without_suffix_that_may_be_two_is_not_guessed(transforms: Path, tmp_path: Path) -> None:
    images = tmp_path / "photos/images"
    images.mkdir(parents=True)
    for suffix in ("jpg", "png"):
        (images / f"04.{suffix}").write_bytes(b"")
    top = json.loads(transforms.read_text())
    transforms.write_text(json.dumps(top | {"frames": [top["frames"][3] | {"file_path": "images/04"}]}))
    said = mistakes(transforms, tmp_path, ImportOptions(images=tmp_path / "photos", triangulates=False))
    assert "several photographs have this name: 04.jpg, 04.png" in said
