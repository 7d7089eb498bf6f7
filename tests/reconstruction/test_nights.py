"""Photographs reconstructed by real processes: to the end, again, cut off, by two, and where nothing fits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import Ended, invoke
from geotagged import QUARRY, geotagged, quarry
from PIL import Image

NAMES = [f"left/{number:04d}.jpg" for number in range(1, 9)]
COMMAND = (sys.executable, "-m", "splatbatch", "reconstruct")


def reconstruct(images: Path, out: Path, *options: str) -> Ended:
    return invoke("reconstruct", str(images), "--out", str(out), "--features", "1024", *options)


def attempts(out: Path) -> dict[str, int]:
    stages = (out / "reconstruction/patches").iterdir()
    return {one.name: len([*one.glob("attempt-*")]) for one in stages}


def told(out: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((out / "reconstruction.json").read_text())
    return found


@pytest.mark.all
def test_photographs_become_a_model_and_again_only_what_has_changed(tmp_path: Path) -> None:
    geotagged(images := tmp_path / "photos", NAMES, noise_m=0.1)
    first = reconstruct(images, out := tmp_path / "out")
    assert first.code == 0 and "8 of 8 photographs registered" in first.out and "0 errors" in first.out
    assert (out / "sparse/0/cameras.bin").exists() and len([*(out / "images").rglob("*.jpg")]) == 8
    report = (out / "reconstruction/report.html").read_text()
    assert report.count("<circle") >= 8 and "5 of 5 stages done" in report
    before = attempts(out)
    assert reconstruct(images, out).code == 0 and attempts(out) == before
    shutil.rmtree(out / "images")
    assert reconstruct(images, out).code == 0 and attempts(out) == before | {"model": 2}


@pytest.mark.all
def test_a_worker_that_is_killed_costs_no_finished_stage(tmp_path: Path) -> None:
    quarry(images := tmp_path / "photos", NAMES)
    out = tmp_path / "out"
    words = (*COMMAND, str(images), "--out", str(out), "--features", "1024")
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True)
    while not (out / "reconstruction/patches/pairs/made.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert reconstruct(images, out).code == 0
    assert told(out)["registered"] == 8 and attempts(out)["features-1"] == attempts(out)["pairs"] == 1


@pytest.mark.all
def test_two_workers_share_the_stages(tmp_path: Path) -> None:
    words = (*COMMAND, str(QUARRY / "images"), "--out", str(tmp_path / "out"), "--features", "512", "--threads", "1")
    running = [subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [one.wait(120) for one in running] == [0, 0]
    assert set(attempts(tmp_path / "out").values()) == {1}
    jobs = (tmp_path / "out/reconstruction/patches").glob("*/attempt-01/job.json")
    assert len({json.loads(one.read_text())["claim"]["worker"] for one in jobs}) == 2


@pytest.mark.all
def test_photographs_that_have_nothing_in_common_are_tried_once(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for number in range(4):
        small = random.integers(0, 255, (15, 20, 3), dtype=np.uint8)
        Image.fromarray(small).resize((320, 240)).save(tmp_path / f"photos/{number}.jpg")
    ended = reconstruct(tmp_path / "photos", tmp_path / "out")
    assert ended.code == 1 and "do they show one place" in ended.err and "(no_initial_pair)" in ended.err
    assert attempts(tmp_path / "out")["mapping"] == 1
    report = (tmp_path / "out/reconstruction/report.md").read_text()
    assert f"splatbatch reconstruct {tmp_path}/photos --out {tmp_path}/out --features 1024" in report
    assert "- model:" not in report  # it only waits for the mapping


def cut_from_one(folder: Path, step_px: int) -> Path:
    """Cut four photographs out of one: the camera turns, and stays where it is."""
    folder.mkdir()
    with Image.open(QUARRY / "images/left/0001.jpg") as image:
        for number in range(4):
            left = step_px * number
            image.crop((left, 0, 240 + left, 240)).save(folder / f"{number}.jpg", quality=95)
    return folder


@pytest.mark.all
def test_photographs_from_one_place_climb_the_ladder_of_initial_pairs(tmp_path: Path) -> None:
    ended = reconstruct(cut_from_one(tmp_path / "photos", 2), tmp_path / "out")
    assert ended.code == 1 and "(no_initial_pair)" in ended.err
    assert attempts(tmp_path / "out")["mapping"] == 3  # as it is, and each rung


@pytest.mark.all
def test_a_camera_that_has_not_moved_is_told_at_once(tmp_path: Path) -> None:
    ended = reconstruct(cut_from_one(tmp_path / "photos", 1), tmp_path / "out")
    assert ended.code == 1 and "the camera has hardly moved" in ended.err.lower()
    assert attempts(tmp_path / "out")["mapping"] == 1 and "model:" not in ended.err.splitlines()[-1]


CRASHES = """
import pycolmap, os, signal
usual = pycolmap.extract_features
def crashing(path, images, names, **more):
    if "0000002.jpg" in names:
        os.kill(os.getpid(), signal.SIGSEGV)
    usual(path, images, names, **more)
