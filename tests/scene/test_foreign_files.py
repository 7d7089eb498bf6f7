"""What other programs leave is known by its files; a scene is found from any of its parts."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from scenes import MadeScene

from splatbatch.errors import SceneError
from splatbatch.scene.finder import find_layout
from splatbatch.scene.formats import FORMATS, seen_at
from splatbatch.scene.partition.plan import SplitOptions
from splatbatch.scene.partition.split import SplitRequest, split

POINTS = np.random.default_rng(7).uniform((-1, -1, 3), (1, 1, 6), (40, 3))
WHOLE = SplitOptions(max_images=100)
BOM = b"\xef\xbb\xbf"
MADE = [
    (file.replace("*", "x"), one.heads[0] if one.heads else b"{}", one.what)
    for one in FORMATS
    for file in one.patterns[:1]
]


@pytest.mark.parametrize(("name", "head", "what"), MADE, ids=[f"{name}: {what}" for name, _, what in MADE])
def test_every_known_format_is_told_with_what_to_do(tmp_path: Path, name: str, head: bytes, what: str) -> None:
    (tmp_path / "in" / name).parent.mkdir(parents=True)
    (tmp_path / "in" / name).write_bytes(head)
    for command in (("init", str(tmp_path / "in")), ("import", str(tmp_path / "in"), str(tmp_path / "new"))):
        ended = invoke(*command)
        assert ended.code == 3 and f"is {what}. " in ended.err, ended.err
    assert seen_at(tmp_path / "in" / name)


@pytest.mark.parametrize(("name", "head"), [("a.csv", b"x,y"), ("a.xml", b"<svg/>"), ("a.out", b""), ("a.txt", b"hi")])
def test_what_only_ends_like_a_known_format_is_none(tmp_path: Path, name: str, head: bytes) -> None:
    (tmp_path / name).write_bytes(head)
    assert seen_at(tmp_path) == ""


def test_a_json_of_another_program_is_no_transforms_json(tmp_path: Path) -> None:
    (tmp_path / "reconstruction.json").write_text('[{"cameras": {}}]')
    told = invoke("import", str(tmp_path / "reconstruction.json"), str(tmp_path / "new")).err
    assert "opensfm export_colmap" in told and "frames" not in told


def test_verify_dims_says_what_lies_where_a_model_should(tmp_path: Path) -> None:
    MadeScene(tmp_path / "p0").write()
    (tmp_path / "p1").mkdir()
    (tmp_path / "p1/scan.psx").touch()
    (tmp_path / "c.yml").write_text("scene: {patches: .}")
    assert "scan.psx is a Metashape project" in invoke("verify-dims", "--config", str(tmp_path / "c.yml")).out


@pytest.mark.parametrize("part", ["sparse/0", "sparse", "images", "sparse/0/images.bin", "images/01.jpg"])
def test_a_scene_is_found_from_any_of_its_parts(tmp_path: Path, part: str) -> None:
    made = MadeScene(tmp_path / "reef").write()
    found = find_layout(made.root / part)
    assert found.top == made.root and f"belongs to the scene {made.root}" in found.notes[0]


@pytest.mark.parametrize("name", ["photos", "input", "Images/cam0", "images/cam0"])
def test_photographs_under_another_name_are_found_and_told(tmp_path: Path, name: str) -> None:
    made = MadeScene(tmp_path / "reef").write()
    aside = made.photographs.rename(made.root / "aside")
    (made.root / name).parent.mkdir(exist_ok=True)
    aside.rename(made.root / name)
    ended = invoke("init", str(made.root))
    assert f"photographs were found in {name}/ (8 of 8)" in ended.out, ended.err
    assert invoke("verify-dims", "--config", str(made.root / "splat_config.yml")).code == 0


def test_a_model_right_in_the_folder_is_told_where_it_belongs(tmp_path: Path) -> None:
    made = MadeScene(tmp_path / "reef").write()
    for path in made.sparse.iterdir():
        path.rename(made.root / path.name)
    shutil.rmtree(made.root / "sparse")
    ended = invoke("verify-dims", str(made.root))
    assert ended.code == 2 and "copy all three to sparse/0" in ended.err


def test_each_patch_with_photos_of_its_own_is_told_to_rename_them(tmp_path: Path) -> None:
    for patch in ("p0", "p1"):
        MadeScene(tmp_path / patch).write().photographs.rename(tmp_path / patch / "photos")
    assert "rename the folders to images/" in find_layout(tmp_path).notes[0]


def test_a_split_says_where_it_found_the_photographs(tmp_path: Path) -> None:
    made = MadeScene(tmp_path / "reef", xyz=POINTS).write()
    made.photographs.rename(made.root / "photos")
    done = split(SplitRequest(made.root, None, tmp_path / "patches", WHOLE), dry_run=True)
    assert f"photographs were found in {made.root / 'photos'}" in done.notes


@pytest.mark.parametrize("name", ["input", "images/cam0"])
def test_verify_dims_names_the_folder_that_holds_the_photographs(tmp_path: Path, name: str) -> None:
    made = MadeScene(tmp_path).write()
    aside = made.photographs.rename(tmp_path / "aside")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    aside.rename(tmp_path / name)
    found = made.audit().errors()
    assert [one.kind for one in found] == ["no_image_folder"]
    assert f"8 of them lie in {tmp_path / name}" in found[0].message and "Set scene.images" in found[0].remedy


@pytest.mark.parametrize("part", ["cameras", "images", "points3D"])
def test_a_byte_order_mark_is_called_by_its_name(tmp_path: Path, part: str) -> None:
    made = MadeScene(tmp_path, suffix="txt").write()
    file = made.sparse / f"{part}.txt"
    file.write_bytes(BOM + file.read_bytes())
    assert "byte order mark" in made.audit().errors()[0].message
    file.write_bytes(file.read_bytes()[3:].decode().encode("utf-16"))
    assert "UTF-16" in made.audit().errors()[0].message


def test_a_camera_model_in_other_letters_is_named_as_colmap_spells_it(tmp_path: Path) -> None:
    made = MadeScene(tmp_path / "in", suffix="txt", xyz=POINTS).write()
    file = made.sparse / "cameras.txt"
    file.write_text(file.read_text().replace("PINHOLE", "PinHole"))
    assert made.audit().errors()[0].remedy == "Write PINHOLE in cameras.txt."
    assert "Write PINHOLE in cameras.txt." in invoke("import", str(tmp_path / "in"), str(tmp_path / "new")).err
    with pytest.raises(SceneError) as raised:
        split(SplitRequest(made.root, None, tmp_path / "patches", WHOLE), dry_run=True)
    assert raised.value.hint == "Write PINHOLE in cameras.txt."
