"""Merging: every Gaussian of a splat once, bit for bit, whatever the boxes; whole or not at all; in little memory."""

from __future__ import annotations

import errno
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiled import partition_of_boxes, random_splat, rows_of, tiles, write_parts

from splatbatch.errors import OutputError
from splatbatch.scene.partition.boxes import EVERYWHERE
from splatbatch.splats import Gaussians, blocks, mode_comments, read_header, read_splat, write_splat
from splatbatch.splats import merge as merging
from splatbatch.splats.check import check_splat
from splatbatch.splats.merge import MergePart, inside, merge_splats, out_of_bounds

NONE = (0.0, 0.0, 0.0)
UTM = (500_000.0, 4_500_000.0, 100.0)
QUARTERS = [(0, 0, 0.0), (0, 1, 0.0), (2, 1, 0.0)]

whole_or_not = st.one_of(st.integers(-6, 6).map(float), st.floats(-6, 6))
cuts = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2), whole_or_not), max_size=7)
pieces = st.integers(1, 99)
turns = st.one_of(st.just(None), st.integers(0, 999))


def axes_of(seed: int | None) -> tuple[tuple[float, float, float], ...]:
    turn = np.eye(3) if seed is None else np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    return tuple(map(tuple, turn.tolist()))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=cuts, turn=turns, offset=st.sampled_from([NONE, UTM]), sizes=st.tuples(st.integers(1, 400), pieces))
def test_one_splat_cut_into_its_cores_and_merged_is_the_same_set_of_gaussians(
    tmp_path_factory: pytest.TempPathFactory, cuts, turn, offset, sizes
) -> None:
    folder, (num, piece) = tmp_path_factory.mktemp("cut"), sizes
    splat = random_splat(num, num % 4, seed=num)
    # boxes are those of the world: around where the splat is with its offset
    turned = np.array(axes_of(turn)) @ np.array(offset)
    boxes = tiles([(which, axis, at + float(turned[axis])) for which, axis, at in cuts])
    partition = partition_of_boxes(folder, boxes, axes_of(turn))
    parts = write_parts(partition, splat, offset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "ROWS_AT_ONCE", piece)
        merged = merge_splats(folder / "scene.ply", parts, offset)
    write_splat(folder / "whole.ply", splat, 20)
    assert np.array_equal(rows_of(folder / "scene.ply"), rows_of(folder / "whole.ply"))
    assert (merged.num_gaussians, read_header(folder / "scene.ply").offset) == (num, offset)


@pytest.fixture
def quarters(tmp_path: Path) -> list[MergePart]:
    return write_parts(partition_of_boxes(tmp_path, tiles(QUARTERS)), random_splat(2000))


def test_merging_says_how_many_gaussians_of_all_were_read(
    quarters: list[MergePart], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "ROWS_AT_ONCE", 300)
    heard = list[tuple[int, int]]()
    merge_splats(tmp_path / "scene.ply", quarters, NONE, lambda done, total: heard.append((done, total)))
    assert heard == sorted(heard) and len(heard) >= 4
    assert {total for _, total in heard} == {heard[-1][0]}


def test_a_merged_splat_is_one_that_counts_and_reads(quarters: list[MergePart], tmp_path: Path) -> None:
    merge_splats(tmp_path / "scene.ply", quarters, NONE)
    assert check_splat(tmp_path / "scene.ply").num_gaussians == len(read_splat(tmp_path / "scene.ply")) == 2000


@pytest.mark.parametrize(("modes", "merged"), [
    ((True, True, True, True), True), ((False, False, None, False), False), ((None, None, None, True), True),
    ((None, None, None, None), None),
])  # fmt: skip
def test_a_merged_splat_is_drawn_as_its_parts(
    quarters: list[MergePart], tmp_path: Path, modes: tuple, merged: object
) -> None:
    for part, mode in zip(quarters, modes, strict=True):
        write_splat(part.source.path, read_splat(part.source.path), 20, comments=mode_comments(mode))
    merge_splats(tmp_path / "scene.ply", quarters, NONE)
    assert read_header(tmp_path / "scene.ply").antialiased is merged


