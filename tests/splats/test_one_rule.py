"""One rule of what a splat is: what is accepted can be read, and what our reader refuses is never accepted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from splatbatch.errors import OutputError
from splatbatch.outcome import Rejected, Splat
from splatbatch.splats import check_splat, read_splat
from splatbatch.splats.blocks import index_blocks
from splatbatch.splats.merge import MergeSource, header_of
from splatbatch.splats.ply import LARGEST_COORDINATE, encode_header, property_names

NUM = 3
VALUES = st.sampled_from([0.0, 1.0, -2.5, 88.0, 89.0, 1e18, 1.1e18, -3e38, np.inf, np.nan])


def written(path: Path, names: list[str], rows: np.ndarray, more: bytes = b"") -> Path:
    path.write_bytes(encode_header(len(rows), names) + rows.astype("<f4").tobytes() + more)
    return path


def plain_rows(names: list[str], num: int = NUM) -> np.ndarray:
    return np.ones((num, len(names)), np.float32)


@pytest.mark.parametrize("num_rest", [1, 3, 7, 8, 12, 46])
def test_harmonics_of_no_degree_are_no_splat(tmp_path: Path, num_rest: int) -> None:
    names = list(property_names(num_rest))
    found = check_splat(written(tmp_path / "a.ply", names, plain_rows(names)))
    assert found == Rejected(f"no splat: {num_rest} properties f_rest fit no degree of spherical harmonics")


def test_harmonics_that_are_not_drawn_are_refused_by_all_that_read_a_splat(tmp_path: Path) -> None:
    names, words = list(property_names(72)), "harmonics of degree 4 cannot be rendered: train with degree 3 at most"
    path = written(tmp_path / "a.ply", names, plain_rows(names))
    assert check_splat(path) == Rejected(f"no splat: {words}")
    for read in (read_splat, index_blocks):
        with pytest.raises(ValueError, match=words):
            read(path)
    with pytest.raises(OutputError, match=f"a.ply: {words}"):
        header_of(MergeSource(path, "p0", ""), (0.0, 0.0, 0.0))


def test_a_property_that_stands_there_twice_is_no_splat(tmp_path: Path) -> None:
    names = [*property_names(0), "x"]
    found = check_splat(written(tmp_path / "a.ply", names, plain_rows(names)))
    assert found == Rejected("no splat: PLY property x occurs twice")


@pytest.mark.parametrize(("value", "is_one"), [(LARGEST_COORDINATE, True), (1.1e18, False), (-3e38, False)])
def test_a_place_that_nothing_can_be_computed_with_is_none(tmp_path: Path, value: float, is_one: bool) -> None:
    names = list(property_names(0))
    rows = plain_rows(names)
    rows[1, names.index("y")] = value
    found = check_splat(written(tmp_path / "a.ply", names, rows))
    assert isinstance(found, Splat) or found == Rejected("out of reach: 1 of 3 Gaussians have coordinates beyond 1e+18")
    assert isinstance(found, Splat) is is_one
    assert np.isfinite(np.square([np.float32(value)] * 3).sum()) or not is_one


def test_a_property_that_is_not_drawn_may_hold_anything(tmp_path: Path) -> None:
    names = [*property_names(9), "nx"]
    rows = plain_rows(names)
    rows[1, names.index("nx")] = np.nan
    path = written(tmp_path / "a.ply", names, rows)
    assert isinstance(check_splat(path), Splat) and len(read_splat(path).means) == NUM
    rows[2, names.index("f_rest_8")] = np.inf
    assert check_splat(written(path, names, rows)) == Rejected("not finite: 1 of 3 Gaussians have NaN or infinity")


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    num_rest=st.sampled_from([0, 7, 9, 12, 24, 45, 72]),
    left_out=st.sets(st.integers(0, 90), max_size=1),
    besides=st.lists(st.sampled_from(["nx", "x", "f_rest_0", "f_rest_99", "scale_3", "rot_0"]), max_size=1),
    spoilt=st.lists(st.tuples(st.integers(0, NUM - 1), st.integers(0, 90), VALUES), max_size=2),
    size=st.sampled_from([0, 0, 0, -4, 4]),
)
def test_a_splat_is_accepted_just_if_it_can_be_read_and_all_of_it_computed_with(
    tmp_path: Path, *, num_rest: int, left_out: set, besides: list, spoilt: list, size: int
) -> None:
    names = [name for i, name in enumerate(property_names(num_rest)) if i not in left_out] + besides
    rows = plain_rows(names)
    for row, column, value in spoilt:
        rows[row, column % len(names)] = value
    path = written(tmp_path / "a.ply", names, rows, bytes(max(0, size)))
    path.write_bytes(path.read_bytes()[: size if size < 0 else None])
    assert isinstance(check_splat(path), Splat) is can_be_used(path)


def can_be_used(path: Path) -> bool:
    try:
        splat = read_splat(path)
    except ValueError:
        return False
    with np.errstate(all="ignore"):
        parts = [np.square(splat.means).sum(axis=1), np.exp(splat.scales), *vars(splat).values()]
    is_near = (np.abs(splat.means) <= np.float32(LARGEST_COORDINATE)).all()
    return bool(is_near and all(np.isfinite(part).all() for part in parts) and splat.quats.any(axis=1).all())
