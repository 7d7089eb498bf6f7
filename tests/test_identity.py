"""Identity of files: by stat, and where that has moved by content; what was read is kept for this user."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple
from multiprocessing import get_context
from pathlib import Path

import pytest

from splatbatch import hashing
from splatbatch.hashing import FileDifference, FileFacts, Files, Stamps, difference, file_fact, sha256_of

LONG_AGO = 1_700_000_000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPLATBATCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hashing, "SETTLED_S", -60.0)  # files of this very moment count as settled
    return tmp_path / "cache/stamps"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for name in "abc":
        (tmp_path / "images" / name).write_bytes(name.encode() * 100)
        os.utime(tmp_path / "images" / name, (LONG_AGO, LONG_AGO))
    return tmp_path / "images"


def at(folder: Path) -> Callable[[str], str]:
    return lambda key: f"{folder}/{key}"


def facts(folder: Path, *, hashed: bool = False) -> Files:
    found = {name: file_fact(folder / name) for name in "abc"}
    return {name: one._replace(sha256=sha256_of(folder / name) if hashed else "") for name, one in found.items()}


def differ(then: Files, folder: Path, *, reads: bool) -> tuple[tuple[str, ...], ...]:
    return astuple(difference(then, facts(folder), at(folder), FileFacts(reads=reads)))


def changed(then: Files, now: Files, place: Callable[[str], str]) -> tuple[str, ...]:
    found = difference(then, now, place, FileFacts())
    return tuple(sorted({*found.changed, *found.unknown, *found.unread}))


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    read: list[str] = []
    monkeypatch.setattr(hashing, "sha256_of", lambda path: read.append(str(path)) or sha256_of(path))
    return read


def test_files_that_were_touched_or_copied_are_the_same_files(photos: Path, tmp_path: Path) -> None:
    then = facts(photos, hashed=True)
    os.utime(photos / "a")
    shutil.copytree(photos, tmp_path / "copied", copy_function=shutil.copyfile)
    assert (
        changed(then, facts(photos), at(photos)),
        changed(then, facts(tmp_path / "copied"), at(tmp_path / "copied")),
    ) == ((), ())


def test_another_content_another_size_and_a_file_that_is_gone_are_named(photos: Path) -> None:
    then = facts(photos, hashed=True)
    (photos / "a").write_bytes(b"A" * 100)
    (photos / "b").write_bytes(b"b")
    (photos / "c").unlink()
    assert changed(then, facts(photos), at(photos)) == ("a", "b", "c")


def test_what_was_written_down_twice_is_compared_by_content_and_nothing_is_read(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    then, read = facts(photos, hashed=True), count_reads(monkeypatch)
    now = {
        name: fact._replace(mtime_ns=1, sha256=fact.sha256 if name == "a" else "0" * 64) for name, fact in then.items()
    }
    assert (changed(then, now, at(photos)), read) == (("b", "c"), [])


def test_without_reading_a_file_whose_time_alone_has_moved_is_said_to_be_unread(photos: Path) -> None:
    then = facts(photos, hashed=True)
    os.utime(photos / "a")
    (photos / "b").write_bytes(b"b")
    assert differ(then, photos, reads=False) == (("b",), (), ("a",))


def test_a_file_that_has_moved_and_that_nobody_had_read_is_unknown_and_counts_as_changed(photos: Path) -> None:
    then = facts(photos)
    os.utime(photos / "a")
    assert differ(then, photos, reads=True) == ((), ("a",), ())
    assert changed(then, facts(photos), at(photos)) == ("a",)


def test_a_pipe_in_the_place_of_a_file_is_changed_and_never_waited_for(photos: Path) -> None:
    then = {"a": facts(photos, hashed=True)["a"]._replace(num_bytes=0)}
    (photos / "a").unlink()
    os.mkfifo(photos / "a")
    assert changed(then, {"a": file_fact(photos / "a")}, at(photos)) == ("a",)


def test_what_was_read_once_is_known_to_the_next_command_even_to_one_that_reads_nothing(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    then, read = facts(photos, hashed=True), count_reads(monkeypatch)
    os.utime(photos / "a")
    first = FileFacts()
    assert difference(then, facts(photos), at(photos), first) == FileDifference()
    assert (differ(then, photos, reads=False), read) == (((), (), ()), [f"{photos}/a"])


def test_a_stamp_counts_for_no_other_state_of_its_file(photos: Path) -> None:
    then, known = facts(photos, hashed=True), FileFacts()
    assert known.sha256(f"{photos}/a") == then["a"].sha256
    (photos / "a").write_bytes(b"A" * 100)
    os.utime(photos / "a", (LONG_AGO, LONG_AGO))  # its time is as it was; when its inode changed is not
    assert FileFacts(reads=False).sha256(f"{photos}/a") == ""


def test_a_file_of_this_moment_is_not_kept(photos: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "SETTLED_S", 5.0)
    known = FileFacts()
    known.sha256(f"{photos}/a")  # of long ago, but its inode is of now
    assert not cache.exists()


@pytest.mark.parametrize("damage", [b"", b"\xff" * 300, b"torn"])
def test_damaged_stamps_are_passed_over_and_the_others_count(photos: Path, cache: Path, damage: bytes) -> None:
    known = FileFacts()
    contents = [known.sha256(f"{photos}/{name}") for name in "abc"]
    lines = cache.read_bytes().splitlines()
    place = next(number for number, line in enumerate(lines) if contents[0].encode() in line)
    lines[place] = damage or lines[place].replace(contents[0].encode(), contents[1].encode())
    cache.write_bytes(b"\n".join(lines))
    assert [FileFacts(reads=False).sha256(f"{photos}/{name}") for name in "abc"] == ["", *contents[1:]]


def test_a_cache_that_cannot_be_read_or_written_costs_time_and_nothing_else(photos: Path, cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    os.mkfifo(cache)
    known = FileFacts()
    assert known.sha256(f"{photos}/a") == sha256_of(photos / "a")


def test_the_stamps_are_bounded_and_the_newest_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "MOST_BYTES", 4096)
    file = tmp_path / "a"
    file.write_bytes(b"a")
    for number in range(100):
        stamps = Stamps(tmp_path / "stamps")
        stamps.put(f"/somewhere/{number}", file.stat(), "0" * 64)
    assert (tmp_path / "stamps").stat().st_size < 2 * 4096
    known = [Stamps(tmp_path / "stamps").get(f"/somewhere/{number}", file.stat()) for number in range(100)]
    assert (known[-1], known[0]) == ("0" * 64, "")


def _stamp_many(folder: Path, first: int) -> None:
    for number in range(first, first + 50):
        stamps = Stamps(folder / "stamps")
        stamps.put(f"/somewhere/{number}", (folder / "a").stat(), "1" * 64)


@pytest.mark.contract
def test_several_processes_write_at_once_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"a")
    with ProcessPoolExecutor(4, get_context("fork")) as pool:
        list(pool.map(_stamp_many, [tmp_path] * 4, range(0, 200, 50)))
    stamps = Stamps(tmp_path / "stamps")
    assert {stamps.get(f"/somewhere/{number}", (tmp_path / "a").stat()) for number in range(200)} == {"1" * 64}
