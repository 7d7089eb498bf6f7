"""A batch that is touched, copied and restored between any two commands is the same batch; one that changed is not."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from cut_batch import copy_of, trained
from fake_batch import FakeBatch
from moved_batch import MovedBatch, leave_figures
from PIL import Image
from sampled import each

from splatbatch import hashing, isolated
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.tasks.batch import open_batch

COMMANDS = ("plan", "status", "train", "retry", "merge")


@pytest.fixture(scope="module")
def merged_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    """Four patches with masks and a list of what is held out, trained, measured and merged."""
    batch = trained(tmp_path_factory.mktemp("moved") / "batch")
    (batch.folder / "masks").mkdir()
    Image.new("L", (32, 24), 255).save(batch.folder / "masks/img3.png.png")
    (batch.folder / "held.txt").write_text("img0.png\nimg8.png\n")
    batch.change(evaluation={"holdout_list": "held.txt"})
    assert batch.run("train").returncode == 0
    for number in range(4):
        put_measured(batch, f"p{number}", number)
    assert (batch.run("train").returncode, batch.run("merge").returncode) == (0, 0)
    return batch


def put_measured(batch: FakeBatch, patch: str, seed: int) -> None:
    """Make a splat of the whole scene, of 25 dB, what the latest attempt of a patch has left."""
    from cut_batch import put

    put(batch, patch, seed)
    place = batch.output / "patches" / patch
    result = json.loads((place / "result.json").read_text())
    figures = {"final": {"psnr": 25.0, "ssim": 0.9}}
    leave_figures(AttemptFolder(place / result["attempt"]), 25.0)
    shutil.copy2(place / "splat.ply", place / result["attempt"] / "splat.ply")
    for file in (place / "result.json", place / result["attempt"] / "result.json", *place.glob("accepted/*.json")):
        known = json.loads(file.read_text())
        file.write_text(json.dumps({**known, "splat": result["splat"], "metrics": figures}))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATBATCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(isolated, "DEFAULT_BACKEND", isolated.InProcessCalls)


def sequence(batch: FakeBatch, seed: int, steps: int = 5) -> None:
    moved, chosen = MovedBatch(batch, seed), random.Random(seed)
    for step in range(steps):
        command = chosen.choice(COMMANDS)
        moved.moves()
        assert getattr(moved, command)() == {}, f"seed {seed}, step {step}: {command}"
    assert moved.train() == {} == moved.status()
    see_a_tick(batch.folder / "tick")
    changed = replace_a_byte(moved)
    assert changed in " ".join(moved.plan().values()), f"seed {seed}: {changed} has changed"
    assert moved.train() == moved.plan()


def see_a_tick(path: Path) -> None:
    """Wait until the file system's clock goes on."""
    path.touch()
    first = path.stat().st_mtime_ns
    while path.stat().st_mtime_ns == first:
        path.write_bytes(b"")
    path.unlink()


def replace_a_byte(moved: MovedBatch) -> str:
    """Change the content of an input, its size as it was; return its name."""
    names = ("images/img3.png", "masks/img3.png.png", "patches/p1/sparse/0/points3D.txt")
    name = moved.random.choice(names)
    path = moved.fake.folder / name
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    return name.replace("patches/p1/sparse/0", "sparse")


@pytest.mark.parametrize("seed", each(5, range(5)))
def test_no_verdict_changes_where_files_are_touched_copied_and_restored(
    merged_once: FakeBatch, tmp_path: Path, cache: None, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 4:
        monkeypatch.setattr(hashing, "SETTLED_S", -60.0)  # what was read is known to the next command
    sequence(copy_of(merged_once, tmp_path / "batch"), seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 300))
def test_no_verdict_changes_in_200_sequences(
    merged_once: FakeBatch, tmp_path: Path, cache: None, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "SETTLED_S", -60.0 if seed % 2 else 5.0)
    sequence(copy_of(merged_once, tmp_path / "batch"), seed)


def test_what_a_newer_version_has_other_defaults_for_is_not_stale(merged_once: FakeBatch, tmp_path: Path) -> None:
    batch = copy_of(merged_once, tmp_path / "batch")
    for path in batch.output.glob("patches/p*/result.json"):
        record = json.loads(path.read_text())
        record["settings"]["training"].pop("sh_degree")
        record["settings"]["evaluation"]["a_word_of_then"] = 1
        path.write_text(json.dumps({**record, "version": "0.0.9", "recipe": "0" * 16, "effective": ""}))
        os.utime(path)
    opened = open_batch(batch.config)
    standing = opened.standing("content")
    assert {standing.state(name).reason for name in opened.names} == {"trained"}