def test_splats_that_are_drawn_differently_are_not_merged(quarters: list[MergePart], tmp_path: Path) -> None:
    for part, mode in zip(quarters, (False, False, True, None), strict=True):
        write_splat(part.source.path, read_splat(part.source.path), 20, comments=mode_comments(mode))
    words = f"{quarters[2].source.name} with training.antialiased: true, .* with false"
    with pytest.raises(OutputError, match=words) as refused:
        merge_splats(tmp_path / "scene.ply", quarters, NONE)
    assert refused.value.hint.endswith(f"splatbatch train {quarters[2].source.name}.")
    assert not (tmp_path / "scene.ply").exists()


def test_merging_twice_gives_the_same_bytes(quarters: list[MergePart], tmp_path: Path) -> None:
    for name in ("a.ply", "b.ply"):
        merge_splats(tmp_path / name, quarters, NONE)
    assert (tmp_path / "a.ply").read_bytes() == (tmp_path / "b.ply").read_bytes()


def test_lower_harmonics_are_filled_up_with_zeros_channel_by_channel(tmp_path: Path) -> None:
    partition = partition_of_boxes(tmp_path, tiles([(0, 0, 0.0)]))
    parts = write_parts(partition, random_splat(50, degree=3))
    few = read_splat(parts[0].source.path)
    write_splat(parts[0].source.path, Gaussians(**{**vars(few), "shN": few.shN[:, :3]}), 20)
    merge_splats(tmp_path / "scene.ply", parts, NONE)
    merged = read_splat(tmp_path / "scene.ply")
    left, whole = merged.means[:, 0] < 0, random_splat(50, degree=3)
    order, other = np.lexsort(merged.means.T), np.lexsort(whole.means.T)
    assert not merged.shN[left][:, 3:].any()
    assert np.array_equal(merged.shN[order][:, :3], whole.shN[other][:, :3])
    assert np.array_equal(merged.shN[order][~left[order]], whole.shN[other][whole.means[other][:, 0] >= 0])


def test_properties_of_other_programs_are_left_out_and_their_order_does_not_matter(tmp_path: Path) -> None:
    splat = random_splat(30, degree=1)
    parts = write_parts(partition_of_boxes(tmp_path, [EVERYWHERE]), splat)
    merge_splats(tmp_path / "ours.ply", parts, NONE)
    header = read_header(parts[0].source.path)
    table = np.frombuffer(parts[0].source.path.read_bytes()[header.header_bytes :], "<f4").reshape(30, -1)
    names = ["nx", *header.properties[::-1], "quality"]
    lines = ["ply", "format binary_little_endian 1.0", "element vertex 30", *(f"property float {n}" for n in names)]
    body = np.concatenate([np.ones((30, 1)), table[:, ::-1], np.full((30, 1), 7.0)], axis=1).astype("<f4")
    parts[0].source.path.write_bytes("\n".join([*lines, "end_header\n"]).encode() + body.tobytes())
    merge_splats(tmp_path / "theirs.ply", parts, NONE)
    assert (tmp_path / "ours.ply").read_bytes() == (tmp_path / "theirs.ply").read_bytes()


def replaced(old: bytes, new: bytes):
    return lambda content: content.replace(old, new, 1)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (replaced(b"binary_little_endian", b"ascii"), "not binary little endian"),
        (replaced(b"binary_little_endian", b"binary_big_endian"), "not binary little endian"),
        (replaced(b"property float opacity\n", b""), "property opacity is missing"),
        (replaced(b"property float f_rest_8\n", b"property float other\n"), "8 properties f_rest"),
        (replaced(b"property float x\n", b"property double x\n"), "float properties"),
        (replaced(b"property float y\n", b"property float x\n"), "occurs twice"),
        (replaced(b"splatbatch step 20", b"splatbatch offset 1.0 0.0 0.0"), "another frame: offset (1, 0, 0)"),
        (lambda content: content[:-1], "cut: "),
        (lambda content: content + b"x", "cut: "),
        (lambda content: content[:-4] + np.float32(np.nan).tobytes(), "1 of "),
        (lambda content: content[:-16] + bytes(16), "1 have no rotation"),
        (lambda content: b"", "no PLY header"),
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_what_is_no_sound_splat_is_refused_by_name_and_nothing_is_half_written(
    quarters: list[MergePart], tmp_path: Path, spoil, words: str, is_there: bool
) -> None:
    target, path = tmp_path / "scene.ply", quarters[2].source.path
    if is_there:
        merge_splats(target, quarters, NONE)
    before = target.read_bytes() if is_there else None
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(OutputError, match=r"^p2: ") as refused:
        merge_splats(target, quarters, NONE)
    assert words in refused.value.message
    assert "splatbatch train p2" in refused.value.hint
    assert (target.read_bytes() if target.exists() else None) == before
    assert not list(tmp_path.glob(".scene*"))


