"""No night is spent on the CPU in silence: a GPU that is there is used or missed aloud, a long CPU run asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import invoke
from fake_batch import FakeBatch

from splatbatch.config import load
from splatbatch.machine import gpu

LONG = {"max_steps": 30_000, "device": "auto", "cap_max": 1_000_000}
MISMATCH = "Driver/library version mismatch"
H200 = gpu.Gpu(0, "GPU-a", "NVIDIA H200", 143_771, (9, 0))

pytestmark = pytest.mark.skipif(bool(gpu.gpus()), reason="there is a GPU here")


@pytest.fixture
def broken_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    monkeypatch.setattr(gpu, "DEVICE_FILES", tmp_path / "dev")
    monkeypatch.setattr(gpu, "_query", lambda: ((), MISMATCH))


@pytest.mark.parametrize("command", ["train", "plan"])
def test_auto_does_not_spend_a_night_on_the_cpu_unasked(batch: FakeBatch, command: str) -> None:
    ended = invoke(command, batch=batch.make("p0", training=LONG))
    assert ended.code == 4, ended.err
    for word in ("no NVIDIA GPU was found", "about 14:4", "30,000 steps", "training.device: cpu"):
        assert word in ended.err
    assert not (batch.output / "patches" / "p0" / "attempt-01").exists()


def test_the_cpu_is_taken_for_as_long_as_it_likes_once_it_is_asked_for(batch: FakeBatch) -> None:
    batch.make("p0", training=LONG | {"device": "cpu"}).script(p0=["train"])
    assert invoke("plan", batch=batch).code == 0
    ended = invoke("train", batch=batch)
    assert ended.code == 0, ended.err
    assert ended.err.index("expected to take about") < ended.err.index("attempt 1 started")


@pytest.mark.parametrize("consent", [{"training.device": "cpu"}, {"gpus": []}])
def test_both_ways_to_ask_for_the_cpu_are_understood(batch: FakeBatch, consent: dict[str, object]) -> None:
    batch.make("p0", training=LONG, executor={"gpus": consent["gpus"]} if "gpus" in consent else {})
    options = [f"--set={key}={value}" for key, value in consent.items() if key != "gpus"]
    assert invoke("retry", "-p", "p0", *options, batch=batch).code == 0


def test_a_short_run_goes_to_the_cpu_by_itself_and_says_so(batch: FakeBatch) -> None:
    ended = invoke("train", batch=batch.make("p0", "p1", training={"device": "auto"}))
    assert ended.code == 0, ended.err
    assert "expected to take about 0:00:08: 2 patches of 20 steps, on the CPU, based on benchmarks" in ended.err


@pytest.mark.parametrize("device", ["auto", "cuda"])
@pytest.mark.parametrize("command", [["train"], ["plan"], ["train", "--dry-run"]])
@pytest.mark.usefixtures("broken_driver")
def test_a_gpu_that_is_there_and_does_not_answer_ends_with_5(batch: FakeBatch, device: str, command: list[str]) -> None:
    ended = invoke(*command, batch=batch.make("p0", training={"device": device}))
    assert ended.code == 5, ended.err
    for word in ("dev/nvidia0", MISMATCH, "hint: ", "splatbatch doctor"):
        assert word in ended.err


@pytest.mark.usefixtures("broken_driver")
def test_a_broken_driver_does_not_matter_to_who_asked_for_the_cpu(batch: FakeBatch) -> None:
    assert invoke("train", batch=batch.make("p0")).code == 0


@pytest.mark.parametrize("command", [["plan"], ["train", "--dry-run"], ["plan", "--json"]])
def test_a_gpu_that_is_not_there_is_noticed_by_plan(batch: FakeBatch, command: list[str]) -> None:
    ended = invoke(*command, batch=batch.make("p0", training={"device": "auto"}, executor={"gpus": [99]}))
    assert ended.code == 5
    assert "executor.gpus: [99]: no such GPU" in ended.err
    assert "p0" in ended.out


def test_what_is_trained_already_needs_no_gpu(batch: FakeBatch) -> None:
    batch.make("p0").run("train")
    batch.change(executor={"gpus": [99]})
    assert invoke("plan", batch=batch).code == 0


@pytest.mark.parametrize(
    ("name", "basis"),
    [
        ("NVIDIA H200", "based on the speed of an H200"),
        ("NVIDIA GeForce RTX 4090", "estimated from the speed of an H200; other GPUs differ"),
    ],
)
def test_plan_says_how_long_a_gpu_will_take_and_by_whose_pace(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, name: str, basis: str
) -> None:
    monkeypatch.setattr(gpu, "gpus", lambda: (replace(H200, name=name),))
    ended = invoke("plan", "--json", batch=batch.make("p0", training=LONG))
    assert ended.code == 0, ended.err
    forecast = json.loads(ended.out)["forecast"]
    assert 10 < forecast["seconds"] < 60
    assert forecast["basis"] == basis


def test_figures_of_a_gpu_say_nothing_of_the_cpu(batch: FakeBatch) -> None:
    batch.make("p0", "p1").run("train", "p0")
    result = batch.result("p0")
    result["metrics"] = {"made_with": {"on": "NVIDIA H200"}}
    (batch.output / "patches/p0/result.json").write_text(json.dumps(result))
    assert "based on benchmarks on CPUs" in invoke("plan", batch=batch).out


@pytest.mark.parametrize(("traces", "device"), [((), "auto"), (("dev/nvidia0",), "cuda"), (("proc",), "cuda")])
def test_init_demands_a_gpu_where_one_is(
    batch: FakeBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, traces: tuple[str, ...], device: str
) -> None:
    for name, constant in (("dev", "DEVICE_FILES"), ("proc", "DRIVER_FILES")):
        monkeypatch.setattr(gpu, constant, tmp_path / name)
    for trace in traces:
        (tmp_path / trace).mkdir(parents=True)
    batch.make("p0").config.unlink()
    assert invoke("init", str(batch.folder)).code == 0
    assert load(batch.config).training.device == device
