"""Files are whole or absent, and are read without trust."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splatbatch.errors import LaterFormatError
from splatbatch.fields import mapping, number, text, whole_number
from splatbatch.files import (
    Record,
    append_line,
    free_mib,
    is_out_of_space,
    last_line,
    link_whole,
    open_regular,
    path_beside,
    read_json,
    read_lines,
    read_record,
    read_regular,
    read_tail,
    sweep,
    write_json,
    write_object,
    write_text,
    write_whole,
)


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail(file: BinaryIO) -> None:
        file.write(b"half of the n")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_whole(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_written_file_is_read_back(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"ä": [1, 2.5, None]})
    assert read_json(tmp_path / "a.json") == {"format": 1, "ä": [1, 2.5, None]}
    assert read_record(tmp_path / "a.json") == {"ä": [1, 2.5, None]}


@pytest.mark.parametrize(("record", "is_read"), [({}, 1), ({"format": 1}, 1), ({"format": "x"}, 1), ({"format": 2}, 0)])
def test_a_record_is_refused_if_a_later_version_wrote_it(tmp_path: Path, record: Record, is_read: int) -> None:
    write_object(tmp_path / "a.json", record)
    refused = contextlib.nullcontext() if is_read else pytest.raises(LaterFormatError, match=r"a\.json.*\(format 2;")
    with refused:
        assert read_record(tmp_path / "a.json") == {}


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"a": {}, "b": [], "c": (1, 2)},
        {"a": 1, "b": None, "c": {"d": [{"e": 1}]}, "f": 'x\n,"', "g": [{"h": 1}, {"h": [2]}], "i": [[1], 2]},
        {"ä": [{}, {}], "b": True},
    ],
)
def test_what_is_written_by_lines_is_the_same_json(tmp_path: Path, record: Record) -> None:
    write_object(tmp_path / "a.json", record)
    assert json.loads((tmp_path / "a.json").read_bytes()) == json.loads(json.dumps(record))


def test_each_entry_of_a_record_and_each_of_a_list_of_objects_stands_in_a_line_of_its_own(tmp_path: Path) -> None:
    write_object(tmp_path / "a.json", {"a": 1, "b": "x", "c": {"d": [1, {}]}, "e": [{"f": 1}, {"f": 2}], "g": None})
    lines = (tmp_path / "a.json").read_text().splitlines()
    nested = [' "c": {"d": [1, {}]},', ' "e": [', '  {"f": 1},', '  {"f": 2}', " ],"]
    assert lines == ["{", ' "a": 1,', ' "b": "x",', *nested, ' "g": null', "}"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_hold_is_not_written(tmp_path: Path, value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"loss": value})
    with pytest.raises(ValueError, match="JSON"):
        append_line(tmp_path / "a.jsonl", {"loss": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", [b"", b"{", b'{"a": 1', b"[1]", b"7", b"null", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_whole_json_object_counts_as_missing(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.json").write_bytes(text)
    assert read_json(tmp_path / "a.json") is None
    assert list(read_lines(tmp_path / "a.json")) == []
    assert last_line(tmp_path / "a.json") is None


def test_missing_files_and_folders_read_as_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        assert read_json(path) is None
        assert list(read_lines(path)) == []
        assert last_line(path) is None
        assert read_tail(path) == ""


@pytest.mark.parametrize("torn", [b'{"a": 2', b'{"a"', b"\xff", b"{"])
def test_a_torn_last_line_spoils_nothing_but_itself(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "a.jsonl"
    append_line(path, {"a": 1})
    path.write_bytes(path.read_bytes() + torn)
    assert last_line(path) == {"a": 1}
    append_line(path, {"a": 3})
    assert [line["a"] for line in read_lines(path)] == [1, 3]
    assert last_line(path) == {"a": 3}


def test_foreign_lines_are_skipped_and_nan_is_read_as_none(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('hello\n\n[1]\n7\n{"a": NaN}\n{"a": -Infinity}\n')
    assert list(read_lines(path)) == [{"a": None}, {"a": None}]


def test_the_last_line_is_found_from_the_end_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"step": {i}}}\n' for i in range(10_000)))
    assert last_line(path) == {"step": 9_999}


def test_the_tail_of_a_log_survives_a_character_cut_in_two(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes("ää".encode())
    assert read_tail(tmp_path / "log", tail_bytes=3) == "\ufffdä"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(records=st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=4))
def test_any_records_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, records: list[dict]) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    for record in records:
        append_line(path, record, durable=False)
    assert list(read_lines(path)) == records
    assert last_line(path) == (records[-1] if records else None)


def test_what_a_killed_writer_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    for name in (".hidden", "result.json", ".splat.ply.new", path_beside(tmp_path / "splat.ply").name):
        (tmp_path / name).touch()
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", ".splat.ply.new", "result.json"]


def test_of_a_full_disk_and_an_exhausted_quota_we_are_out_of_space() -> None:
    assert is_out_of_space(OSError(errno.ENOSPC, "")) and is_out_of_space(OSError(errno.EDQUOT, ""))
    assert not is_out_of_space(OSError(errno.EIO, "")) and not is_out_of_space(ValueError())
    assert free_mib(Path("/nowhere")) is None


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return a file in a folder of its own, and beside the folder room for its second name."""
    (tmp_path / "attempt").mkdir()
    write_text(tmp_path / "attempt" / "splat_100.ply", "a splat")
    return tmp_path / "attempt" / "splat_100.ply"


