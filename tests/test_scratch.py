"""A scratch folder of ours: nobody else can have laid anything into it, and nobody else can read it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from homeless import without_home

from splatbatch.caches import cache_home, extensions_folder, own_cache, own_scratch


@pytest.fixture
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the folder lies as a rule."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"splatbatch-{os.geteuid()}"


def open_to_all(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)


def open_to_a_group(place: Path) -> None:
    place.mkdir()
    place.chmod(0o770)


def another_users(place: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("gives a folder away, which root alone may")
    place.mkdir(mode=0o700)
    os.chown(place, 65534, 65534)


def a_link(place: Path) -> None:
    place.with_name("elsewhere").mkdir(mode=0o700)
    place.symlink_to(place.with_name("elsewhere"))


def a_broken_link(place: Path) -> None:
    place.symlink_to(place.with_name("nowhere"))


def a_file(place: Path) -> None:
    place.touch()


@pytest.mark.parametrize("lay", [open_to_all, open_to_a_group, another_users, a_link, a_broken_link, a_file])
def test_a_folder_that_somebody_else_has_laid_is_left_alone(usual: Path, lay: Callable[[Path], None]) -> None:
    lay(usual)
    before = usual.lstat()
    place = own_scratch()
    assert (place.parent, place == usual, usual.lstat()) == (usual.parent, False, before)
    assert (place.stat().st_mode & 0o777, place.stat().st_uid, list(place.iterdir())) == (0o700, os.geteuid(), [])


def test_the_folder_is_made_once_and_closed_to_others(usual: Path) -> None:
    assert own_scratch() == own_scratch() == usual
    assert usual.stat().st_mode & 0o777 == 0o700


def test_one_that_an_earlier_version_has_made_is_closed_to_readers(usual: Path) -> None:
    usual.mkdir(mode=0o755)
    assert own_scratch() == usual
    assert usual.stat().st_mode & 0o777 == 0o700


def test_a_user_without_a_home_folder_has_caches_in_the_scratch_folder(
    usual: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_home(monkeypatch)
    monkeypatch.delenv("SPLATBATCH_CACHE")
    assert (cache_home(), own_cache()) == (usual, usual / "splatbatch")
    assert extensions_folder() == usual / "torch_extensions"