def test_a_splat_that_a_disk_no_longer_reads_is_named_and_not_the_target(
    quarters: list[MergePart], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_rows(path: Path, *options: Any) -> Iterator[Any]:
        if path.name == "p2.ply":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return blocks.read_rows(path, *options)

    monkeypatch.setattr(merging, "read_rows", read_rows)
    with pytest.raises(OutputError, match=r"^p2: .*p2\.ply: .*Input/output error") as refused:
        merge_splats(tmp_path / "scene.ply", quarters, NONE)
    assert "splatbatch train p2" in refused.value.hint and not list(tmp_path.glob("*scene*"))


def test_a_splat_that_is_not_the_accepted_one_is_refused(quarters: list[MergePart], tmp_path: Path) -> None:
    parts = [replace(quarters[0], source=replace(quarters[0].source, sha256="0" * 64))]
    with pytest.raises(OutputError, match="p0: changed on disk"):
        merge_splats(tmp_path / "scene.ply", parts, NONE)
    assert not (tmp_path / "scene.ply").exists()


def test_a_splat_with_nothing_in_its_core_was_trained_in_another_frame(
    quarters: list[MergePart], tmp_path: Path
) -> None:
    parts = [replace(quarters[0], region=quarters[3].region)]
    splat = read_splat(parts[0].source.path)
    write_splat(parts[0].source.path, Gaussians(**{**vars(splat), "means": splat.means - 100}), 20)
    with pytest.raises(OutputError, match="p0: none of its"):
        merge_splats(tmp_path / "scene.ply", parts, NONE)


@given(cuts=cuts, turn=turns, num=st.integers(1, 300), without=st.integers(0, 9))
def test_each_gaussian_of_a_backdrop_shows_where_no_patch_has_it(
    tmp_path_factory: pytest.TempPathFactory, cuts, turn, num: int, without: int
) -> None:
    folder, splat = tmp_path_factory.mktemp("cut"), random_splat(num)
    partition = partition_of_boxes(folder, tiles(cuts), axes_of(turn))
    boxes = [core.core.clipped(core.bounds) for core in partition.cores if core.name != f"p{without}"]
    held = [inside(partition, UTM, box)(splat.means) for box in boxes]
    behind = out_of_bounds(partition, UTM, tuple(boxes))(splat.means)
    assert (np.sum([*held, behind], axis=0) == 1).all()


@pytest.mark.parametrize("num_patches", [2, 16])
def test_memory_stays_within_one_and_a_half_of_the_largest_patch_whatever_the_total(
    tmp_path: Path, num_patches: int
) -> None:
    boxes = tiles([(i, 0, float(i)) for i in range(num_patches - 1)])
    partition = partition_of_boxes(tmp_path, boxes)
    splat = random_splat(100_000, degree=0)
    parts = []
    for i, core in enumerate(partition.cores):
        means = splat.means + np.array([i - 0.5 if i else -50, 0, 0], np.float32)
        part = write_parts(replace(partition, cores=(core,)), replace_means(splat, means))[0]
        parts.append(part)
    largest = max(part.source.path.stat().st_size for part in parts)
    tracemalloc.start()
    merge_splats(tmp_path / "scene.ply", parts, NONE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 1.5 * largest


def replace_means(splat: Gaussians, means: np.ndarray) -> Gaussians:
    return Gaussians(**{**vars(splat), "means": means.astype(np.float32)})