def test_a_file_gets_a_second_name_and_no_second_copy(made: Path, tmp_path: Path) -> None:
    stat = link_whole(made, tmp_path / "splat.ply", within=made.parent)
    assert (tmp_path / "splat.ply").samefile(made)
    assert (stat.st_size, stat.st_ino) == (7, made.stat().st_ino)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempt", "splat.ply"]


def test_of_a_link_the_file_behind_it_is_taken(made: Path, tmp_path: Path) -> None:
    (made.parent / "final.ply").symlink_to(made.name)
    link_whole(made.parent / "final.ply", tmp_path / "splat.ply", within=made.parent)
    assert not (tmp_path / "splat.ply").is_symlink()
    assert (tmp_path / "splat.ply").read_text() == "a splat"


def test_what_lies_outside_or_has_another_name_is_copied(made: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    os.link(made, tmp_path / "outside" / "kept.ply")
    (made.parent / "final.ply").symlink_to(tmp_path / "outside" / "kept.ply")
    for place, source in enumerate([made, made.parent / "final.ply"]):
        link_whole(source, tmp_path / f"{place}.ply", within=made.parent)
        assert (tmp_path / f"{place}.ply").read_text() == "a splat"
        assert (tmp_path / f"{place}.ply").stat().st_nlink == 1


def test_a_second_link_of_the_same_file_changes_nothing(made: Path, tmp_path: Path) -> None:
    for _ in range(2):
        link_whole(made, tmp_path / "splat.ply", within=made.parent)
    assert (tmp_path / "splat.ply").samefile(made)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempt", "splat.ply"]


def test_a_link_at_the_target_is_replaced_and_never_followed(made: Path, tmp_path: Path) -> None:
    write_text(tmp_path / "other.ply", "another splat")
    (tmp_path / "splat.ply").symlink_to("other.ply")
    link_whole(made, tmp_path / "splat.ply", within=made.parent)
    assert (tmp_path / "other.ply").read_text() == "another splat"
    assert not (tmp_path / "splat.ply").is_symlink()


@pytest.mark.parametrize("what", ["missing", "dangling", "folder"])
def test_what_is_no_file_is_an_error_and_the_target_stays(made: Path, tmp_path: Path, what: str) -> None:
    (made.parent / "folder").mkdir()
    (made.parent / "dangling").symlink_to("nowhere.ply")
    write_text(tmp_path / "splat.ply", "the splat before")
    with pytest.raises(OSError, match=r"No such file|not a regular file"):
        link_whole(made.parent / what, tmp_path / "splat.ply", within=made.parent)
    assert (tmp_path / "splat.ply").read_text() == "the splat before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempt", "splat.ply"]


