"""The splat file, byte for byte: what we write, every other program reads."""

from __future__ import annotations

from pathlib import Path

import gsply
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from splatbatch.splats import Gaussians, read_header, read_splat, write_splat

FIELDS = ("means", "scales", "quats", "opacities", "sh0", "shN")


def random_gaussians(num: int, degree: int = 3, seed: int = 0) -> Gaussians:
    rng = np.random.default_rng(seed)
    shapes = [(num, 3), (num, 3), (num, 4), (num,), (num, 3), (num, (degree + 1) ** 2 - 1, 3)]
    return Gaussians(*(rng.normal(size=shape).astype(np.float32) for shape in shapes))


def columns(path: Path) -> dict[str, np.ndarray]:
    """Read a PLY with nothing but its own header and numpy."""
    header, _, body = path.read_bytes().partition(b"end_header\n")
    names = [line.split()[-1] for line in header.decode().splitlines() if line.startswith("property")]
    table = np.frombuffer(body, "<f4").reshape(-1, len(names))
    return dict(zip(names, table.T, strict=True))


def test_the_header_is_that_of_3dgs(tmp_path: Path) -> None:
    write_splat(tmp_path / "a.ply", random_gaussians(2, degree=1), step=300)
    lines = (tmp_path / "a.ply").read_bytes().partition(b"end_header\n")[0].decode().splitlines()
    assert lines[:4] == ["ply", "format binary_little_endian 1.0", "comment splatbatch step 300", "element vertex 2"]
    names = [line.removeprefix("property float ") for line in lines[4:]]
    rest = [f"f_rest_{i}" for i in range(9)]
    dc, scales, rots = ([f"{name}_{i}" for i in range(n)] for name, n in (("f_dc", 3), ("scale", 3), ("rot", 4)))
    assert names == ["x", "y", "z", *dc, *rest, "opacity", *scales, *rots]


@pytest.mark.parametrize(("comments", "antialiased"), [
    ((), None), (("SplatRenderMode: mip",), True), (("SplatRenderMode: default",), False),
    (("splatrendermode: MIP",), True), (("antialiased 1",), True), (("antialiased 0",), False),
    (("antialiased 1", "SplatRenderMode: default"), False), (("antialiased perhaps", "SplatRenderMode: 2dgs"), None),
])  # fmt: skip
def test_whether_a_splat_is_drawn_antialiased_is_read_as_brush_and_postshot_write_it(
    tmp_path: Path, comments: tuple[str, ...], antialiased: object
) -> None:
    write_splat(tmp_path / "a.ply", random_gaussians(2), 300, comments=comments)
    assert read_header(tmp_path / "a.ply").antialiased is antialiased


def test_every_value_lies_where_its_name_says(tmp_path: Path) -> None:
    splat = random_gaussians(5, degree=2)
    write_splat(tmp_path / "a.ply", splat, step=1)
    column = columns(tmp_path / "a.ply")
    assert np.array_equal(np.stack([column["x"], column["y"], column["z"]], 1), splat.means)
    assert np.array_equal(column["opacity"], splat.opacities)
    assert np.array_equal(column["rot_0"], splat.quats[:, 0])
    assert np.array_equal(column["scale_2"], splat.scales[:, 2])
    assert np.array_equal(column["f_dc_1"], splat.sh0[:, 1])
    # channel by channel: all of red first
    assert np.array_equal(column["f_rest_3"], splat.shN[:, 3, 0])
    assert np.array_equal(column["f_rest_8"], splat.shN[:, 0, 1])


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_gsply_reads_our_splats(tmp_path: Path, degree: int) -> None:
    splat = random_gaussians(7, degree)
    write_splat(tmp_path / "a.ply", splat, step=1)
    theirs = gsply.plyread(tmp_path / "a.ply")
    for name in FIELDS[:5]:
        assert np.array_equal(
            np.asarray(getattr(theirs, name)).reshape(getattr(splat, name).shape), getattr(splat, name)
        )
    if degree:
        assert np.array_equal(np.asarray(theirs.shN).reshape(splat.shN.shape), splat.shN)


@pytest.mark.all
@pytest.mark.parametrize("degree", [0, 3])
def test_we_read_the_splats_of_gsply(tmp_path: Path, degree: int) -> None:
    splat = random_gaussians(7, degree)
    gsply.plywrite(tmp_path / "a.ply", *(getattr(splat, name) for name in FIELDS))
    assert read_header(tmp_path / "a.ply").step is None
    for name in FIELDS:
        assert np.array_equal(getattr(read_splat(tmp_path / "a.ply"), name), getattr(splat, name))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(num=st.integers(0, 20), degree=st.integers(0, 3), step=st.integers(0, 10**9), seed=st.integers(0, 99))
def test_a_splat_is_read_back_as_it_was_written(tmp_path: Path, num: int, degree: int, step: int, seed: int) -> None:
    splat, path = random_gaussians(num, degree, seed), tmp_path / "a.ply"
    write_splat(path, splat, step)
    header = read_header(path)
    assert (header.num_gaussians, header.sh_degree, header.step) == (num, degree, step)
    assert header.file_bytes == path.stat().st_size
    for name in FIELDS:
        assert np.array_equal(getattr(read_splat(path), name), getattr(splat, name))


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_splat_with_a_value_that_is_not_finite_is_not_written(tmp_path: Path, name: str, value: float) -> None:
    splat = random_gaussians(3)
    getattr(splat, name)[1] = value
    with pytest.raises(ValueError, match="1 of 3 Gaussians have parameters that are not finite"):
        write_splat(tmp_path / "a.ply", splat, step=1)
    assert list(tmp_path.iterdir()) == []


def test_the_largest_and_smallest_numbers_survive(tmp_path: Path) -> None:
    splat = random_gaussians(2)
    splat.means[0] = [np.finfo(np.float32).max, np.finfo(np.float32).tiny, -0.0]
    write_splat(tmp_path / "a.ply", splat, step=1)
    assert np.array_equal(read_splat(tmp_path / "a.ply").means, splat.means)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"property float opacity\n", b"", "property opacity is missing"),
        (b"property float f_rest_8\n", b"", "8 properties f_rest"),
        (b"property float x\n", b"property double x\n", "float properties"),
        (b"property float x\n", b"property\n", "float properties"),
        (b"element vertex 2\n", b"element\n", "list of vertices"),
        (b"element vertex 2\n", b"element vertex\n", "number of vertices"),
        (b"element vertex 2\n", b"element vertex -2\n", "number of vertices"),
        (b"element vertex 2\n", b"element vertex 2\nelement face 1\n", "list of vertices"),
        (b"binary_little_endian", b"ascii", "not binary little endian"),
        (b"end_header", b"end_of_it", "no PLY header"),
        (b"ply\n", b"plyx\n", "no PLY header"),
    ],
)
def test_a_header_that_is_not_of_a_splat_is_refused_with_the_reason(
    tmp_path: Path, old: bytes, new: bytes, why: str
) -> None:
    path = tmp_path / "a.ply"
    write_splat(path, random_gaussians(2, degree=1), step=1)
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    with pytest.raises(ValueError, match=why):
        read_splat(path)