pycolmap.extract_features = crashing
"""


@pytest.mark.all
def test_a_photograph_that_crashes_the_decoder_is_found_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarry(images := tmp_path / "photos", NAMES)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(CRASHES)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{os.environ.get('PYTHONPATH', '')}")
    ended = reconstruct(images, out := tmp_path / "out")
    assert ended.code == 0 and told(out)["registered"] == 7
    assert told(out)["missing"] == {"left/0003.jpg": "decoding this photograph crashed the process"}


@pytest.mark.all
def test_a_photograph_that_is_cut_off_is_left_out_by_name(tmp_path: Path) -> None:
    quarry(images := tmp_path / "photos", NAMES)
    cut = images / NAMES[3]
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    ended = reconstruct(images, out := tmp_path / "out")
    assert ended.code == 0 and told(out)["registered"] == 7 and not (out / "images" / NAMES[3]).exists()
    assert "cannot be read: image file is truncated" in told(out)["missing"][NAMES[3]]  # type: ignore[index]


def test_a_model_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    quarry(images := tmp_path / "photos", NAMES)
    (tmp_path / "out/sparse").mkdir(parents=True)
    ended = reconstruct(images, tmp_path / "out")
    assert ended.code == 6 and "was not made by splatbatch reconstruct" in ended.err


def test_a_dry_run_says_what_it_takes_and_writes_nothing(tmp_path: Path) -> None:
    quarry(images := tmp_path / "photos", NAMES)
    ended = reconstruct(images, tmp_path / "out", "--dry-run")
    assert "8 photographs; about 28 pairs" in ended.out and "5 stages, each needs at most" in ended.out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--mapper", "globl"), "global"),
        (("--camera", "FISH"), "--camera FISH"),
        (("--rig", "left"), "two or more folders"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    ended = reconstruct(quarry(tmp_path / "photos", NAMES), tmp_path / "out", *options)
    assert ended.code == 2 and said in ended.err


def test_scene_wants_a_model_or_photographs(tmp_path: Path) -> None:
    ended = invoke("scene", "--out", str(tmp_path / "out"))
    assert ended.code == 2 and "--source or --images is required" in ended.err


QUICK = (
    *("training.max_steps=10", "training.strategy=default", "training.cap_max=4000", "training.init_opacity=0.5"),
    *("training.resolution=1/8", "training.device=cpu", "retry.max_attempts=1"),
)


@pytest.mark.long
def test_scene_makes_a_splat_of_photographs_alone(tmp_path: Path) -> None:
    words = ("scene", "--images", str(QUARRY / "images"), "--out", str(tmp_path / "out"))
    ended = invoke(*words, "--", *QUICK)
    assert ended.code == 0 and "32 of 32 photographs registered" in ended.out
    assert (tmp_path / "out/output/scene/splat.ply").exists()


DATA = Path(os.environ.get("SPLATBATCH_DATA", "/work/shared/data"))


@pytest.mark.long
@pytest.mark.skipif(not (DATA / "caliterra-raw").is_dir(), reason="caliterra-raw is not here ($SPLATBATCH_DATA)")
def test_a_survey_of_75_distorted_photographs_registers_and_is_straightened(tmp_path: Path) -> None:
    ended = invoke("reconstruct", str(DATA / "caliterra-raw/images"), "--out", str(tmp_path / "out"))
    found = told(tmp_path / "out")
    assert ended.code == 0 and found["registered"] >= 74 and found["reprojection_px"] <= 0.7  # type: ignore[operator]
