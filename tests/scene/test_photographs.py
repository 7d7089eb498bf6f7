"""Which folder photographs come from: images_4 where it is whole, the originals where not, and a note in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_batch import write_model, write_photos

from splatbatch.config import Scene
from splatbatch.errors import SceneError
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.patches import find_patches
from splatbatch.scene.photos.folders import PhotographSource, choose_photographs, find_masks

NAMES = ["left/a.png", "left/b.png", "c.png"]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    write_model(tmp_path / "sparse/0", NAMES, size=(33, 24))
    write_photos(tmp_path / "images", NAMES, (33, 24))
    return tmp_path / "images"


def choose(images: Path, resolution: str) -> PhotographSource:
    model = read_reconstruction(images.parent / "sparse/0")
    return choose_photographs(images, model.images, model.cameras, resolution)


@pytest.mark.parametrize("width", [8, 9])
def test_a_whole_folder_of_copies_is_used(images: Path, width: int) -> None:
    copies = images.with_name("images_4")
    write_photos(copies, NAMES, (width, 6))
    assert choose(images, "1/4") == PhotographSource(copies, 4, 1)
    assert choose(images, "1/2") == PhotographSource(images, 1, 2)
    assert choose(images, "full") == PhotographSource(images, 1, 1)


def test_without_copies_photographs_are_shrunk_while_loading_and_nobody_is_told(images: Path) -> None:
    assert choose(images, "1/8") == PhotographSource(images, 1, 8)


def test_copies_that_are_not_complete_are_not_used_and_it_is_said(images: Path) -> None:
    write_photos(images.with_name("images_2"), NAMES[:2], (16, 12))
    chosen = choose(images, "1/2")
    assert (chosen.folder, chosen.shrink) == (images, 2)
    assert chosen.note.startswith(
        "images_2 was not used (1 of 3 photographs cannot be read there, such as c.png: no such"
    )


def test_copies_of_another_size_are_not_used_and_it_is_said(images: Path) -> None:
    write_photos(images.with_name("images_2"), NAMES, (16, 12))
    write_photos(images.with_name("images_2"), NAMES[2:], (33, 24))
    assert (
        "1 of 3 photographs have the wrong size, such as c.png has 33x24 pixels, its camera 33x24"
        in choose(images, "1/2").note
    )


@pytest.mark.parametrize(("resolution", "stored", "shrink"), [("full", 2, 1), ("1/2", 2, 1), ("1/4", 2, 2)])
def test_without_originals_the_nearest_copies_do(images: Path, resolution: str, stored: int, shrink: int) -> None:
    images.rename(images.with_name("elsewhere"))
    write_photos(images.with_name("images_2"), NAMES, (16, 12))
    note = "there is no folder images: images_2 was used instead" if resolution != "1/2" else ""
    assert choose(images, resolution) == PhotographSource(images.with_name("images_2"), stored, shrink, note)


def test_where_nothing_is_loading_may_say_what_is_missing(images: Path) -> None:
    images.rename(images.with_name("elsewhere"))
    assert choose(images, "1/2") == PhotographSource(images, 1, 2)


def test_masks_beside_the_photographs_are_found_and_named_ones_must_exist(images: Path) -> None:
    (masks := images.with_name("masks")).mkdir()
    assert find_patches(Scene(patches=images.parent))[0].masks == masks
    assert find_patches(Scene(patches=images.parent, masks=images))[0].masks == images
    with pytest.raises(SceneError, match=r"scene.masks: .*gone: no such folder"):
        find_patches(Scene(patches=images.parent, masks=images / "gone"))


def test_masks_are_found_by_either_name(tmp_path: Path) -> None:
    write_photos(tmp_path, ["left/a.jpg.png", "b.png", "c.jpg.png", "c.png"])
    found = find_masks(tmp_path, ["left/a.jpg", "b.jpg", "c.jpg", "d.jpg"])
    names = {name: path.relative_to(tmp_path).as_posix() for name, path in found.items()}
    assert names == {"left/a.jpg": "left/a.jpg.png", "b.jpg": "b.png", "c.jpg": "c.jpg.png"}
    assert find_masks(None, ["b.jpg"]) == {}
