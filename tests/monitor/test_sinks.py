"""Sinks: a batch is written down elsewhere, too; what fails there never harms it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from splatbatch.config import Tracking
from splatbatch.errors import MissingPartError
from splatbatch.monitor.sinks import MlflowSink, Sinks, mlflow_sink
from splatbatch.store.events import AttemptEnded, Event
from splatbatch.store.layout import OutputFolder

if TYPE_CHECKING:
    from fake_batch import FakeBatch

CLIENT = os.environ.get("SPLATBATCH_MLFLOW_PYTHON", sys.executable if find_spec("mlflow") else "")
"""A Python that has MLflow: this one, or that of a venv of its own, which then sees this one's packages."""
needs_mlflow = pytest.mark.skipif(
    not CLIENT, reason="MLflow is not installed: pip install 'splatbatch[mlflow]', or name a Python that has it in"
    " SPLATBATCH_MLFLOW_PYTHON"
)  # fmt: skip
READ = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
found = []
for experiment in client.search_experiments():
    for run in client.search_runs([experiment.experiment_id]):
        data, info = run.data, run.info
        curve = [(one.step, one.value) for one in client.get_metric_history(info.run_id, "loss")]
        files = [one.path for one in client.list_artifacts(info.run_id)]
        found.append({"experiment": experiment.name, "id": info.run_id, "status": info.status, "tags": data.tags,
                      "params": data.params, "metrics": data.metrics, "loss": curve, "files": files})
print(json.dumps(found))
"""


@pytest.fixture
def with_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sink find the client, wherever that is installed."""
    ours = f"{Path(__file__).parents[2]}:{':'.join(path for path in sys.path if path.endswith('site-packages'))}"
    monkeypatch.setattr(mlflow_sink, "find_spec", lambda _: True)
    monkeypatch.setattr(mlflow_sink, "PROGRAM", (CLIENT, *mlflow_sink.PROGRAM[1:]))
    if sys.executable != CLIENT:
        monkeypatch.setenv("PYTHONPATH", ours)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def runs(store: Path) -> list[dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": ""}
    command = [CLIENT, "-c", READ, store.as_uri()]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout)


@needs_mlflow
@pytest.mark.slow
def test_mlflows_own_client_reads_a_run_per_attempt_below_one_of_the_batch(batch: FakeBatch, with_client: None) -> None:
    batch.make("p0", "p1", tracking={"mlflow": "file:mlruns", "experiment": "reef"})
    batch.script(
        p0=["exit 1 CUDA error: out of memory", "train"], p1=["exit 1 ModuleNotFoundError: No module named 'x'"]
    )
    assert batch.run("train").returncode == 1
    found = runs(batch.folder / "mlruns")
    by_name = {run["tags"]["mlflow.runName"]: run for run in found}
    parent = by_name.pop(batch.folder.name)
    assert by_name.keys() == {"p0/1", "p0/2", "p1/1"}
    assert {run["tags"]["mlflow.parentRunId"] for run in by_name.values()} == {parent["id"]}
    assert {name: run["status"] for name, run in by_name.items()} == {
        "p0/1": "FAILED",
        "p0/2": "FINISHED",
        "p1/1": "FAILED",
    }
    assert by_name["p1/1"]["tags"]["splatbatch.cause"] == "missing_dependency"
    assert by_name["p0/2"]["params"]["training.max_steps"] == "20"
    assert by_name["p0/1"]["params"] != by_name["p0/2"]["params"]  # the rung that was taken
    assert by_name["p0/2"]["loss"]
    assert by_name["p0/2"]["metrics"]["final_num_gaussians"] == 10
    assert {"train.log", "exit.json"} <= set(by_name["p0/2"]["files"])
    assert "splat.ply" not in by_name["p0/2"]["files"]
    assert (parent["status"], "report.html" in parent["files"], parent["experiment"]) == ("FINISHED", True, "reef")


