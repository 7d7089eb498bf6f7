"""What sweeps and lists of scenes were made for: combinations, all of which finish, and thirteen data sets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crowded_trainer
import numpy as np
import pytest
import yaml
from command_line import invoke
from fake_batch import QUARRY, write_model
from PIL import Image

from splatbatch.config import load

if TYPE_CHECKING:
    from fake_batch import FakeBatch

NAMES = [f"img{i}.png" for i in range(9)]
SIZE = (64, 48)
QUICK = {"max_steps": 6, "device": "cpu", "workers": 16, "cap_max": 4000, "init_opacity": 0.3, "resolution": "1/4"}
STRATEGIES = ["default", "mcmc"]
SOME, ALL = [0.0, 0.2], [0.0, 0.1, 0.2, 0.4]
"""Weights of SSIM: each, with each strategy, is a training of our own trainer."""


def rows(report: Path, first: str) -> list[list[str]]:
    """Return the cells of the table in a Markdown report whose first heading is `first`, without headings."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in report.read_text().splitlines()]
    start = next(number for number, cells in enumerate(lines) if cells[0] == first)
    return list(takewhile(lambda cells: len(cells) > 1, lines[start + 2 :]))


@pytest.fixture(scope="module")
def quarry(weights: list[float], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train combinations of the example scene with our own trainer; one crashes until it has fewer workers."""
    folder = tmp_path_factory.mktemp("quarry")
    settings: dict[str, Any] = {
        "scene": {"patches": str(QUARRY / "patches/p0"), "images": str(QUARRY / "images")},
        "training": QUICK,
        "sweep": {"matrix": {"training.ssim_lambda": weights, "training.strategy": STRATEGIES}},
        "executor": {"cpu_slots": 2, "gpus": []},
    }
    (folder / "splat_config.yml").write_text(yaml.safe_dump(settings))
    crowded = f"p0@{list(load(folder / 'splat_config.yml').variants)[2]}"
    command = [sys.executable, crowded_trainer.__file__, "train", "--config", str(folder / "splat_config.yml")]
    ended = subprocess.run(command, env=os.environ | {"CROWDED": crowded}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder / "output"


@pytest.fixture(scope="module", params=[SOME, pytest.param(ALL, marks=pytest.mark.long)], ids=["four", "eight"])
def weights(request: pytest.FixtureRequest) -> list[float]:
    return request.param


@pytest.mark.all
def test_all_combinations_finish_and_the_crashed_one_with_fewer_workers(quarry: Path, weights: list[float]) -> None:
    report, number = json.loads((quarry / "report.json").read_text()), 2 * len(weights)
    assert report["summary"] == f"{number} of {number} splats trained"
    assert sorted(len(patch["attempts"]) for patch in report["patches"]) == [1] * (number - 1) + [3]
    changed = [patch for patch in report["patches"] if patch["changes"]]
    assert [patch["changes"] for patch in changed] == [{"training.workers": 4}]
    assert [attempt["cause"] for attempt in changed[0]["attempts"]] == ["segfault", "segfault", ""]


@pytest.mark.all
def test_the_table_of_a_sweep_says_what_its_files_say(quarry: Path, weights: list[float]) -> None:
    sweep = json.loads((quarry / "report.json").read_text())["sweep"]
    measured = {}
    for row in sweep["variants"]:
        result = json.loads((quarry / f"patches/p0@{row['variant']}/result.json").read_text())
        assert row["mean"]["psnr"] == result["metrics"]["final"]["psnr"]
        assert (row["mean"]["num_gaussians"], row["mean"]["bytes"]) == (result["num_gaussians"], result["bytes"])
        assert row["mean"]["psnr_covered"] == result["metrics"]["final"]["psnr_covered"]
        measured[row["variant"]] = row["mean"]["psnr_covered"]
    assert sweep["best"]["psnr_covered"] == max(measured, key=lambda name: measured[name])
    combinations = {tuple(row["settings"].values()) for row in sweep["variants"]}
    assert combinations == {(weight, strategy) for weight in weights for strategy in STRATEGIES}
    written = rows(quarry / "report.md", "variant")
    assert [cells[4] for cells in written] == [
        f"**{psnr:.2f}**" if name == sweep["best"]["psnr_covered"] else f"{psnr:.2f}" for name, psnr in measured.items()
    ]


STRIPES = Image.fromarray(np.random.default_rng(0).integers(0, 255, (SIZE[1], 1, 3), np.uint8)).resize(SIZE)
"""Along the way of the cameras: all of them show the same at a track."""


def make_scenes(folder: Path, kinds: dict[str, tuple[int, ...]]) -> None:
    """Make scenes by name, each with its photographs at these divisors: images, images_2, …"""
    for name, divisors in kinds.items():
        write_model(folder / name / "sparse/0", NAMES, size=SIZE)
        for divisor in divisors:
            images = folder / name / ("images" if divisor == 1 else f"images_{divisor}")
            images.mkdir()
            striped = STRIPES.resize((SIZE[0] // divisor, SIZE[1] // divisor), Image.Resampling.BOX)
            for number, photograph in enumerate(NAMES):  # the same of another brightness: no picture twice
                striped.point(lambda value, gain=1 - 0.03 * number: int(gain * value)).save(images / photograph)


@pytest.mark.all
def test_thirteen_data_sets_are_one_command(batch: FakeBatch) -> None:
    kinds: dict[str, tuple[int, ...]] = {f"set{i}": (1, 8) for i in range(9)}
    kinds |= {"set9": (1,), "set10": (1, 2), "set11": (1, 4), "set12": (4,)}
    make_scenes(batch.folder / "data", kinds)
    batch.settings = {
        "scene": {"scenes": "data/*"},
        "training": {"max_steps": 20, "device": "cpu", "resolution": "1/8"},
        "executor": {"cpu_slots": 2},
        "patches": {"set3": {"training": {"resolution": "1/2", "cap_max": 500}}},
    }
    batch.change()
    batch.script(**{name: [f"measure {20 + i}"] for i, name in enumerate(kinds)})
    ended = invoke("train", batch=batch)
    assert (ended.code, ended.out.splitlines()[0]) == (0, "13 of 13 patches trained")
    table = {cells[0]: cells for cells in rows(batch.output / "report.md", "patch")}
    assert list(table) == [f"set{i}" for i in range(13)]
    assert all(all(cells[:8]) for cells in table.values())
    used = {name: cells[2] for name, cells in table.items()}
    assert {used[f"set{i}"] for i in range(9) if i != 3} == {"1/8, 8x6, images_8"}
    assert (used["set3"], used["set9"], used["set12"]) == ("1/2, 32x24", "1/8, 8x6", "1/8, 8x6, images_4")
    assert table["set12"][3] == "32.00 (10.00)"


@pytest.mark.all
def test_scenes_with_and_without_small_copies_are_trained_by_our_own_trainer(batch: FakeBatch) -> None:
    make_scenes(batch.folder / "data", {"both": (1, 4), "full": (1,), "small": (4,)})
    batch.settings = {
        "scene": {"scenes": ["data/both", "data/full", "data/small"]},
        "training": {"max_steps": 20, "device": "cpu", "resolution": "1/4"},
        "executor": {"cpu_slots": 2, "gpus": []},
    }
    batch.change()
    command = [sys.executable, "-m", "splatbatch", "train"]
    ended = subprocess.run(command, env=batch.environment(), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    used = {cells[0]: cells[2] for cells in rows(batch.output / "report.md", "patch")}
    assert used == {"both": "1/4, 16x12, images_4", "full": "1/4, 16x12", "small": "1/4, 16x12, images_4"}
