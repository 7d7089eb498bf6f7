"""Rigs of 20 + 20: no held-out photograph has its twin in training, in patches and in the merged scene."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from command_line import invoke
from fake_batch import ROOT, FakeBatch
from stereo import NAMES, image, stereo, stereo_batch, twins_trained_on, write_stereo

from splatbatch.scene.partition.record import read_partition
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.shared_decisions.holdout import held_out

if TYPE_CHECKING:
    from splatbatch.scene.colmap.types import Image

WORDS = "6 of 40 photographs are held out: 3 frames, so that no stereo twin is trained on"


def cut(batch: FakeBatch) -> FakeBatch:
    """Cut the source of a batch in two by `split`."""
    ended = invoke("split", "--source", str(batch.folder), "--out", str(batch.folder / "patches"), "--grid", "2x1")
    assert ended.code == 0, ended.err
    assert WORDS in ended.out + ended.err
    return batch


def by_hand(batch: FakeBatch, kind: str) -> FakeBatch:
    """Cut it by hand, so that each patch has another eye of frame 8, which is held out."""
    images = stereo(kind)
    write_stereo(batch.folder / "patches/p0", "", images[:17])
    write_stereo(batch.folder / "patches/p1", "", images[17:])
    return batch


def trained(batch: FakeBatch) -> dict[str, dict[str, Any]]:
    """Train a batch; return what its patches were trained on, by their names."""
    ended = invoke("train", "--no-verify", batch=batch)
    assert ended.code == 0, ended.err
    return {name: batch.result(name)["photographs"] for name in ("p0", "p1")}


def all_twins_trained_on(batch: FakeBatch, images: list[Image]) -> list[str]:
    parts = trained(batch).values()
    held = {name for one in parts for name in one["held_out"]}
    return twins_trained_on([*held, *(name for one in parts for name in one["trained"])], held, images)


@pytest.mark.parametrize("kind", NAMES)
def test_no_patch_of_a_split_is_trained_on_the_twin_of_a_photograph_that_any_holds_out(
    kind: str, tmp_path: Path, record_property: Any
) -> None:
    batch = cut(stereo_batch(tmp_path, kind))
    assert all_twins_trained_on(batch, stereo(kind)) == []
    whole = open_batch(batch.config).whole()
    of_scene, _ = held_out(whole, whole.output.scene.splat)
    assert len(of_scene) == 6
    assert twins_trained_on([one.name for one in stereo(kind)], {*of_scene}, stereo(kind)) == []
    record_property("figure", f"{kind}: 6 of 40 held out, 0 twins trained on")


@pytest.mark.parametrize("kind", NAMES)
def test_nor_is_any_of_patches_that_were_cut_otherwise_and_name_their_source(kind: str, tmp_path: Path) -> None:
    batch = by_hand(stereo_batch(tmp_path, kind), kind)
    assert all_twins_trained_on(batch, stereo(kind)) == []
    assert {len(one["held_out"]) for one in trained(batch).values()} == {3}


def test_plan_console_and_report_say_it_in_frames(tmp_path: Path) -> None:
    batch = by_hand(stereo_batch(tmp_path, "folders"), "folders")
    assert WORDS in invoke("plan", batch=batch).out
    assert WORDS in invoke("train", "--no-verify", batch=batch).err
    assert WORDS in (batch.output / "report.md").read_text()


def test_a_photograph_that_is_added_to_a_frame_is_held_out_as_its_twin_is(tmp_path: Path) -> None:
    batch = stereo_batch(tmp_path, "folders")
    images = stereo()
    write_stereo(batch.folder, "", [one for one in images if one.name not in ("B/0008.png", "B/0009.png")])
    ended = invoke("split", "--source", str(tmp_path), "--out", str(tmp_path / "patches"), "--grid", "2x1")
    before = read_partition(tmp_path / "patches/partition.json")
    assert ("A/0008.png" in before.test, "A/0009.png" in before.train) == (True, True)
    write_stereo(batch.folder, "", [*images, image(99, "A/0020.png", (2.0, 0, 0))])
    ended = invoke("split", "--source", str(tmp_path), "--out", str(tmp_path / "patches"), "--grid", "2x1")
    assert ended.code == 0, ended.err
    after = read_partition(tmp_path / "patches/partition.json")
    assert after.test == before.test | {"B/0008.png", "A/0020.png"}
    assert after.train == before.train | {"B/0009.png"}


def test_a_partition_of_before_keeps_its_test_photographs_and_says_what_that_costs(tmp_path: Path) -> None:
    cut(stereo_batch(tmp_path, "folders"))
    path = tmp_path / "patches/partition.json"
    names = sorted(one.name for one in stereo())
    known = {"test": names[::8], "train": sorted({*names}.difference(names[::8]))}
    path.write_text(json.dumps(json.loads(path.read_text()) | known))
    ended = invoke("split", "--source", str(tmp_path), "--out", str(tmp_path / "patches"), "--grid", "2x1")
    assert "for 5 of them another photograph of the same moment is trained on" in ended.out + ended.err
    assert sorted(read_partition(path).test) == names[::8]


def test_a_block_is_of_whole_frames(tmp_path: Path) -> None:
    stereo_batch(tmp_path, "words")
    asked = ("--grid", "2x1", "--holdout-block", "0.12")
    invoke("split", "--source", str(tmp_path), "--out", str(tmp_path / "patches"), *asked)
    block = read_partition(tmp_path / "patches/partition.json").contiguous
    assert len(block) == 6
    assert twins_trained_on([one.name for one in stereo("words")], {*block}, stereo("words")) == []


def test_plan_has_no_word_of_frames_where_each_photograph_was_taken_alone(batch: FakeBatch) -> None:
    batch.make("p0")
    assert "held out" not in invoke("plan", batch=batch).out
    assert invoke("train", batch=batch).code == 0
    assert json.loads((batch.output / "patches/p0/result.json").read_text())["holdout"] == "frames"


@pytest.fixture
def of_old(tmp_path: Path) -> FakeBatch:
    """A batch of a rig whose photographs were held out by their names, trained by the version before frames."""
    shutil.copytree(ROOT / "tests/samples/rig-0.2.0", tmp_path / "rig")
    batch = FakeBatch(tmp_path / "rig", yaml.safe_load((tmp_path / "rig/splat_config.yml").read_text()))
    for path in batch.folder.rglob("*.*"):
        os.utime(path)  # as in a copy: the content has to tell
    return batch.script()


HELD_OUT_OF_OLD = {"p0": ["A/0000.png", "A/0008.png", "B/0004.png"], "p1": ["A/0016.png", "B/0012.png"]}


def test_a_batch_of_before_keeps_its_record_and_is_up_to_date(of_old: FakeBatch) -> None:
    ended = invoke("train", batch=of_old)
    assert (ended.code, "2 of 2 patches trained" in ended.out) == (0, True)
    assert {name: of_old.result(name)["photographs"]["held_out"] for name in HELD_OUT_OF_OLD} == HELD_OUT_OF_OLD
    assert not list(of_old.output.glob("patches/*/attempt-02"))


@pytest.mark.parametrize("patch", HELD_OUT_OF_OLD)
def test_a_patch_of_it_that_is_trained_again_holds_out_what_is_recorded(of_old: FakeBatch, patch: str) -> None:
    assert invoke("retry", patch, "--set", "training.seed=2", batch=of_old).code == 0
    told = json.loads((of_old.output / f"patches/{patch}/attempt-02/result.json").read_text())
    assert (told["photographs"]["held_out"], "holdout" in told) == (HELD_OUT_OF_OLD[patch], False)


def test_a_patch_of_it_that_was_never_trained_holds_out_what_the_others_do(of_old: FakeBatch) -> None:
    shutil.rmtree(of_old.output / "patches/p1")
    assert invoke("train", batch=of_old).code == 0
    assert of_old.result("p1")["photographs"]["held_out"] == HELD_OUT_OF_OLD["p1"]


def test_of_it_plan_and_report_say_that_twins_are_trained_on(of_old: FakeBatch) -> None:
    words = "5 of 40 photographs are held out; for 5 of them another photograph of the same moment is trained on"
    assert words in invoke("plan", batch=of_old).out
    invoke("train", batch=of_old)
    assert words in (of_old.output / "report.md").read_text()
