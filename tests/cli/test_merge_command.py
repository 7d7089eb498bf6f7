"""The command `merge`: what goes into a scene, what is refused and why, and what it leaves on the disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke
from cut_batch import NAMES, TEST, accept, copy_of, cut, expected, expected_backdrop, put, put_backdrop, trained
from fake_batch import FakeBatch, write_model
from far_away import UTM
from process_family import wait_until
from published_shapes import checked
from tiled import random_splat, some

from splatbatch.hashing import stamp_of
from splatbatch.outcome import Splat
from splatbatch.output.layout import OutputFolder
from splatbatch.scheduler.work.exclusive_output import lock_output_alone
from splatbatch.splats import Gaussians, check_splat, read_header, read_splat, write_splat
from splatbatch.tasks.batch import open_batch

pytestmark = pytest.mark.usefixtures("made_here")

ALL = ("p0", "p1", "p2", "p3")
PARTS = (*ALL, "backdrop")


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    return trained(tmp_path_factory.mktemp("trained") / "batch")


@pytest.fixture
def batch(trained_once: FakeBatch, tmp_path: Path) -> FakeBatch:
    return copy_of(trained_once, tmp_path / "batch")


def scene(batch: FakeBatch) -> Path:
    return batch.output / "scene/splat.ply"


def place(batch: FakeBatch, patch: str) -> Path:
    return batch.output / "patches" / patch


def record(batch: FakeBatch) -> dict[str, Any]:
    return json.loads((batch.output / "scene/merge.json").read_text())


def refused(batch: FakeBatch, *arguments: str) -> str:
    """Run a merge that must be refused, with nothing written; return what it says, on one line."""
    before = {path: path.stat().st_mtime_ns for path in (batch.output / "scene").glob("*")}
    ended = invoke("merge", *arguments, batch=batch)
    assert ended.code in (2, 3, 6), ended.out + ended.err
    assert {path: path.stat().st_mtime_ns for path in (batch.output / "scene").glob("*")} == before
    assert "hint: " in ended.err
    return " ".join(ended.err.split())


def test_a_scene_has_of_each_patch_what_lies_in_its_core(batch: FakeBatch) -> None:
    ended = invoke("merge", batch=batch)
    assert ended.code == 0, ended.err
    merged, wanted = read_splat(scene(batch)), []
    for patch in ALL:
        splat = random_splat(400, 1, int(patch[1]))
        left, below = splat.means[:, 0] < 0, splat.means[:, 1] < 0
        wanted.append(some(splat, (left == (patch in ("p0", "p1"))) & (below == (patch in ("p0", "p2")))).means)
    assert np.array_equal(merged.means, np.concatenate([*wanted, expected_backdrop()]))
    assert f"{len(merged):,} Gaussians" in ended.out
    assert "5 parts written" in ended.out


def test_merge_json_says_what_the_scene_was_made_of(batch: FakeBatch) -> None:
    told = checked("merge", invoke("merge", "--json", batch=batch).out)
    said = record(batch)
    assert told == {"splat": str(scene(batch)), "parts_written": 5, **said}
    assert [part["patch"] for part in said["parts"]] == list(PARTS)
    assert [part["sha256"] for part in said["parts"]] == [batch.result(patch)["splat"]["sha256"] for patch in PARTS]
    nums = [*(expected(batch, patch) for patch in ALL), len(expected_backdrop())]
    assert [part["num_gaussians"] for part in said["parts"]] == nums
    assert [part["num_outside"] for part in said["parts"][:4]] == [400 - num for num in nums[:4]]
    assert np.cumsum([0, *(part["num_gaussians"] for part in said["parts"])])[:-1].tolist() == [
        part["start"] for part in said["parts"]
    ]
    assert (said["holes"], said["cleaned"], said["bytes"]) == ([], None, scene(batch).stat().st_size)


def test_a_scene_far_from_its_origin_is_cropped_where_its_splats_lie_and_says_so(tmp_path: Path) -> None:
    batch = trained(tmp_path / "batch", offset=UTM)
    ended = invoke("merge", batch=batch)
    assert ended.code == 0, ended.err
    nums = [*(expected(batch, patch) for patch in ALL), len(expected_backdrop())]
    assert [part["num_gaussians"] for part in record(batch)["parts"]] == nums
    assert (record(batch)["offset"], read_header(scene(batch)).offset) == ([*UTM], UTM)


def test_a_scene_that_has_not_changed_is_not_written_again(batch: FakeBatch) -> None:
    invoke("merge", batch=batch)
    before = [stamp_of(str(path)) for path in sorted((batch.output / "scene").iterdir())]
    assert "nothing has changed" in invoke("merge", batch=batch).out
    assert [stamp_of(str(path)) for path in sorted((batch.output / "scene").iterdir())] == before


def test_of_one_patch_trained_again_the_scene_is_as_from_scratch(batch: FakeBatch, tmp_path: Path) -> None:
    invoke("merge", batch=batch)
    put(batch, "p2", seed=9)
    assert checked("merge", invoke("merge", "--json", batch=batch).out)["parts_written"] == 5
    invoke("merge", "--out", str(tmp_path / "fresh.ply"), batch=batch)
    assert scene(batch).read_bytes() == (tmp_path / "fresh.ply").read_bytes()
    fresh = json.loads((tmp_path / "fresh.merge.json").read_text())
    assert {**fresh, "mtime_ns": 0} == {**record(batch), "mtime_ns": 0}


@pytest.mark.parametrize("spoil", [b"", b"{", b"[]", b'{"parts": 7, "holes": [null], "bytes": "x"}'])
def test_a_scene_whose_record_is_torn_or_a_strangers_is_written_anew(batch: FakeBatch, spoil: bytes) -> None:
    invoke("merge", batch=batch)
    whole = scene(batch).read_bytes()
    (batch.output / "scene/merge.json").write_bytes(spoil)
    assert checked("merge", invoke("merge", "--json", batch=batch).out)["parts_written"] == 5
    assert scene(batch).read_bytes() == whole


def test_a_scene_that_somebody_changed_is_written_anew(batch: FakeBatch) -> None:
    invoke("merge", batch=batch)
    whole = scene(batch).read_bytes()
    scene(batch).write_bytes(whole[:-4] + b"\0\0\0\0")
    assert checked("merge", invoke("merge", "--json", batch=batch).out)["parts_written"] == 5
    assert scene(batch).read_bytes() == whole


def test_a_patch_of_a_higher_degree_raises_that_of_the_scene(batch: FakeBatch) -> None:
    invoke("merge", batch=batch)
    put(batch, "p1", seed=1, degree=3)
    told = checked("merge", invoke("merge", "--json", batch=batch).out)
    assert (told["sh_degree"], told["parts_written"]) == (3, 5)


# what is missing


def lose(batch: FakeBatch, patch: str = "p1") -> None:
    (place(batch, patch) / "result.json").unlink()
    shutil.rmtree(place(batch, patch) / "accepted")


def cut_short(batch: FakeBatch) -> None:
    os.truncate(place(batch, "p1") / "splat.ply", 900)


def make_stale(batch: FakeBatch) -> None:
    batch.change(patches={"p1": {"training": {"max_steps": 30}}})


def fail_health(batch: FakeBatch) -> None:
    batch.script(p1=["exit 1 health: nan_loss: loss nan, gradient norm nan at step 7"])
    make_stale(batch)
    assert invoke("train", "p1", batch=batch).code == 1


def move_frame(batch: FakeBatch) -> None:
    accept(place(batch, "p1"), offset=[100.0, 0.0, 0.0])


def change_holdout(batch: FakeBatch) -> None:
    accept(place(batch, "p1"), photographs={"trained": NAMES, "held_out": []})


def remove_folder(batch: FakeBatch) -> None:
    (batch.folder / "patches/p1").rename(batch.folder / "elsewhere")


MISSING = [
    (lose, "p1: not trained yet"),
    (cut_short, "p1: stale: splat.ply changed on disk"),
    (make_stale, "p1: stale: settings have changed: training.max_steps 20 -> 30"),
    (fail_health, "p1: failed: "),
    (move_frame, "p1: stale: "),
    (
        change_holdout,
        "p1: its hold-out differs: other patches hold out photographs that it was trained on: img0.png, img8.png",
    ),
    (remove_folder, "p1: no such patch in"),
]


@pytest.mark.parametrize(("spoil", "words"), MISSING, ids=lambda value: getattr(value, "__name__", ""))
def test_a_patch_that_does_not_count_is_a_reason_to_refuse_or_a_hole(batch: FakeBatch, spoil: Any, words: str) -> None:
    spoil(batch)
    said = refused(batch)
    assert words in said
    assert "1 of 5 patches cannot be merged" in said
    assert "--allow-missing" in said
    ended = invoke("merge", "--allow-missing", batch=batch)
    assert ended.code == 0, ended.err
    hole = record(batch)["holes"][0]
    assert f"{hole['patch']}: {hole['reason']}".startswith(words)
    assert (hole["lower"], hole["upper"]) == ([None, 0.0, None], [0.0, None, None])
    assert "x -inf to 0, y 0 to inf, z -inf to inf" in " ".join(ended.err.split())
    assert "1 hole" in ended.out
    merged = read_splat(scene(batch)).means
    assert len(merged) == expected(batch, "p0", "p2", "p3") + len(expected_backdrop("p1"))
    assert np.array_equal(merged[-len(expected_backdrop("p1")) :], expected_backdrop("p1"))


def test_a_hole_is_filled_once_its_patch_is_there(batch: FakeBatch) -> None:
    kept = (place(batch, "p1") / "result.json").read_bytes()
    lose(batch)
    invoke("merge", "--allow-missing", batch=batch)
    (place(batch, "p1") / "result.json").write_bytes(kept)
    told = checked("merge", invoke("merge", "--json", batch=batch).out)
    assert (told["parts_written"], told["holes"]) == (5, [])


def test_without_its_backdrop_a_scene_shows_nothing_beyond_its_patches(batch: FakeBatch) -> None:
    lose(batch, "backdrop")
    assert "1 of 5 patches cannot be merged: backdrop: not trained yet" in refused(batch)
    ended = invoke("merge", "--allow-missing", batch=batch)
    assert "backdrop: not trained yet: the scene has no backdrop (coarse splat) behind the patches" in ended.err
    assert len(read_splat(scene(batch))) == expected(batch, *ALL)


def test_a_backdrop_that_lies_where_patches_reach_gives_the_scene_nothing_and_it_is_said_why(batch: FakeBatch) -> None:
    put_backdrop(batch, random_splat(500, 1, seed=7))
    ended = invoke("merge", batch=batch)
    assert (ended.code, len(read_splat(scene(batch)))) == (0, expected(batch, *ALL))
    why = "All 500 Gaussians of the backdrop lie inside patches"
    assert why in " ".join(ended.out.split())
    assert invoke("report", batch=batch).code == 0
    assert why in (batch.output / "report.md").read_text()


def test_a_new_backdrop_makes_all_patches_stale(batch: FakeBatch) -> None:
    put(batch, "backdrop", seed=5)
    assert "p0: stale: the backdrop behind the patch has changed" in refused(batch)


def test_of_a_batch_that_was_never_trained_nothing_is_merged_and_nothing_left(tmp_path: Path) -> None:
    batch = FakeBatch(tmp_path).make(*ALL)
    cut(batch)
    assert "p3: not trained yet" in refused(batch, "--allow-missing")
    assert not batch.output.exists()


def test_a_scene_of_holes_alone_is_none(batch: FakeBatch) -> None:
    for patch in ALL:
        lose(batch, patch)
    assert "4 of 5 patches cannot be merged" in refused(batch, "--allow-missing")


def test_what_is_odd_about_a_training_is_said_again(batch: FakeBatch) -> None:
    accept(place(batch, "p3"), warnings=["health: loss_not_falling: loss 0.2 at the start, 0.2 at step 20"])
    ended = invoke("merge", batch=batch)
    assert ended.code == 0
    assert "warning: p3: health: loss_not_falling" in ended.err
    assert record(batch)["parts"][3]["warnings"] == ["health: loss_not_falling: loss 0.2 at the start, 0.2 at step 20"]


def test_patches_that_agree_on_another_holdout_are_merged_with_a_warning(batch: FakeBatch) -> None:
    for patch in ALL:
        accept(place(batch, patch), photographs={"trained": NAMES, "held_out": []})
    ended = invoke("merge", batch=batch)
    assert ended.code == 0
    assert "warning: hold-out: partition.json and YAML now hold out img0.png, img8.png" in ended.err
    assert record(batch)["held_out"] == []


def hold_out_today(batch: FakeBatch, name: str) -> None:
    path = batch.folder / "patches/partition.json"
    known = json.loads(path.read_text())
    known["train"].remove(name)
    path.write_text(json.dumps({**known, "test": [*known["test"], name]}))


def test_a_photograph_that_was_trained_on_is_not_held_out_by_a_change_of_the_partition(batch: FakeBatch) -> None:
    hold_out_today(batch, "img3.png")
    ended = invoke("merge", batch=batch)
    assert ended.code == 0, ended.err
    assert record(batch)["held_out"] == ["img0.png", "img8.png"]
    said = "hold-out: partition.json and YAML now hold out img3.png, but the splat was trained on it"
    assert record(batch)["warnings"] == [said]
    assert ended.err.count("img3.png") == 1


# what is no scene


def test_a_sweep_makes_no_scene(batch: FakeBatch) -> None:
    batch.change(sweep={"matrix": {"training.max_steps": [10, 20]}})
    assert "sweep: 2 variants" in refused(batch)


def test_scenes_that_stand_by_themselves_make_no_scene(batch: FakeBatch) -> None:
    batch.settings["scene"] = {"scenes": ["patches/*"]}
    batch.change()
    assert "scene.scenes: " in refused(batch)


def test_patches_without_a_partition_make_no_scene(batch: FakeBatch) -> None:
    (batch.folder / "patches/partition.json").unlink()
    assert "splatbatch split" in refused(batch)


def test_two_patches_with_one_core_make_no_scene(batch: FakeBatch) -> None:
    path = batch.folder / "patches/partition.json"
    known = json.loads(path.read_text())
    known["patches"][1] = {**known["patches"][0], "name": "p1"}
    path.write_text(json.dumps(known))
    assert "the cores of p0 and p1 overlap" in refused(batch)


def test_a_patch_that_the_partition_does_not_know_is_named(batch: FakeBatch) -> None:
    write_model(batch.folder / "patches/p9/sparse/0", NAMES)
    assert "partition.json: patches: does not list p9" in refused(batch)


def test_a_scene_that_has_changed_since_it_was_cut_is_named(batch: FakeBatch) -> None:
    write_model(batch.folder / "sparse/0", [*NAMES[1:], "new.png"])
    said = refused(batch)
    assert "since the split, the scene" in said
    assert "1 new photograph (new.png)" in said


# places


def test_a_scene_may_be_written_elsewhere_and_again(batch: FakeBatch, tmp_path: Path) -> None:
    for parts_written in (5, 0):
        told = checked("merge", invoke("merge", "--json", "--out", str(tmp_path / "new/scene.ply"), batch=batch).out)
        assert told["parts_written"] == parts_written
    assert not (batch.output / "scene").exists()


@pytest.mark.parametrize(
    "name", ["theirs.ply", "output/patches/p0/splat.ply", "output/mine.ply", "scene.spz", "patches"]
)
def test_nothing_of_anybody_else_is_written_over(batch: FakeBatch, name: str) -> None:
    (batch.folder / "theirs.ply").write_text("years of work")
    before = (place(batch, "p0") / "splat.ply").read_bytes()
    assert "--out" in refused(batch, "--out", str(batch.folder / name))
    assert (batch.folder / "theirs.ply").read_text() == "years of work"
    assert (place(batch, "p0") / "splat.ply").read_bytes() == before


def test_while_a_batch_runs_nothing_is_merged(batch: FakeBatch) -> None:
    batch.script(p0=["hang"])
    batch.change(patches={"p0": {"training": {"max_steps": 30}}})
    night = batch.beside("train", "p0")
    night.until(lambda: "attempt 2 started" in night.said)
    assert "is training into this folder" in refused(batch, "--allow-missing")


@pytest.mark.all
@pytest.mark.contract
def test_a_merge_that_is_killed_while_it_writes_leaves_a_whole_scene_and_nothing_for_long(batch: FakeBatch) -> None:
    invoke("merge", batch=batch)
    merged = "merge_here(batch, None, allow_missing=False, clean=False)"
    told = f"batch = open_batch({str(batch.config)!r}); {merged}"
    slowly = "import os, time; sync = os.fsync; os.fsync = lambda file: (time.sleep(0.2), sync(file))"  # in memory, too
    row_by_row = f"{slowly}; from splatbatch.splats import merge as rows; rows.ROWS_AT_ONCE = 1"
    program = f"{row_by_row}\nfrom splatbatch.run.products import *\n"
    program += f"from splatbatch.tasks.batch import open_batch; {told}"
    for attempt in range(4):
        put(batch, "p0", seed=10 + attempt)
        process = subprocess.Popen([sys.executable, "-c", program], env=batch.environment())
        while not (aside := list(scene(batch).parent.glob(".splat.ply*"))):
            assert process.poll() is None
        time.sleep(0.02 * attempt)
        process.kill()
        process.communicate()
        assert aside[0].exists() or attempt
        assert isinstance(check_splat(scene(batch)), Splat)
    assert invoke("merge", "--out", str(batch.folder / "fresh.ply"), batch=batch).code == 0
    assert invoke("merge", batch=batch).code == 0
    assert scene(batch).read_bytes() == (batch.folder / "fresh.ply").read_bytes()
    assert sorted(path.name for path in (batch.output / "scene").iterdir()) == ["merge.json", "splat.ply"]


@pytest.mark.contract
def test_what_a_killed_merge_left_goes_and_what_others_write_stays(batch: FakeBatch) -> None:
    dead = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    (batch.output / "scene").mkdir()
    left = [batch.output / "scene" / f".splat.ply.{socket.gethostname()}.{pid}" for pid in (dead, "1")]
    for path in left:
        path.write_text("half a scene")
    invoke("merge", batch=batch)
    assert [path.exists() for path in left] == [False, True]


def test_on_a_full_disk_the_scene_stays_as_it_was(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    invoke("merge", batch=batch)
    before = scene(batch).read_bytes()
    put(batch, "p0", seed=9)
    monkeypatch.setattr("splatbatch.splats.merge._write", full)
    assert "No space left on device" in refused(batch)
    assert scene(batch).read_bytes() == before


# cleaning


def test_cleaning_says_what_it_took_by_which_rule(batch: FakeBatch) -> None:
    path = place(batch, "p0") / "splat.ply"
    splat = read_splat(path)
    faint = np.arange(400) % 10 == 0
    path.unlink()
    write_splat(path, Gaussians(**{**vars(splat), "opacities": np.where(faint, -9, 1).astype(np.float32)}), 20)
    accept(path.parent)
    ended = invoke("merge", "--clean", batch=batch)
    assert ended.code == 0, ended.err
    said, uncleaned = record(batch), batch.folder / "uncleaned.ply"
    assert invoke("merge", "--out", str(uncleaned), batch=batch).code == 0
    inside = int(np.count_nonzero((splat.means[faint, :2] < 0).all(axis=1)))
    assert (said["parts"][0]["removed"]["faint"], said["cleaned"]["rules"]["faint"]) == (inside, "opacity below 0.005")
    assert len(read_splat(uncleaned)) == said["num_gaussians"] + sum(said["cleaned"]["removed"].values())
    assert f"{said['cleaned']['removed']['faint']:,} faint" in ended.out


def test_a_scene_is_cleaned_anew_where_it_was_not_and_the_other_way_round(batch: FakeBatch) -> None:
    first = checked("merge", invoke("merge", "--json", batch=batch).out)
    assert checked("merge", invoke("merge", "--json", "--clean", batch=batch).out)["parts_written"] == 5
    again = checked("merge", invoke("merge", "--json", batch=batch).out)
    assert {**first, "mtime_ns": 0} == {**again, "mtime_ns": 0}


def test_a_record_of_a_merge_is_read_as_it_was_written(batch: FakeBatch) -> None:
    lose(batch)
    invoke("merge", "--allow-missing", "--clean", batch=batch)
    found = OutputFolder(batch.output).scene.merged.read()
    assert found.to_record() == record(batch)
    assert found.holes[0].lower == (None, 0.0, None)


def test_the_partition_of_a_cut_batch_is_the_one_the_tests_mean(batch: FakeBatch) -> None:
    assert cut(batch).test == TEST


def test_what_was_accepted_is_merged_before_its_files_are_put_up(batch: FakeBatch) -> None:
    assert invoke("merge", batch=batch).code == 0
    wanted = scene(batch).read_bytes()
    shutil.rmtree(scene(batch).parent)
    for patch in ("p0", "backdrop"):
        folder = place(batch, patch)
        folder.joinpath("attempt-01/splat.ply").unlink()
        folder.joinpath("splat.ply").rename(folder / "attempt-01/splat.ply")
        folder.joinpath("result.json").rename(folder / "accepted/2.json")
    ended = invoke("merge", batch=batch)
    assert ended.code == 0, ended.err
    assert scene(batch).read_bytes() == wanted


@pytest.mark.parametrize("command", ["merge", "clean"])
def test_while_a_worker_trains_nothing_is_made_of_what_it_may_replace(batch: FakeBatch, command: str) -> None:
    lose(batch)
    batch.script(p1=["await go"] * 9)
    batch.beside("work").until((place(batch, "p1") / "attempt-02/start.json").exists)
    ended = invoke(command, batch=batch)
    assert (ended.code, "trains into this folder" in ended.err) == (6, True), ended.err
    assert "hint: " in ended.err


@pytest.mark.all
def test_a_worker_that_begins_while_a_scene_is_made_waits(batch: FakeBatch) -> None:
    lose(batch)
    opened = open_batch(batch.config)
    before = len(list(place(batch, "p1").glob("attempt-*")))
    with lock_output_alone(opened, print):
        worker = batch.start("work")
        wait_until(lambda: len(opened.output.workers()) == 2)
        time.sleep(1)
        assert worker.poll() is None
        assert len(list(place(batch, "p1").glob("attempt-*"))) == before
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert len(list(place(batch, "p1").glob("attempt-*"))) == before + 1