def test_a_file_is_on_the_disk_before_it_gets_its_second_name(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, link = os.fsync, os.link
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append(str(Path(f"/proc/self/fd/{fd}").readlink())), sync(fd)))
    monkeypatch.setattr(os, "link", lambda *names: (done.append("link"), link(*names)))
    link_whole(made, tmp_path / "splat.ply", within=made.parent)
    assert done == [str(made), str(made.parent), "link", str(tmp_path)]


def test_what_is_written_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append(Path(f"/proc/self/fd/{fd}").readlink().name), sync(fd)))
    monkeypatch.setattr(Path, "replace", lambda path, to: (done.append("named"), replace(path, to)))
    write_text(tmp_path / "a.txt", "a")
    append_line(tmp_path / "b.jsonl", {"event": 1})
    append_line(tmp_path / "c.jsonl", {"event": 1}, durable=False)
    assert done == [path_beside(tmp_path / "a.txt").name, "named", tmp_path.name, "b.jsonl"]
    done.clear()
    link_whole(tmp_path / "a.txt", tmp_path / "d.txt", within=tmp_path)
    assert done == ["a.txt", tmp_path.name, "named", tmp_path.name]


def test_half_a_line_is_taken_back_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_line(tmp_path / "a.jsonl", {"event": 1})
    before, write = (tmp_path / "a.jsonl").read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:5]))
    with pytest.raises(OSError, match="No space"):
        append_line(tmp_path / "a.jsonl", {"event": 2})
    assert (tmp_path / "a.jsonl").read_bytes() == before


@pytest.mark.parametrize("digits", ["1e999", "-1e999", "1" + "0" * 400, "1" * 5000, str(2**63), "NaN", "Infinity"])
def test_a_number_that_nobody_can_calculate_with_is_read_as_none(tmp_path: Path, digits: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"a": {digits}, "b": [{digits}, 1.5], "c": {2**63 - 1}}}\n')
    assert last_line(tmp_path / "a.jsonl") == {"a": None, "b": [None, 1.5], "c": 2**63 - 1}
    assert read_json(tmp_path / "a.jsonl") == last_line(tmp_path / "a.jsonl")


@pytest.mark.parametrize("shape", ['{{"a": {}}}', '{{"a": [{}]}}'])
def test_what_is_nested_too_deeply_to_be_walked_through_counts_as_missing(tmp_path: Path, shape: str) -> None:
    nested = "1"
    for _ in range(100):
        nested = shape.format(nested)
    (tmp_path / "a.json").write_text(nested)
    assert read_json(tmp_path / "a.json") is None
    (tmp_path / "a.json").write_text('{"a": [' + ",".join(["[[1]]"] * 100) + "]}")
    assert read_json(tmp_path / "a.json") == {"a": [[[1]]] * 100}


JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=5)


@given(JSON | st.dictionaries(st.text(), JSON))
def test_a_field_is_what_it_should_be_or_nothing(value: object) -> None:
    assert number(value) is None or -(2**63) < number(value) < 2**63
    assert whole_number(value) is None or whole_number(value) == value
    assert isinstance(text(value), str)
    assert all(isinstance(key, str) for key in mapping(value))


def test_two_who_give_a_file_its_second_name_at_once_leave_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "attempt-01" / "splat.ply", tmp_path / "splat.ply"
    source.parent.mkdir()
    source.write_text("whole")
    link = os.link

    def link_after_another(here: Path, there: Path) -> None:
        link(here, target)
        link(here, there)

    monkeypatch.setattr(os, "link", link_after_another)
    link_whole(source, target, within=tmp_path, is_ours=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempt-01", "splat.ply"]
    assert target.samefile(source)


def test_a_pipe_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "result.json"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(pipe)
    assert (read_json(pipe), list(read_lines(pipe)), read_tail(pipe)) == (None, [], "")


def test_a_file_of_sixty_gibibytes_is_not_read_as_json(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    with path.open("wb") as file:
        file.truncate(60 << 30)
    assert read_json(path) is None
    with pytest.raises(OSError, match="are read at most"):
        read_regular(path, 1 << 20)


def test_a_line_without_end_is_read_piece_by_piece(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    with path.open("wb") as file:
        file.write(b'{"step": 1}\n')
        file.truncate(40 << 20)
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"step": 2}\n')
    assert list(read_lines(path)) == [{"step": 1}, {"step": 2}]
