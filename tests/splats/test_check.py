"""Whether a splat file counts: nothing that is cut, empty, not finite, early or no splat at all does."""

from __future__ import annotations

import dataclasses
import os
from itertools import product
from pathlib import Path

import external_program
import numpy as np
import pytest
from fake_trainer import splat_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from splatbatch.outcome import Rejected, Splat
from splatbatch.splats import check_splat, read_header, write_splat
from splatbatch.splats.blocks import read_rows

STEP = 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_splat(tmp_path / "a.ply", splat_of(10), STEP)
    return tmp_path / "a.ply"


def reason(path: Path, last_step: int | None = STEP) -> str:
    verdict = check_splat(path, last_step)
    return verdict.reason if isinstance(verdict, Rejected) else ""


def test_a_whole_splat_counts(path: Path) -> None:
    assert check_splat(path, STEP) == Splat(path, num_gaussians=10, sh_degree=0, step=STEP)


def test_a_splat_cut_at_any_byte_does_not_count(path: Path) -> None:
    size = path.stat().st_size
    body = read_header(path).header_bytes
    for length in [*range(size - 1, body - 1, -1), body - 1, body // 2, 4, 3, 0]:
        os.truncate(path, length)
        assert reason(path).startswith("cut: " if length >= body else "unreadable: "), length


def test_a_splat_with_bytes_too_many_does_not_count(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")
    assert reason(path).startswith("cut: ")


@pytest.mark.parametrize(("last_step", "why"), [(20, ""), (None, ""), (21, "from step 20, not from the last step 21")])
def test_a_splat_counts_only_from_the_last_step(path: Path, last_step: int | None, why: str) -> None:
    assert reason(path, last_step) == why


def test_a_splat_that_does_not_say_its_step_is_not_from_the_last(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"comment splatbatch step 20\n", b""))
    assert "from step None" in reason(path)
    assert reason(path, None) == ""


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("place", [-4, -56])
def test_a_value_that_is_not_finite_is_found_anywhere(path: Path, value: float, place: int) -> None:
    whole = path.read_bytes()
    for bad, at in product((value, np.inf, -np.inf), (place, -56)):
        data = bytearray(whole)
        data[at : at + 4 or None] = np.float32(bad).tobytes()
        path.write_bytes(data)
        assert reason(path) == "not finite: 1 of 10 Gaussians have NaN or infinity", (bad, at)


def test_an_empty_splat_does_not_count(tmp_path: Path) -> None:
    write_splat(tmp_path / "a.ply", splat_of(0), STEP)
    assert reason(tmp_path / "a.ply") == "empty: 0 Gaussians"


def test_missing_files_and_folders_do_not_count(tmp_path: Path) -> None:
    assert reason(tmp_path / "missing.ply") == "missing"
    assert reason(tmp_path).startswith("unreadable")
    assert reason(tmp_path / "missing" / "a.ply") == "missing"


@pytest.mark.parametrize("properties", [[], ["x", "y", "z"], ["x", "y", "z", "red", "green", "blue"]])
def test_a_point_cloud_is_no_splat(tmp_path: Path, properties: list[str]) -> None:
    lines = ["ply", "format binary_little_endian 1.0", "element vertex 2", *(f"property float {p}" for p in properties)]
    body = b"\0" * (8 * len(properties))
    (tmp_path / "a.ply").write_bytes("\n".join([*lines, "end_header\n"]).encode() + body)
    assert reason(tmp_path / "a.ply", None).startswith("no splat: PLY property f_dc_0 is missing")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**6), junk=st.binary(min_size=1, max_size=6), drop=st.integers(0, 8))
def test_a_damaged_file_is_judged_and_never_an_error(tmp_path: Path, place: int, junk: bytes, drop: int) -> None:
    path = tmp_path / "a.ply"
    write_splat(path, splat_of(2), STEP)
    data = path.read_bytes()
    place %= 320  # the header, and a little of the body
    path.write_bytes(data[:place] + junk + data[place + drop :])
    assert isinstance(check_splat(path, STEP), Splat | Rejected)


@pytest.mark.parametrize("unfilled", [1, 3, 10])
def test_gaussians_that_nobody_has_written_are_counted_and_make_the_splat_unfit(tmp_path: Path, unfilled: int) -> None:
    external_program.write_ply(tmp_path / "a.ply", unfilled=unfilled)
    assert reason(tmp_path / "a.ply", None) == f"unfilled: {unfilled} of 10 Gaussians were never written"


@pytest.mark.parametrize("unfilled_bytes", [16, 40, 60])
def test_a_file_that_has_its_size_and_not_yet_its_end_does_not_count(path: Path, unfilled_bytes: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-unfilled_bytes] + bytes(unfilled_bytes))
    assert reason(path).startswith("unfilled: ")


@pytest.mark.parametrize("length", [1e-20, 0.5, 1.0, 1e15])
def test_a_rotation_of_any_length_counts(tmp_path: Path, length: float) -> None:
    gaussians = dataclasses.replace(splat_of(10), quats=splat_of(10).quats * np.float32(length))
    write_splat(tmp_path / "a.ply", gaussians, STEP)
    assert reason(tmp_path / "a.ply") == ""


@pytest.mark.parametrize(
    ("log_scale", "why"), [(88.5, ""), (-1e30, ""), (89.0, "not finite: 10 of 10 Gaussians have NaN or infinity")]
)
def test_a_gaussian_of_infinite_size_does_not_count_and_a_tiny_one_does(
    tmp_path: Path, log_scale: float, why: str
) -> None:
    scales = np.full((10, 3), log_scale, dtype=np.float32)
    write_splat(tmp_path / "a.ply", dataclasses.replace(splat_of(10), scales=scales), STEP)
    assert reason(tmp_path / "a.ply") == why


def test_a_splat_that_is_cut_while_it_is_checked_is_no_crash(path: Path) -> None:
    header = read_header(path)
    os.truncate(path, header.header_bytes + 20)
    with pytest.raises(ValueError, match="cut: the file ends before Gaussian 10 of 10"):
        list(read_rows(path, header))
