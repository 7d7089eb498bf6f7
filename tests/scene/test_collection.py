"""Many scenes in one config: which are found, what each is called, and where their photographs may lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_batch import write_model, write_photos

from splatbatch.config import Scene, load
from splatbatch.errors import ConfigError, SceneError
from splatbatch.scene.audit.audit import TrainerRules, audit_patches
from splatbatch.scene.patches import distinct_names, find_patches

NAMES = [f"img{i}.png" for i in range(4)]
RULES = TrainerRules(False, frozenset({"PINHOLE"}), "gsplat")


def make(folder: Path, photographs: str = "images", divisor: int = 1) -> Path:
    write_model(folder / "sparse/0", NAMES)
    write_photos(folder / photographs, NAMES, (32 // divisor, 24 // divisor))
    return folder


def found(*places: Path) -> list[str]:
    return [patch.name for patch in find_patches(Scene(scenes=places))]


def test_scenes_are_listed_or_found_by_a_pattern_in_natural_order(tmp_path: Path) -> None:
    for name in ("s10", "s2", "other"):
        make(tmp_path / "all" / name)
    (tmp_path / "all/notes").mkdir()
    assert found(tmp_path / "all/*") == ["other", "s2", "s10"]
    assert found(tmp_path / "all/s10", tmp_path / "all/s?") == ["s2", "s10"]


def test_a_listed_scene_without_a_model_is_left_to_the_audit(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    audit = audit_patches(find_patches(Scene(scenes=(tmp_path / "empty",))), None, RULES)
    assert [finding.kind for finding in audit.errors()] == ["missing_model"]


def test_everything_that_is_not_there_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(SceneError) as caught:
        found(make(tmp_path / "a"), tmp_path / "b", tmp_path / "c*")
    assert f"{tmp_path}/b, {tmp_path}/c*: no COLMAP scene there" in caught.value.message


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["/d/garden", "/d/bicycle"], ["garden", "bicycle"]),
        (["/d/garden/dense", "/d/bicycle/dense", "/d/x"], ["garden-dense", "bicycle-dense", "x"]),
        (["/a/x/dense", "/b/x/dense"], ["a-x-dense", "b-x-dense"]),
        (["/d/a b", "/d/ä@b", "/d/.."], ["a-b", "ä-b", "scene"]),
        (["/a/Reef", "/b/reef"], ["a-Reef", "b-reef"]),
    ],
)
def test_a_name_is_the_folders_and_of_two_alike_says_where_they_lie(folders: list[str], names: list[str]) -> None:
    assert distinct_names([Path(folder) for folder in folders]) == names
    assert distinct_names([Path(folder) for folder in reversed(folders)]) == names[::-1]


def test_names_that_nothing_tells_apart_get_a_mark() -> None:
    first, second = distinct_names([Path("/d/a b"), Path("/d/a-b")])
    assert first != second
    assert first.startswith("d-a-b-")


@pytest.mark.parametrize("divisor", [2, 4, 8])
def test_a_scene_with_smaller_copies_alone_is_accepted(tmp_path: Path, divisor: int) -> None:
    make(tmp_path / "a", f"images_{divisor}", divisor)
    audit = audit_patches(find_patches(Scene(scenes=(tmp_path / "a",))), None, RULES)
    assert [finding.kind for finding in audit.errors() if finding.kind != "too_few_images"] == []
    assert audit.rows[0].sizes == (((32 // divisor, 24 // divisor), 4),)


def test_copies_that_are_not_as_small_as_their_folder_says_are_refused(tmp_path: Path) -> None:
    make(tmp_path / "a", "images_4", 2)
    audit = audit_patches(find_patches(Scene(scenes=(tmp_path / "a",))), None, RULES)
    assert "scaled" in [finding.kind for finding in audit.errors()]


def test_scenes_in_the_yaml_are_relative_to_it_and_stand_by_themselves(tmp_path: Path) -> None:
    path = tmp_path / "splat_config.yml"
    path.write_text("scene: {scenes: 'data/*'}\n")
    assert load(path).scene.scenes == (tmp_path / "data/*",)
    path.write_text("scene: {scenes: [a], images: photos, patches: parts}\n")
    with pytest.raises(ConfigError, match=r"has its own folders: remove images, patches"):
        load(path)


def test_patches_that_are_links_have_the_names_of_the_links(tmp_path: Path) -> None:
    """Two links to one folder were two patches of one name, and a traceback."""
    make(tmp_path / "cut/a")
    (tmp_path / "patches").mkdir()
    for name in ("p0", "p1"):
        (tmp_path / "patches" / name).symlink_to(tmp_path / "cut/a")
    assert [patch.name for patch in find_patches(Scene(patches=tmp_path / "patches"))] == ["p0", "p1"]
