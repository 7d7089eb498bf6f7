"""Of a long log the beginning and the end are read, and lines keep the numbers they have in the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from logs import diagnose_log

from splatbatch.output.log_ends import read_ends


def numbered(text: str, after: int, left_out: int) -> list[tuple[int, str]]:
    lines = enumerate(text.splitlines(), 1)
    return [(number + (left_out if number > after else 0), line) for number, line in lines]


@pytest.mark.parametrize(("head", "tail"), [(40, 40), (1, 10), (10, 20), (100, 33), (7, 7), (2000, 2000)])
def test_every_line_that_is_read_has_its_number_in_the_file(tmp_path: Path, head: int, tail: int) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"line {number}\n" for number in range(1, 101)))
    told = numbered(*read_ends(path, head, tail))
    assert all(f"line {number}".startswith(line) or f"line {number}".endswith(line) for number, line in told)
    assert (told[0][0], told[-1][0]) == (1, 100)


def test_a_short_log_is_read_whole_and_a_missing_one_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    assert read_ends(path) == ("", 0, 0)
    path.write_bytes(b"a\xff\nb")
    assert read_ends(path) == ("a\ufffd\nb", 0, 0)


def test_a_line_without_end_is_read_at_both_of_its_ends(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(f"{'x' * 500}CUDA out of memory")
    text, after, left_out = read_ends(path, 100, 50)
    assert numbered(text, after, left_out)[-1] == (1, f"{'x' * 32}CUDA out of memory")


def test_a_cause_before_a_gap_is_quoted_with_its_line_and_so_is_one_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    filling = "".join(f"cannot append to events at {number}\n" for number in range(60_000))
    path.write_text(f"step 3\nOSError: [Errno 28] No space left on device\n{filling}RuntimeError: writer gave up\n")
    text, after, left_out = read_ends(path)
    assert left_out > 10_000
    assert diagnose_log(text, 1, after=after, left_out=left_out).evidence[0].startswith("line 2: OSError")
    behind = text.replace("[Errno 28] No space left on device", "odd").replace("writer gave up", "CUDA out of memory")
    assert diagnose_log(behind, 1, after=after, left_out=left_out).evidence[0].startswith("line 60003: RuntimeError")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-8"])
@pytest.mark.parametrize("head", [1 << 20, 200])
def test_a_log_that_powershell_wrote_is_read_as_any_other(tmp_path: Path, encoding: str, head: int) -> None:
    path = tmp_path / "train.log"
    told = "".join(f"Schritt {number} für p3\n" for number in range(90)) + "OSError: [Errno 28] 磁盘空间不足\n"
    path.write_bytes(f"\ufeff{told}".encode(encoding))
    text, after, left_out = read_ends(path, head, head)
    found = diagnose_log(text, 1, after=after, left_out=left_out)
    assert (found.cause, found.evidence) == ("disk_full", ("line 91: OSError: [Errno 28] 磁盘空间不足",))
    assert text.startswith("Schritt 0 für p3\n")


def test_what_powershell_appends_to_a_log_of_others_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"Optimizing p3\n" + "RuntimeError: CUDA out of memory\n".encode("utf-16-le"))
    assert diagnose_log(read_ends(path)[0], 1).evidence == ("line 2: RuntimeError: CUDA out of memory",)