@needs_mlflow
@pytest.mark.slow
def test_what_is_written_down_is_not_written_again(batch: FakeBatch, with_client: None) -> None:
    batch.make("p0", tracking={"mlflow": "file:mlruns", "splats": True}).run("train")
    assert batch.run("retry", "p0", "--set", "training.seed=7").returncode == 0
    found = runs(batch.folder / "mlruns")
    assert sorted(run["tags"]["splatbatch.attempt"] for run in found) == ["", "p0/1", "p0/2"]
    seeds = {run["tags"]["splatbatch.attempt"]: run["params"].get("training.seed") for run in found}
    assert seeds == {"": None, "p0/1": "42", "p0/2": "7"}
    assert all("splat.ply" in run["files"] for run in found if run["tags"]["splatbatch.attempt"])


@pytest.mark.parametrize("program", ["import sys; sys.exit(3)", "import time; time.sleep(60)", "raise SystemError"])
def test_a_store_that_fails_or_hangs_costs_the_batch_nothing(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(mlflow_sink, "find_spec", lambda _: True)
    monkeypatch.setattr(mlflow_sink, "PROGRAM", (sys.executable, "-c", program))
    batch.make("p0", "p1", tracking={"mlflow": "http://127.0.0.1:9", "timeout_s": 0.5})
    ended = batch.run("train")
    assert (ended.returncode, "2 of 2 patches trained" in ended.stdout) == (0, True)
    assert "tracking.mlflow: " in ended.stderr


def test_a_program_that_is_not_there_costs_the_batch_nothing(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_sink, "find_spec", lambda _: True)
    monkeypatch.setattr(mlflow_sink, "PROGRAM", ("/nowhere/python",))
    ended = batch.make("p0", tracking={"mlflow": "file:mlruns"}).run("train")
    assert (ended.returncode, "tracking.mlflow: cannot be started" in ended.stderr) == (0, True)


def test_without_mlflow_a_batch_that_asks_for_it_ends_before_it_begins(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_sink, "find_spec", lambda _: None)
    ended = batch.make("p0", tracking={"mlflow": "file:mlruns"}).run("train")
    assert (ended.returncode, "splatbatch[mlflow]" in ended.stderr) == (4, True)
    with pytest.raises(MissingPartError):
        MlflowSink(Tracking(mlflow="file:x"), OutputFolder(batch.output), batch.folder, dict)


class Spoilt:
    """A sink that raises where it is asked to."""

    name = "spoilt"

    def __init__(self, where: str) -> None:
        self.where, self.heard = where, 0

    def _at(self, place: str) -> None:
        self.heard += 1
        if place == self.where:
            raise RuntimeError("no such server")

    def tell(self, event: Event) -> None:
        self._at("tell")

    def beat(self) -> Iterator[str]:
        self._at("beat")
        yield from ()

    def finish(self) -> Iterator[str]:
        self._at("finish")
        yield "left over"


@pytest.mark.parametrize("where", ["tell", "beat", "finish"])
def test_a_sink_that_raises_is_told_of_once_and_left_alone(where: str) -> None:
    spoilt, sound = Spoilt(where), Spoilt("")
    sinks, said = Sinks([spoilt, sound]), []
    for _ in range(2):
        sinks.tell(AttemptEnded("p0", 1, "trained"))
        said += [*sinks.beat(), *sinks.finish()]
    assert [line for line in said if "spoilt" in line] == [
        "spoilt: RuntimeError: no such server; nothing more is written there"
    ]
    assert said.count("left over") == 2
    assert sound.heard == 6


def test_a_beat_never_waits(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_sink, "find_spec", lambda _: True)
    monkeypatch.setattr(mlflow_sink, "PROGRAM", (sys.executable, "-c", "import time; time.sleep(60)"))
    sink = MlflowSink(Tracking(mlflow="file:x", timeout_s=3), OutputFolder(batch.output), batch.folder, dict)
    sink.tell(AttemptEnded("p0", 1, "trained"))
    began = time.monotonic()
    for _ in range(20):
        assert list(sink.beat()) == []
    assert time.monotonic() - began < 2
    assert any("ended after 3 s" in line for line in sink.finish())
