"""Partitions: boxes that share space, and the file that says how a scene was cut."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splatbatch.errors import SceneError
from splatbatch.scene.partition.boxes import EVERYWHERE, NO_BOX, Box, first_meeting, owners, tile
from splatbatch.scene.partition.record import (
    Core,
    Partition,
    json_schema,
    partition_of,
    read_partition,
    write_partition,
)

INF = math.inf
TURN = ((0.6, 0.8, 0.0), (-0.8, 0.6, 0.0), (0.0, 0.0, 1.0))
CONTENT = Box((-10.0, -10.0, -10.0), (10.0, 10.0, 10.0))


def two(folder: Path) -> Partition:
    """Return a scene cut in two at x = 1.5."""
    cores = tuple(
        Core(name, box, box.with_overlap((0.5, 0.5, 0.5)), box.clipped(CONTENT), 3, 40, 30, 0.5, "ab" * 32)
        for name, box in zip(("p0", "p1"), EVERYWHERE.cut(0, 1.5), strict=True)
    )
    names = [frozenset({name}) for name in ("a.jpg", "b.jpg", "c.jpg")]
    path, source = folder / "patches" / "partition.json", folder / "sparse" / "0"
    return Partition(path, source, TURN, (5.0, 0.0, 0.0), *names[:2], cores, 0.15, names[2])


@pytest.fixture
def written(tmp_path: Path) -> Path:
    partition = two(tmp_path)
    partition.path.parent.mkdir()
    write_partition(partition)
    return partition.path


@st.composite
def tilings(draw: st.DrawFn) -> list[Box]:
    boxes = [EVERYWHERE]
    for _ in range(draw(st.integers(0, 6))):
        index, axis = draw(st.integers(0, len(boxes) - 1)), draw(st.integers(0, 2))
        at = draw(st.floats(-10, 10))
        if boxes[index].lower[axis] < at < boxes[index].upper[axis]:
            boxes[index : index + 1] = boxes[index].cut(axis, at)
    return boxes


@given(tilings(), st.lists(st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 3), min_size=1))
@settings(max_examples=60)
def test_each_place_lies_in_one_core_however_far_out(boxes: list[Box], places: list[tuple[float, float, float]]):
    corners = [corner for box in boxes for corner in (box.lower, box.upper) if all(map(math.isfinite, corner))]
    asked = np.array(places + corners)
    holding = np.sum([box.holds(asked) for box in boxes], axis=0)
    assert (holding == 1).all()
    assert (owners(boxes, asked) >= 0).all()
    assert first_meeting(boxes) is None
    assert tile(boxes)


@given(tilings().filter(lambda boxes: len(boxes) > 1))
@settings(max_examples=30)
def test_cores_that_lack_one_leave_space(boxes: list[Box]):
    assert not tile(boxes[1:])


def test_a_box_holds_its_lower_sides_and_not_its_upper_ones():
    box = Box((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    assert box.holds(np.array([[0.0, 0, 0], [1.0, 0, 0], [0, 0, 1.0], [0.5, 0.5, 0.5]])).tolist() == [1, 0, 0, 1]


def test_what_is_no_place_belongs_to_nobody():
    boxes = EVERYWHERE.cut(0, 0.0)
    assert owners(boxes, np.array([[np.nan, 0, 0], [np.inf, 0, 0], [1.0, 0, 0]])).tolist() == [NO_BOX, NO_BOX, 1]


def test_a_partition_reads_back_as_it_was_written(written: Path, tmp_path: Path):
    assert read_partition(written) == two(tmp_path)


def test_a_partition_is_written_the_same_byte_for_byte(written: Path, tmp_path: Path):
    before = written.read_bytes()
    write_partition(two(tmp_path))
    assert written.read_bytes() == before
    assert b'"source": "../sparse/0"' in before
    assert [path.name for path in written.parent.iterdir()] == ["partition.json"]


def test_a_moved_scene_takes_its_partition_along(written: Path, tmp_path: Path):
    (tmp_path / "sparse" / "0").mkdir(parents=True)
    moved = written.parent.parent.rename(tmp_path.with_name(f"{tmp_path.name}-moved"))
    assert read_partition(moved / "patches" / "partition.json").source == moved / "sparse" / "0"


def test_places_of_a_frame_are_asked_where_they_lie_in_the_world(tmp_path: Path):
    partition = two(tmp_path)
    local = np.array([[-5.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=np.float32)  # the world's origin, and its (5, 0, 0)
    there = partition.in_axes(local, partition.offset)
    assert there == pytest.approx(np.array([[0.0, 0, 0], [3.0, -4.0, 0]]))
    assert there.dtype == np.float64
    assert partition.owner(there).tolist() == [0, 1]


def test_patches_without_a_partition_have_none(tmp_path: Path):
    assert partition_of(tmp_path) is None


def test_a_strangers_partition_is_none_of_ours(tmp_path: Path):
    (tmp_path / "partition.json").write_text('{"note": "uvh", "patches": [{"name": "p0"}]}')
    assert partition_of(tmp_path) is None


def test_a_partition_that_a_crash_has_cut_is_refused(written: Path):
    written.write_bytes(written.read_bytes()[:100])
    with pytest.raises(SceneError, match=r"partition\.json: "):
        partition_of(written.parent)


def test_a_partition_is_found_beside_its_patches(written: Path):
    found = partition_of(written.parent)
    assert found is not None
    assert found.core("p1") == found.cores[1]
    assert found.core("p7") is None


def _spoilt(path: Path, keys: tuple[str | int, ...], value: object) -> None:
    record = json.loads(path.read_text())
    inside = record
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = value
    path.write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("format",), 2, "format: 2: "),
        (("axes", 0), [2.0, 0.0, 0.0], "axes: .*unit vectors"),
        (("offset", 1), math.nan, "offset.1: nan: "),
        (("patches", 0, "core", "upper", 0), 3.0, "cores of p0 and p1 overlap|grown"),
        (("patches", 1, "core", "lower", 0), math.nan, "patches.1.core.lower.0.*: nan"),
        (("patches", 1, "core", "lower", 0), math.inf, "patches.1.core.lower.0.*: inf"),
        (("patches", 1, "core", "lower", 0), 1.75, "leave space between them|bounds"),
        (("patches", 1, "name"), "p0", "p0: two patches"),
        (("patches", 1, "name"), "../p1", "patches.1.name: ../p1: "),
        (("patches", 0, "bounds", "lower", 0), None, "p0: bounds: .*finite"),
        (("patches", 0, "grown", "upper", 0), 1.0, "p0: grown: "),
        (("patches", 0, "core", "upper", 0), -20.0, "bounds|grown|space"),
        (("patches",), [], "patches: "),
        (("train",), ["a.jpg"], "test: a.jpg: "),
        (("source",), 7, "source: 7: "),
    ],
)
def test_what_is_no_partition_is_refused_by_file_key_and_value(written: Path, keys, value, words: str):
    _spoilt(written, keys, value)
    with pytest.raises(SceneError, match=words) as caught:
        read_partition(written)
    assert str(written) in caught.value.message
    assert "splatbatch split" in caught.value.hint


def test_two_cores_alike_are_refused(tmp_path: Path):
    partition = two(tmp_path)
    partition.path.parent.mkdir()
    again = replace(partition.cores[0], name="p1")
    write_partition(replace(partition, cores=(partition.cores[0], again)))
    with pytest.raises(SceneError, match="cores of p0 and p1 overlap"):
        read_partition(partition.path)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b'{"format": 1'])
def test_a_file_that_is_cut_or_foreign_is_refused(written: Path, content: bytes):
    written.write_bytes(content)
    with pytest.raises(SceneError, match=r"partition\.json: "):
        read_partition(written)


def test_a_partition_that_is_gone_is_refused(tmp_path: Path):
    with pytest.raises(SceneError, match=r"no\.json: cannot be read"):
        read_partition(tmp_path / "no.json")


def test_the_schema_names_every_key_that_is_written(written: Path):
    assert set(json.loads(written.read_text())) == set(json_schema()["properties"])


def test_a_place_lies_where_it_lies_whatever_others_it_is_asked_with(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    partition = replace(two(tmp_path), axes=tuple(map(tuple, turn.tolist())))
    places = rng.normal(size=(9001, 3)) * 1e3
    together = partition.in_axes(places)
    for start in range(40):
        for num in (1, 2, 3, 5, 7, 100, 1000):
            assert np.array_equal(partition.in_axes(places[start : start + num]), together[start : start + num])
