"""Tones of a batch from `train` and `verify-dims`: solved once, told, kept, and held against results."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from coloured import coloured, shade
from cut_scene import halves
from fake_batch import FakeBatch

from splatbatch.output.records.colors import tones_to_record
from splatbatch.scene.partition.record import write_partition
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.shared_decisions.colors import solve

NAMES = [f"img{i}.png" for i in range(9)]
UNLIKE = {name: 0.7 + 0.08 * number for number, name in enumerate(NAMES)}


def unlike_in(batch: FakeBatch) -> FakeBatch:
    """Make two patches that share nine photographs, the brightest twice as bright as the darkest."""
    batch.make("p0", "p1")
    for name in ("p0", "p1"):
        coloured(batch.folder / "patches" / name, UNLIKE)
    for name, gain in UNLIKE.items():
        shade(batch.folder / "images" / name, gain)
    return batch


@pytest.fixture
def unlike(batch: FakeBatch) -> FakeBatch:
    return unlike_in(batch)


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    batch = unlike_in(FakeBatch(tmp_path_factory.mktemp("trained") / "batch"))
    assert batch.run("train").returncode == 0
    return batch


@pytest.fixture
def trained(trained_once: FakeBatch, tmp_path: Path) -> FakeBatch:
    return trained_once.copied(tmp_path / "batch")


def colors(batch: FakeBatch) -> dict[str, Any]:
    return json.loads((batch.output / "colors.json").read_text())


def reasons(batch: FakeBatch) -> dict[str, str]:
    plans = json.loads(batch.run("plan", "--json").stdout)["patches"]
    return {one["patch"]: one["reason"] for one in plans}


def states(batch: FakeBatch) -> list[str]:
    return [one["state"] for one in json.loads(batch.run("status", "--json").stdout)["patches"]]


def move(batch: FakeBatch, name: str, times: float) -> None:
    record = colors(batch)
    tone = record["together"]["tones"][name]
    record["together"]["tones"][name] = [tone[0] * times, *tone[1:]]
    (batch.output / "colors.json").write_text(json.dumps(record))


def test_a_batch_solves_its_tones_before_it_trains_and_says_so_in_a_line(unlike: FakeBatch) -> None:
    said = unlike.run("train").stderr
    assert "colours: 9 photographs, gains R 0.7" in said
    assert "the correction is used" in said
    found = colors(unlike)["together"]
    assert (found["is_even"], found["residual_after"] < 1 < found["residual_before"]) == (True, True)
    assert found["tones"]["img8.png"][0] / found["tones"]["img0.png"][0] == pytest.approx(1.34 / 0.7, abs=0.02)
    assert unlike.result("p0")["tones"] == found["tones"]


def test_whether_tones_are_as_they_were_is_told_without_reading_a_model(
    unlike: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlike.run("train")
    batch = open_batch(unlike.config)
    for module in ("splatbatch.scene.colmap.reconstruction", "splatbatch.scene.colors.observations"):
        monkeypatch.setattr(f"{module}.read_images", lambda path: pytest.fail(f"{path} was read"))
    assert solve(batch, batch.tasks, batch.shared.colors) == (batch.shared.colors, {})
    shade(unlike.folder / "images" / "img3.png", 1.3)
    monkeypatch.undo()
    assert [*solve(batch, batch.tasks, batch.shared.colors)[1]] == [""]
    model = unlike.folder / "patches/p1/sparse/0/images.bin"
    os.utime(model if model.exists() else model.with_suffix(".txt"), ns=(1, 1))
    assert [*solve(batch, batch.tasks, batch.shared.colors)[1]] == [""]


def test_tones_are_kept_until_a_photograph_changes(trained: FakeBatch) -> None:
    before = (trained.output / "colors.json").stat().st_mtime_ns
    assert "colours:" not in trained.run("retry", "p0", "--force").stderr
    assert (trained.output / "colors.json").stat().st_mtime_ns == before
    shade(trained.folder / "images" / "img3.png", 1.5)
    assert "colours: 9 photographs" in trained.run("train").stderr


@pytest.mark.parametrize(("times", "expected"), [(1.005, "trained"), (1.03, "stale")])
def test_a_gain_that_moves_by_more_than_a_hundredth_makes_results_stale(
    trained: FakeBatch, times: float, expected: str
) -> None:
    move(trained, "img4.png", times)
    assert states(trained) == [expected] * 2
    told = "the colour correction of photographs has changed: img4.png by 3 %" if expected == "stale" else "trained"
    assert reasons(trained) == dict.fromkeys(("p0", "p1"), told)


def test_a_gain_of_a_photograph_that_no_patch_has_matters_to_none(trained: FakeBatch) -> None:
    record = colors(trained)
    record["together"]["tones"]["other.png"] = [2.0, 2.0, 2.0]
    (trained.output / "colors.json").write_text(json.dumps(record))
    assert states(trained) == ["trained"] * 2


def cut(batch: FakeBatch) -> None:
    shutil.copytree(batch.folder / "patches/p0/sparse/0", batch.folder / "sparse/0")
    write_partition(halves(batch.folder))


def change(batch: FakeBatch, **changes: Any) -> Batch:
    """Change what is kept of the tones, and let time pass for a photograph: they are looked at again."""
    record = colors(batch)
    record["together"] |= changes
    (batch.output / "colors.json").write_text(json.dumps(record))
    os.utime(batch.folder / "images" / "img8.png", ns=(1, 1))
    return open_batch(batch.config)


@pytest.mark.all
@pytest.mark.parametrize("is_cut", [True, False])
def test_tones_of_a_scene_that_was_cut_stay_as_they_are_when_photographs_are_added(
    unlike: FakeBatch, is_cut: bool
) -> None:
    if is_cut:
        cut(unlike)
    unlike.run("train")
    before = colors(unlike)["together"]["tones"]
    moved = before | {"img4.png": [round(one * 1.03, 6) for one in before["img4.png"]]}
    added = moved.pop("img3.png")
    batch = change(unlike, tones=moved)
    now = tones_to_record(solve(batch, batch.tasks, batch.shared.colors)[0].together.tones)
    assert (now["img4.png"] == moved["img4.png"]) == is_cut
    assert now["img3.png"] == pytest.approx(added, rel=0.001)
    assert all(now[name] == pytest.approx(before[name], rel=0.001) for name in NAMES if name != "img4.png")


@pytest.mark.all
@pytest.mark.parametrize("otherwise", [{"asked": "training"}, {"bytes": {"img4.png": 1}}])
def test_tones_are_solved_again_for_another_photograph_or_if_asked_for_otherwise(
    unlike: FakeBatch, otherwise: dict[str, Any]
) -> None:
    cut(unlike)
    unlike.run("train")
    before = colors(unlike)["together"]["tones"]
    moved = before | {"img4.png": [one * 1.03 for one in before["img4.png"]]}
    batch = change(unlike, tones=moved, **otherwise)
    now = tones_to_record(solve(batch, batch.tasks, batch.shared.colors)[0].together.tones)
    assert now["img4.png"] == pytest.approx(before["img4.png"], rel=0.001)


def test_as_is_solves_nothing_and_leaves_results_without_tones(unlike: FakeBatch) -> None:
    unlike.change(training={"colors": "as_is"})
    assert "colours" not in unlike.run("train").stderr
    assert not (unlike.output / "colors.json").exists()
    assert "tones" not in unlike.result("p0")


def test_auto_goes_on_as_a_batch_was_begun(unlike: FakeBatch) -> None:
    """Outputs of earlier versions stay trained, and patches beside each other have one colour."""
    unlike.run("train", "p0")
    (unlike.output / "colors.json").unlink()
    result = unlike.output / "patches/p0/result.json"
    result.write_text(json.dumps({key: value for key, value in unlike.result("p0").items() if key != "tones"}))
    assert "other patches were trained without correction" in unlike.run("train").stderr
    assert states(unlike) == ["trained"] * 2
    assert "tones" not in unlike.result("p1")


def test_auto_leaves_photographs_alone_that_are_alike(batch: FakeBatch) -> None:
    batch.make("p0")
    coloured(batch.folder / "patches" / "p0", dict.fromkeys(NAMES, 1.0))
    for name in NAMES:
        shade(batch.folder / "images" / name, 1.0)
    assert "no correction is needed" in batch.run("train").stderr
    assert "tones" not in batch.result("p0")


def test_a_batch_without_tracks_is_trained_as_it_is(batch: FakeBatch) -> None:
    ended = batch.make("p0", training={"colors": "even"}).run("train")
    assert ended.returncode == 0
    assert "colours: photographs are not corrected: no two photographs have 50 points" in ended.stderr
    assert "tones" not in batch.result("p0")


@pytest.mark.all(but="[]")
@pytest.mark.parametrize(
    "spoilt", ["", "[]", "{}", '{"together": 5, "scenes": []}', '{"together": {"tones": {"img0.png": [0, "x"]}}}']
)
def test_a_spoilt_record_is_solved_anew(trained: FakeBatch, spoilt: str) -> None:
    (trained.output / "colors.json").write_text(spoilt)
    assert trained.run("status").returncode in (0, 1)
    trained.run("retry", "p0", "--force")
    assert len(colors(trained)["together"]["tones"]) == 9


def test_a_patch_that_is_added_leaves_the_others_fresh(trained: FakeBatch) -> None:
    before = colors(trained)["together"]["tones"]
    more = {f"new{number}.png": 1.6 for number in range(9)} | {"img8.png": UNLIKE["img8.png"]}
    coloured(trained.folder / "patches" / "p2", more)
    for name, gain in more.items():
        if name not in UNLIKE:
            shade(trained.folder / "images" / name, gain)
    assert "colours: 18 photographs" in trained.run("train").stderr
    now = colors(trained)["together"]["tones"]
    assert (len(now), states(trained)) == (18, ["trained"] * 3)
    assert trained.result("p0")["attempt"] == "attempt-01"
    assert now["img4.png"] == pytest.approx(before["img4.png"], rel=0.005)


def test_another_wish_by_set_stays_until_the_yaml_changes(trained: FakeBatch) -> None:
    assert trained.run("retry", "p0", "--set", "training.colors=as_is").returncode == 0
    assert states(trained) == ["trained"] * 2


def test_scenes_are_solved_each_by_itself(batch: FakeBatch) -> None:
    batch.make("p0")
    for name, gain in (("north", 1.0), ("south", 0.5)):
        coloured(batch.folder / name, {key: gain * one for key, one in UNLIKE.items()})
    batch.settings["scene"] = {"scenes": ["north", "south"]}
    batch.change()
    said = batch.run("train").stderr
    assert "colours of north: 9 photographs" in said
    scenes = colors(batch)["scenes"]
    assert scenes["north"]["tones"]["img0.png"] == pytest.approx(scenes["south"]["tones"]["img0.png"], abs=0.02)


def test_verify_dims_names_photographs_that_are_unlike_and_writes_nothing(unlike: FakeBatch) -> None:
    shade(unlike.folder / "images" / "img4.png", 1.8)
    ended = unlike.run("verify-dims", "--colors")
    assert ended.returncode == 0
    assert re.search(r"img4\.png is 1\.[5-9]\dx brighter than its neighbours", ended.stdout)
    assert unlike.run("verify-dims", "--colors", "--strict").returncode == 3
    assert not unlike.output.exists()


def test_verify_dims_has_the_tones_in_json_if_asked_for(unlike: FakeBatch) -> None:
    record = json.loads(unlike.run("verify-dims", "--colors", "--json").stdout)
    assert len(record["colors"]["all"]["tones"]) == 9
    assert json.loads(unlike.run("verify-dims", "--json").stdout)["colors"] is None


@pytest.mark.all
def test_status_needs_no_numpy_for_tones(trained: FakeBatch) -> None:
    code = "import sys; from splatbatch import cli\ntry: cli.main()\nfinally: sys.exit('numpy' in sys.modules)"
    command = [sys.executable, "-c", code, "status"]
    ended = subprocess.run(command, env=trained.environment(), capture_output=True, text=True, check=False)
    assert ("2 of 2 patches trained" in ended.stdout, ended.returncode) == (True, 0)
