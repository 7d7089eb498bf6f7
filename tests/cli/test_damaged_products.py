"""What was damaged on the disk, its size and time as they were: named, never passed on, and mended by the remedy."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from cut_batch import copy_of, put, trained
from fake_batch import FakeBatch

from splatbatch import hashing
from splatbatch.splats import read_header, read_splat

pytestmark = pytest.mark.usefixtures("made_here")


@pytest.fixture(scope="module")
def merged_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    batch = trained(tmp_path_factory.mktemp("trained") / "batch")
    assert invoke("merge", batch=batch).code == 0
    return batch


@pytest.fixture
def batch(merged_once: FakeBatch, tmp_path: Path) -> FakeBatch:
    return copy_of(merged_once, tmp_path / "batch")


def scene(batch: FakeBatch) -> Path:
    return batch.output / "scene/splat.ply"


def published(batch: FakeBatch) -> Path:
    return batch.folder / "published"


def flip(path: Path, at: int = -2) -> None:
    """Flip a bit of a file, and leave its size and time as they were."""
    stat, data = path.stat(), bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def flip_first_row(batch: FakeBatch) -> bytes:
    """Damage the first row of p0 in the merged scene; return the scene as it was."""
    whole = scene(batch).read_bytes()
    flip(scene(batch), read_header(scene(batch)).header_bytes + 1)
    return whole


def state(batch: FakeBatch, patch: str) -> dict[str, Any]:
    record = json.loads(invoke("status", "--json", batch=batch).out)
    return next(one for one in record["patches"] if one["patch"] == patch)


def publish(batch: FakeBatch, *arguments: str) -> Any:
    return invoke("publish", *arguments, "--to", str(published(batch)), batch=batch)


def test_a_damaged_merged_scene_is_named_and_merged_anew(batch: FakeBatch) -> None:
    whole = flip_first_row(batch)
    ended = invoke("merge", batch=batch)
    assert (ended.code, scene(batch).read_bytes() == whole) == (0, True)
    assert "splat.ply: damaged on disk: the Gaussians of p0 have changed since the merge" in " ".join(ended.err.split())
    assert "5 parts written" in ended.out


def test_damaged_rows_are_not_carried_into_the_next_scene(batch: FakeBatch) -> None:
    whole = flip_first_row(batch)
    assert invoke("merge", batch=batch).code == 0
    assert scene(batch).read_bytes() == whole
    flip_first_row(batch)
    shutil.rmtree(batch.output / "patches/p3")
    assert invoke("merge", "--allow-missing", batch=batch).code == 0
    merged = read_splat(scene(batch))
    assert invoke("merge", "--allow-missing", "--out", str(batch.folder / "fresh.ply"), batch=batch).code == 0
    assert (merged.means == read_splat(batch.folder / "fresh.ply").means).all()


@pytest.mark.parametrize("command", [("publish", "scene", "--as", "ply", "--to", "elsewhere"), ("evaluate",)])
def test_a_damaged_merged_scene_is_neither_published_nor_measured(batch: FakeBatch, command: tuple[str, ...]) -> None:
    flip_first_row(batch)
    ended = invoke(*command, batch=batch)
    said = " ".join(ended.err.split())
    assert ended.code != 0 and "damaged on disk: the Gaussians of p0" in said and "splatbatch merge" in said


def test_a_scene_whose_times_have_moved_is_the_same_scene(batch: FakeBatch) -> None:
    os.utime(scene(batch))
    assert "nothing has changed" in invoke("merge", batch=batch).out
    assert publish(batch, "scene", "--as", "ply").code == 0


def test_a_splat_that_a_merge_found_damaged_is_stale_so_that_the_remedy_works(batch: FakeBatch) -> None:
    put(batch, "p0", seed=7)
    flip(batch.output / "patches/p0/splat.ply")
    refused = invoke("merge", batch=batch)
    assert (refused.code != 0, "splatbatch train p0" in refused.err) == (True, True)
    assert (state(batch, "p0")["state"], state(batch, "p1")["state"]) == ("stale", "trained")
    assert (invoke("train", "p0", batch=batch).code, state(batch, "p0")["state"]) == (0, "trained")
    assert "changed on disk" not in invoke("merge", batch=batch).err


def test_a_splat_that_publish_found_damaged_is_stale_so_that_the_remedy_works(batch: FakeBatch) -> None:
    flip(batch.output / "patches/p0/splat.ply")
    ended = publish(batch, "p0", "--as", "ply")
    assert (ended.code != 0, state(batch, "p0")["state"]) == (True, "stale")


def test_a_damaged_splat_that_came_back_whole_with_its_time_is_trained_again_by_no_one(batch: FakeBatch) -> None:
    splat = batch.output / "patches/p0/splat.ply"
    flip(splat)
    publish(batch, "p0", "--as", "ply")
    flip(splat)
    decisions = {
        one["patch"]: one["decision"] for one in json.loads(invoke("plan", "--json", batch=batch).out)["patches"]
    }
    assert (state(batch, "p0")["state"], decisions["p0"]) == ("stale", "skip")
    assert (invoke("train", "p0", batch=batch).code, state(batch, "p0")["state"]) == (0, "trained")


def test_a_splat_that_status_found_damaged_is_trained_again(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "SETTLED_S", -60.0)  # what was read a moment ago is remembered
    flip(batch.output / "patches/p0/splat.ply")
    assert "stale: p0" in invoke("status", "--verify", batch=batch).out
    assert invoke("train", "p0", batch=batch).code == 0
    assert "stale" not in invoke("status", "--verify", batch=batch).out


def test_flipped_bytes_of_a_published_file_are_told_and_mended(batch: FakeBatch) -> None:
    assert publish(batch, "scene", "--as", "ply").code == 0
    whole = (published(batch) / "scene.ply").read_bytes()
    flip(published(batch) / "scene.ply")
    ended = publish(batch, "scene", "--as", "ply")
    assert "scene.ply: damaged on disk: written again" in ended.err
    assert (ended.code, (published(batch) / "scene.ply").read_bytes() == whole) == (0, True)
    assert "scene.ply: up to date, kept as it is" in publish(batch, "scene", "--as", "ply").err


def test_flipped_bytes_of_a_published_tile_are_told_and_mended(batch: FakeBatch) -> None:
    assert publish(batch, "scene", "--as", "tiles", "--no-measure").code == 0
    tile = next((published(batch) / "tiles").rglob("*.glb"))
    whole = tile.read_bytes()
    flip(tile)
    ended = publish(batch, "scene", "--as", "tiles", "--no-measure")
    assert "damaged on disk: written again" in ended.err
    assert (ended.code, tile.read_bytes() == whole) == (0, True)
