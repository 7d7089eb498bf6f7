"""Hostile names from elsewhere, wherever one becomes a path: none writes, changes or removes what lies outside."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from splatbatch import __version__
from splatbatch.errors import SplatbatchError, StoreError
from splatbatch.files import fault_of_name
from splatbatch.output.records.publication import TiledPatch
from splatbatch.publish.tiles.write import Tiles
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.colors import normalised_copies
from splatbatch.scene.imports.capture import PosedPhoto
from splatbatch.scene.imports.write import link_files
from splatbatch.scene.partition.record import Name
from splatbatch.transfer import blobs, bundle, exchange
from splatbatch.transfer.blobs import FileRef
from splatbatch.transfer.bundle import Bundle, why_left
from splatbatch.transfer.folder import FolderStore

CONTENT = b"from elsewhere"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
UP = (
    "..",
    "../..",
    "../../..",
    "a/..",
    "a/../..",
    "./..",
    "a/./../..",
    ".. ",
    "...",
    " ..",
    "..\\..",
    "a\\..\\..",
    "..//..",
)
HOSTILE = (
    *(f"{up}/victim" for up in UP), *(f"{up}/victim.d" for up in UP), *UP,
    "", ".", "/", "./", " ", "a//victim", "a/", "//victim", "{top}/victim", "{top}/victim.d", "/{top}/victim",
    "C:\\victim", "c:victim", "\\victim", "\\\\host\\share\\victim", "//host/share/victim", "C:/victim",
    "a\0b", "../victim\0.jpg", "../a\nb", "../a\x1b[2Jb", "\ud800", "a/\udfff",
    "x" * 256, "\u00e9" * 128, "a/" * 600 + "b", f"{'../' * 40}{{top}}/victim",
)  # fmt: skip
SOUND = (
    "a", "images/left/a b.jpg", "a..b", "..a", "a.", ".hidden", "left\\a.jpg", "ab:c", "\u00e9/\u6d77.png",
    "a\udcff.jpg", "x" * 255, "a\nb", "a\x1b[2Jb", "a\x7f", "a\x85b",
)  # fmt: skip
Lay = Callable[[str, Path, Path], object]


def piece(name: str) -> FileRef:
    return FileRef(name, SHA256, len(CONTENT))


def of_a_bundle(name: str, folder: Path, top: Path) -> object:
    return blobs.lay([piece(name)], top / "blobs", folder)


def of_a_result(name: str, folder: Path, top: Path) -> object:
    return blobs.lay([piece(name)], top / "blobs", folder, shutil.copyfile)


def of_a_piece(name: str, folder: Path, top: Path) -> object:
    """Fetch a blob whose hash is a path."""
    found = blobs.fetch(FolderStore(top / "store"), folder, [FileRef("a", name, len(CONTENT))])
    return _refuse(found == ["missing"])


def of_a_patch(name: str, folder: Path, top: Path) -> object:
    """Ask a worker, which would train below a folder of that name."""
    return _refuse(bool(why_left(Bundle(patch=name, version=__version__), only_builtin=False)))


def of_a_model_in_a_bundle(name: str, folder: Path, top: Path) -> object:
    """Open a bundle whose photographs would be read there."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bundle, "read_images", lambda _: [SimpleNamespace(name=name)])
        return bundle.open_bundle(Bundle(patch="p0"), folder, folder / "output")


def of_an_import(name: str, folder: Path, top: Path) -> object:
    camera = Camera(0, "PINHOLE", 1, 1, (1.0, 1.0, 0.5, 0.5))
    shot = PosedPhoto(name, top / "photo", camera, np.eye(3), np.zeros(3), "here", top / "photo", top / "photo")
    return link_files([shot], folder)


def of_an_evened_copy(name: str, folder: Path, top: Path) -> object:
    patch = SimpleNamespace(sparse=top, images=top, tone_of=lambda _: normalised_copies.NEUTRAL)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(normalised_copies, "read_cameras", lambda _: {})
        patched.setattr(normalised_copies, "read_images", lambda _: [SimpleNamespace(name=name, camera_id=0)])
        patched.setattr(normalised_copies, "stored_photographs", lambda _: (top / "photographs", ()))
        return normalised_copies.write_evened(cast("Any", patch), folder)


