"""The same promises with the real trainer on the CPU, on a scene of noise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from fake_batch import write_model

from splatbatch.files import read_json

if TYPE_CHECKING:
    from fake_batch import FakeBatch

pytestmark = pytest.mark.slow


def start(batch: FakeBatch, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "splatbatch", "train", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, env=batch.environment(), text=True, **pipes)


def test_a_corrupt_photograph_fails_its_patch_alone_and_is_named(batch: FakeBatch) -> None:
    batch.make("p0", training={"max_steps": 5})
    write_model(batch.folder / "patches/p1/sparse/0", [f"img{i}.png" for i in range(4)])
    photo = batch.folder / "images/img7.png"
    photo.write_bytes(photo.read_bytes()[:200])
    process = start(batch, "--no-verify")
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "p0: failed: corrupt_image" in said
    assert batch.result("p1")["attempt"] == "attempt-01"
    assert any("img7.png" in line for line in batch.events("attempt_ended")[0]["diagnosis"]["evidence"])


def test_a_trainer_killed_in_mid_run_is_trained_by_the_next_attempt(batch: FakeBatch) -> None:
    batch.make("p0", training={"max_steps": 60})
    process = start(batch)
    heartbeat = batch.output / "patches/p0/attempt-01/heartbeat.json"
    deadline = time.monotonic() + 60
    while not (child := (read_json(heartbeat) or {}).get("child")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(int(child), signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert batch.result("p0")["attempt"] == "attempt-02"


def test_a_trainer_killed_after_a_checkpoint_goes_on_from_it(batch: FakeBatch) -> None:
    batch.make("p0", training={"max_steps": 200, "checkpoint_every": 50})
    process, first = start(batch), batch.output / "patches/p0/attempt-01"
    deadline = time.monotonic() + 60
    while not (first / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(int((read_json(first / "heartbeat.json") or {})["child"]), signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert batch.result("p0")["metrics"]["resumed_from"]["step"] >= 50
    assert not list(batch.output.rglob("checkpoint.pt"))
