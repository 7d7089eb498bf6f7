"""The same promises with the real trainer on the CPU, on a scene of noise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import yaml
from fake_batch import QUARRY, write_model
from process_family import may_unshare, wait_until

from splatbatch.files import read_json, read_lines

if TYPE_CHECKING:
    from fake_batch import FakeBatch

pytestmark = pytest.mark.all


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
    assert "p0: a photograph is damaged (corrupt_image)" in said
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


def quarry_of(batch: FakeBatch) -> FakeBatch:
    """Have a batch train the first patch of the quarry."""
    settings = yaml.safe_load((QUARRY / "splat_config.yml").read_text())
    settings["scene"] = {key: str(QUARRY / place) for key, place in settings["scene"].items()}
    settings["training"] |= {"max_steps": 150, "device": "cpu", "resolution": "1/8", "colors": "as_is"}
    settings |= {"output": {"folder": str(batch.output), "previews_mib": 0}}
    batch.config.write_text(yaml.safe_dump(settings))
    return batch


def start_on(host: str, batch: FakeBatch) -> subprocess.Popen[bytes]:
    """Start a worker with the real trainer on a host name of its own."""
    command = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host]
    command += [sys.executable, "-m", "splatbatch", "work", "p0"]
    return subprocess.Popen(command, env=batch.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def last_step(batch: FakeBatch) -> int:
    """Return the last step that the first attempt has told of."""
    lines = read_lines(batch.output / "patches/p0/attempt-01/progress.jsonl")
    return max((line["step"] for line in lines if line.get("loss") is not None), default=0)


@pytest.mark.skipif(not QUARRY.exists(), reason="examples/quarry is not here")
@pytest.mark.skipif(not may_unshare(), reason="needs a host name of its own: unshare --uts")
def test_what_a_worker_told_to_stop_has_trained_another_host_does_not_train_again(
    batch: FakeBatch, record_property: pytest.RecordProperty
) -> None:
    first = start_on("far-a", quarry_of(batch))
    wait_until(lambda: first.poll() is not None or last_step(batch))
    told_at, began = last_step(batch), time.monotonic()
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 75
    gone_s = time.monotonic() - began
    assert start_on("far-b", batch).wait(180) == 0
    resumed, host = batch.result("p0")["metrics"]["resumed_from"], batch.result("p0")["host"]
    assert (resumed["attempt"], host) == ("attempt-01", "far-b")
    assert resumed["step"] >= told_at > 0
    assert gone_s < 30
    then = f"goes on elsewhere at {resumed['step']}"
    record_property("figure", f"told at step {told_at}, gone {gone_s:.1f} s later, {then}")