def of_a_publication(name: str, folder: Path, top: Path) -> object:
    """Sweep the tiles of patches that are no more, as the publish.json of a folder names them."""
    tiles = Tiles(folder, top, "", cast("Any", None))
    tiles._sweep({}, {name: TiledPatch()})
    return _refuse(True)


def of_a_patch_that_was_cut(name: str, folder: Path, top: Path) -> object:
    """Read the name of a patch in a partition.json."""
    with pytest.raises(ValidationError):
        TypeAdapter(Name).validate_python(name)
    return _refuse(True)


def _refuse(is_so: bool) -> None:
    if is_so:
        raise StoreError("refused")


PLACES: tuple[Lay, ...] = (
    of_a_bundle, of_a_result, of_a_piece, of_a_patch, of_a_model_in_a_bundle,
    of_an_import, of_an_evened_copy, of_a_publication, of_a_patch_that_was_cut,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that names are to stay in, three levels below what must stay as it is."""
    place = tmp_path / "one" / "two" / "folder"
    for above in (place, *list(place.parents)[:3]):
        for kept in (above / "victim.d" / "kept", above / "victim", above / "victim.d" / ("f" * 16) / "kept"):
            if above != place:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(b"kept")
    place.mkdir()
    (tmp_path / "photographs").mkdir()
    for file in ("photo", f"blobs/{SHA256}", f"store/blobs/{SHA256}"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(CONTENT)
    return place


def outside(folder: Path, top: Path) -> dict[str, object]:
    """Return all that lies below the top but not in a folder."""
    found: dict[str, object] = {}
    for root, folders, files in os.walk(top):
        folders[:] = [one for one in folders if Path(root, one) != folder]
        for path in (Path(root, one) for one in (*folders, *files)):
            found[str(path)] = path.lstat().st_nlink if path.is_dir() else (path.lstat().st_mtime_ns, path.read_bytes())
    return found


@pytest.mark.parametrize("lay", PLACES)
def test_no_hostile_name_from_elsewhere_leaves_its_folder(lay: Lay, folder: Path, tmp_path: Path) -> None:
    before = outside(folder, tmp_path)
    for name in (one.replace("{top}", str(tmp_path)) for one in HOSTILE):
        with pytest.raises(SplatbatchError) as refused:
            lay(name, folder, tmp_path)
        assert refused.value.message.isprintable(), name
        assert outside(folder, tmp_path) == before, name


def test_of_hostile_names_there_are_two_hundred(record_property: Callable[[str, object], None]) -> None:
    num = len(set(HOSTILE)) * len(PLACES)
    record_property("figure", f"{len(set(HOSTILE))} hostile names at {len(PLACES)} places: {num} stay in their folder")
    assert num >= 200


def test_sound_names_are_laid_as_they_are(folder: Path, tmp_path: Path) -> None:
    assert [fault_of_name(name) for name in SOUND] == [""] * len(SOUND)
    of_a_result("images/left/a b.jpg", folder, tmp_path)
    assert (folder / "images/left/a b.jpg").read_bytes() == CONTENT


def test_a_name_is_quoted_so_that_it_can_be_printed_and_not_at_length() -> None:
    assert fault_of_name("../a\x1b[2J") == "'../a\\x1b[2J' leads out of its folder"
    assert len(fault_of_name("../" + "x" * 5000)) < 400


def test_nothing_is_laid_through_a_link(folder: Path, tmp_path: Path) -> None:
    (folder / "images").symlink_to(tmp_path / "one" / "victim.d")
    before = outside(folder, tmp_path)
    for lay in (of_a_bundle, of_a_result):
        with pytest.raises(StoreError, match="'images/kept' is refused: one of its folders is a link"):
            lay("images/kept", folder, tmp_path)
    assert outside(folder, tmp_path) == before


def test_only_the_hash_of_a_manifest_is_the_name_of_a_bundle(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    name = exchange.put_sealed(store, "bundles/", Bundle(patch="p0", home="h"))
    for stray in ("notes.txt", "A" * 32, "f" * 31, f"{name}.bak", "\u0661" * 32):
        (tmp_path / "bundles" / stray).write_bytes(b"{}")
    assert list(exchange.list_store(store)["bundles"]) == [name]
