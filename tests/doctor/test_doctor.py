"""`doctor` on this machine, and its cheap part before a batch."""

from __future__ import annotations

import json
import resource
import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from command_line import invoke
from fake_batch import FakeBatch

from splatbatch.doctor import examination, inventory
from splatbatch.doctor.checks import TorchBuild
from splatbatch.doctor.preflight import preflight
from splatbatch.machine import gpu
from splatbatch.supervisor.ask import ask
from splatbatch.tasks.batch import open_batch

H200 = gpu.Gpu(0, "GPU-a", "NVIDIA H200", 143_771, (9, 0))
SAYS = "import json; print('noise'); print(json.dumps({'a': 1}))"

pytestmark = pytest.mark.skipif(bool(gpu.gpus()), reason="there is a GPU here")


@pytest.fixture
def quick_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for a torch that comes up, in no time."""
    monkeypatch.setattr(examination, "ask", lambda modules, *_: [{} for _ in modules])


def findings(*arguments: str, batch: FakeBatch | None = None) -> tuple[int, dict[str, dict[str, str]]]:
    ended = invoke("doctor", "--json", *arguments, batch=batch)
    facts = json.loads(ended.out)
    assert facts["exit_code"] == ended.code
    return ended.code, {one["check"]: one for one in facts["findings"]}


@pytest.mark.all
def test_without_a_config_the_machine_alone_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    look_at_the_machine(monkeypatch, tmp_path)


@pytest.mark.usefixtures("quick_torch")
def test_all_that_is_said_without_a_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    look_at_the_machine(monkeypatch, tmp_path)


def look_at_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPLATBATCH_CONFIG", raising=False)
    code, found = findings("--warm")
    assert code == 0
    assert {"versions", "driver", "torch", "shared memory", "open files", "extra web"} <= found.keys()
    assert "trains on the CPU" in found["driver"]["message"]
    assert found["cpu"]["message"] == "torch starts"
    assert "there is nothing to build" in found["build"]["message"]
    assert not {"disk", "forecast"} & found.keys()


@pytest.mark.usefixtures("quick_torch")
def test_every_line_has_its_state_and_what_is_not_ok_a_remedy(batch: FakeBatch) -> None:
    batch.make("p0", limits={"free_disk_mib": 1 << 40})
    ended = invoke("doctor", batch=batch)
    lines = ended.out.splitlines()
    assert ended.code == 5
    (at,) = (index for index, line in enumerate(lines) if line.startswith("problem  disk: "))
    assert lines[at + 1].strip() == "-> Free space, or choose another output.folder."
    assert any(line.startswith("ok       forecast: expected to take about 0:00:04") for line in lines)


@pytest.mark.usefixtures("quick_torch")
@pytest.mark.parametrize(
    ("sections", "check", "code"),
    [
        ({"executor": {"gpus": [99]}, "training": {"device": "auto"}}, "device", 5),
        ({"training": {"device": "auto", "max_steps": 30_000}}, "device", 4),
        (
            {"training": {"trainer": "other"}, "trainers": {"other": {"command": ["no-such-program"]}}},
            "trainer other",
            4,
        ),
    ],
)
def test_what_train_would_stop_at_is_a_problem(
    batch: FakeBatch, sections: dict[str, dict[str, object]], check: str, code: int
) -> None:
    ended, found = findings(batch=batch.make("p0", **sections))
    assert (ended, found[check]["state"]) == (code, "problem")


@pytest.mark.usefixtures("quick_torch")
def test_a_folder_that_cannot_be_written_is_a_problem(batch: FakeBatch) -> None:
    batch.make("p0", output={"folder": "in-the-way/below"})
    (batch.folder / "in-the-way").touch()
    assert findings(batch=batch)[1]["output folder"]["state"] == "problem"


@pytest.mark.contract
def test_torch_that_hangs_or_dies_is_a_finding(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    (batch.folder / "broken").mkdir()
    (batch.folder / "broken" / "torch.py").write_text("raise ImportError('libcudart.so.13: no such file')")
    batch.make("p0")
    monkeypatch.setenv("PYTHONPATH", str(batch.folder / "broken"))
    code, found = findings(batch=batch)
    assert (code, "libcudart.so.13: no such file" in found["torch"]["message"]) == (4, True)


@pytest.mark.contract
@pytest.mark.parametrize(
    ("code", "said"),
    [
        (SAYS, {"a": 1}),
        ("raise RuntimeError('no luck')", "exit code 1: RuntimeError: no luck"),
        ("import os; os.kill(os.getpid(), 11)", "ended by signal 11"),
        ("import time; time.sleep(60)", "no answer within 2 s"),
    ],
)
def test_who_is_asked_answers_in_time_or_not_at_all(tmp_path: Path, code: str, said: dict[str, int] | str) -> None:
    (tmp_path / "asked.py").write_text(code)
    started = time.monotonic()
    both = ask([["asked"], ["asked"]], 2, {"PYTHONPATH": str(tmp_path)})
    assert both == [said] * 2
    assert time.monotonic() - started < 10


def test_the_look_before_the_first_patch_takes_no_time(batch: FakeBatch) -> None:
    opened = open_batch(batch.make("p0").config)
    preflight(opened.config, {}, {})
    started = time.process_time()
    preflight(opened.config, {}, {})
    assert time.process_time() - started < 0.3


def test_train_says_at_its_start_which_extra_the_yaml_needs(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(inventory, "version", version)
    batch.make("p0").change(scene={"crs": "EPSG:32632"})
    batch.script(p0=["train"])
    said = batch.run("train")
    [found] = batch.events("unwell")
    assert (found["check"], said.returncode) == ("extra geo", 0)
    assert found["message"].endswith("(scene.crs). Run pip install 'splatbatch[geo]'.")
    assert f"extra geo: {found['message']}" in said.stdout + said.stderr


def test_plan_says_which_extra_the_yaml_needs(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "versions", lambda _: {})
    batch.make("p0").change(tracking={"mlflow": "sqlite:///runs.db"})
    ended = invoke("plan", batch=batch)
    assert "extra mlflow: not installed, and the YAML asks for it: tracking.mlflow. Run pip install" in ended.err


def test_a_torch_that_the_driver_cannot_run_stops_train_before_the_first_patch(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "gpus", lambda: (H200,))
    monkeypatch.setattr(gpu, "cuda_version", lambda: (12, 4))
    monkeypatch.setattr(inventory, "torch_build", lambda: TorchBuild("2.11.0+cu130", (13, 0)))
    ended = invoke("train", batch=batch.make("p0", training={"device": "cuda"}))
    assert ended.code == 5
    assert "the driver is too old: it runs CUDA up to 12.4" in ended.err
    assert not (batch.output / "patches/p0/attempt-01").exists()


def test_what_does_not_keep_patches_from_being_trained_is_one_line(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    ended = invoke("train", batch=batch.make("p0"))
    assert ended.code == 0
    assert ended.err.index("open files: a process may open 1024") < ended.err.index("attempt 1 started")
