"""On a real GPU: who stands by has its context ready, patches follow each other closely, and several share the card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from given_card import given_card

from splatbatch.files import read_lines
from splatbatch.machine import gpu
from splatbatch.machine.mps import DAEMON
from splatbatch.machine.slots import CONTEXT_MIB

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.alone,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]
QUARRY = Path(__file__).parents[2] / "examples/quarry"


def train(folder: Path, steps: int = 600, cooldown: dict[str, float] | None = None, **executor: Any) -> float:
    """Train the quarry on one GPU; return the seconds it took."""
    settings = {
        "scene": {"patches": str(QUARRY / "patches"), "images": str(QUARRY / "images")},
        "training": {"max_steps": steps, "device": "cuda"},
        "executor": {"gpus": [given_card().index], "patches_per_gpu": 1, **executor},
        "cooldown": cooldown or {},
    }
    config = folder / "splat_config.yml"
    config.write_text(yaml.safe_dump(settings))
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "splatbatch", "train", "--config", str(config)], check=True)
    return time.monotonic() - started


def times(folder: Path, patch: str) -> tuple[float, float, list[str]]:
    """Return when a patch made its first and its last step, and its phases."""
    records = list(read_lines(folder / f"output/patches/{patch}/attempt-01/progress.jsonl"))
    steps = [record["t"] for record in records if "loss" in record]
    return steps[0], steps[-1], list(dict.fromkeys(record["phase"] for record in records))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Train one patch after the other; return where, and how many MiB more than before are in use afterwards."""
    folder, before = tmp_path_factory.mktemp("standby"), gpu.sample(given_card().uuid).used_mib or 0
    train(folder, 3000)
    return folder, (gpu.sample(given_card().uuid).used_mib or 0) - before


def test_a_patch_that_stood_by_begins_soon_after_the_one_before(trained: tuple[Path, int]) -> None:
    folder, more_mib = trained
    _, ended, _ = times(folder, "p0")
    began, _, phases = times(folder, "p1")
    assert "standby" in phases
    assert began - ended < 2.0
    assert abs(more_mib) <= 8


def test_a_standby_opens_its_context_beside_the_training_and_begins_within_a_third_of_a_second(
    trained: tuple[Path, int],
) -> None:
    folder, _ = trained
    attempt = folder / "output/patches/p1/attempt-01"
    go = json.loads((attempt / "go.json").read_text())["at"]
    records = list(read_lines(attempt / "progress.jsonl"))
    assert json.loads((attempt / "ahead.json").read_text())["at"] < go
    assert next(record["t"] for record in records if record["phase"] == "train") - go < 0.6


def test_a_context_ahead_of_its_turn_takes_no_more_than_the_gate_allows_for(trained: tuple[Path, int]) -> None:
    folder, _ = trained
    _, ended, _ = times(folder, "p0")
    samples = list(read_lines(folder / "output/patches/p0/attempt-01/gpu.jsonl"))
    used = [sample["used_mib"] for sample in samples if sample["t"] < ended]
    own = max(sum(one for one in sample["process_mib"] if one) for sample in samples)
    print(f"used on the card: {used}; of processes: {own} MiB")
    told = json.loads((folder / "output/patches/p0/attempt-01/exit.json").read_text())["own_gpu_peak_mib"]
    assert told is None or max(used) - min(used) < told + CONTEXT_MIB


def test_a_gpu_that_is_to_rest_is_touched_by_nobody_ahead_of_its_turn(tmp_path: Path) -> None:
    train(tmp_path, 600, cooldown={"floor_s": 0.5}, patches_per_gpu="auto")
    assert not list(tmp_path.glob("output/patches/*/attempt-01/ahead.json"))


@pytest.mark.parametrize("has_mps", [True, False], ids=["mps", "no mps"])
def test_two_patches_share_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_mps: bool) -> None:
    if not has_mps:
        (tmp_path / DAEMON).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / DAEMON).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    train(tmp_path, 3000, patches_per_gpu="auto")
    (began, ended, _), (other_began, other_ended, _) = (times(tmp_path, patch) for patch in ("p0", "p1"))
    assert max(began, other_began) < min(ended, other_ended)
    events = [json.loads(line) for line in (tmp_path / "output/ledger/local.jsonl").read_text().splitlines()]
    assert [event["outcome"] for event in events if event["event"] == "attempt_ended"] == ["trained", "trained"]
