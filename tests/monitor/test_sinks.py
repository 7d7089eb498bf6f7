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
from splatbatch.errors import TrainerError
from splatbatch.monitor import mlflow_runs
from splatbatch.monitor.mlflow_runs import MlflowSink
from splatbatch.monitor.sinks import BatchOutcome, Sinks
from splatbatch.output.events import AttemptEnded, Event
from splatbatch.output.layout import OutputFolder
from splatbatch.run import context as ending

if TYPE_CHECKING:
    from fake_batch import FakeBatch

IS_HERE = all(find_spec(name) for name in ("mlflow", "sqlalchemy", "alembic"))
CLIENT = os.environ.get("SPLATBATCH_MLFLOW_PYTHON", sys.executable if IS_HERE else "")
"""A Python that has MLflow: this one, or that of a venv of its own, which then sees this one's packages."""
SERVER = os.environ.get("SPLATBATCH_MLFLOW_SERVER", "")
"""URL of a server to write to."""
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
BEGIN = """
import sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
(parent,) = [run for run in client.search_runs(["1"]) if not run.data.tags["splatbatch.attempt"]]
client.create_run("1", tags={"mlflow.parentRunId": parent.info.run_id})
"""
"""Begins a run below that of the batch, and never ends it."""

MODULE = "splatbatch.monitor.mlflow_runs"
RUN = f"import runpy, sys; sys.path += sys.argv[1:]; runpy.run_module({MODULE!r}, run_name='__main__')"


@pytest.fixture
def with_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sink find the client, wherever that is installed; its own packages come before ours."""
    ours = [str(Path(__file__).parents[2]), *(path for path in sys.path if path.endswith("site-packages"))]
    monkeypatch.setattr(mlflow_runs, "find_spec", lambda _: True)
    monkeypatch.setattr(mlflow_runs, "PROGRAM", (CLIENT, "-c", RUN, *ours))
    monkeypatch.setattr(ending, "BUDGET_S", 240.0)  # where all cores are busy, MLflow alone takes half a minute


def runs(batch: FakeBatch) -> list[dict[str, Any]]:
    command = [CLIENT, "-c", READ, f"sqlite:///{batch.folder}/mlflow.db"]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


@needs_mlflow
@pytest.mark.all
def test_mlflows_own_client_reads_a_run_per_attempt_below_one_of_the_batch(
    batch: FakeBatch, with_client: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "reef")
    batch.make("p0", "p1", tracking={"mlflow": "sqlite:///mlflow.db"})
    batch.script(
        p0=["exit 1 CUDA error: out of memory", "train"], p1=["exit 1 ModuleNotFoundError: No module named 'x'"]
    )
    assert batch.run("train").returncode == 1
    found = runs(batch)
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
@pytest.mark.all
def test_what_is_written_down_is_not_written_again(batch: FakeBatch, with_client: None) -> None:
    batch.make("p0", tracking={"mlflow": "sqlite:///mlflow.db", "splats": True}).run("train")
    assert batch.run("retry", "p0", "--set", "training.seed=7").returncode == 0
    found = runs(batch)
    assert sorted(run["tags"]["splatbatch.attempt"] for run in found) == ["", "p0/1", "p0/2"]
    seeds = {run["tags"]["splatbatch.attempt"]: run["params"].get("training.seed") for run in found}
    assert seeds == {"": None, "p0/1": "42", "p0/2": "7"}
    assert all("splat.ply" in run["files"] for run in found if run["tags"]["splatbatch.attempt"])
    assert list(batch.folder.glob("mlartifacts/*/artifacts/train.log"))  # beside the database
    assert not (batch.folder / "mlruns").exists()


@needs_mlflow
@pytest.mark.all
def test_what_an_earlier_night_could_not_write_the_next_one_writes(batch: FakeBatch, with_client: None) -> None:
    away = batch.make("p0", tracking={"mlflow": "http://127.0.0.1:9"}).run("train")
    assert (away.returncode, "Connection refused" in away.stderr) == (0, True)
    batch.change(tracking={"mlflow": "sqlite:///mlflow.db"})
    assert batch.run("train").returncode == 0
    assert sorted(run["tags"]["splatbatch.attempt"] for run in runs(batch)) == ["", "p0/1"]


@needs_mlflow
@pytest.mark.all
def test_a_run_that_was_cut_off_is_removed_by_the_next_night(batch: FakeBatch, with_client: None) -> None:
    assert batch.make("p0", tracking={"mlflow": "sqlite:///mlflow.db"}).run("train").returncode == 0
    subprocess.run([CLIENT, "-c", BEGIN, f"sqlite:///{batch.folder}/mlflow.db"], check=True)
    assert batch.run("train").returncode == 0
    assert sorted(run["tags"]["splatbatch.attempt"] for run in runs(batch)) == ["", "p0/1"]


@needs_mlflow
@pytest.mark.all
@pytest.mark.skipif(
    not SERVER, reason="no MLflow server: name one in SPLATBATCH_MLFLOW_SERVER, as http://127.0.0.1:5000"
)
def test_a_server_gets_runs_and_their_files(
    batch: FakeBatch, with_client: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", batch.folder.parent.name)
    ended = batch.make("p0", tracking={"mlflow": SERVER}).run("train")
    assert ended.returncode == 0 and "tracking.mlflow" not in ended.stderr


@needs_mlflow
@pytest.mark.all
def test_what_a_store_objects_to_is_said_in_its_own_words(batch: FakeBatch, with_client: None) -> None:
    (batch.folder / "mlflow.db").mkdir(parents=True)
    ended = batch.make("p0", tracking={"mlflow": "sqlite:///mlflow.db"}).run("train")
    assert (ended.returncode, "2 of 2" in ended.stdout) == (0, False)
    assert "unable to open database file" in ended.stderr
    assert "is on a disk that can be written" not in ended.stderr.replace(str(batch.folder), "")


@needs_mlflow
@pytest.mark.all
def test_a_store_in_a_folder_is_written_or_its_refusal_is_shown_with_what_to_write(
    batch: FakeBatch, with_client: None
) -> None:
    ended = batch.make("p0", tracking={"mlflow": "file:mlruns"}).run("train")
    refusal = [line for line in ended.stderr.splitlines() if "tracking.mlflow" in line]
    assert ended.returncode == 0
    assert list(batch.folder.glob("mlruns/*/*/artifacts/train.log")) or "maintenance mode" in refusal[0]
    assert not refusal or "write tracking.mlflow: sqlite:///mlflow.db" in refusal[0]


def test_passwords_of_a_store_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken-of-mine")
    said = mlflow_runs.without_passwords("E: http://me:hunter2@host/api\n  refused t0ken-of-mine")
    assert said == "E: http://***@host/api refused ***"


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("sqlite:///mlflow.db", "sqlite:////reef/mlflow.db"),
        ("sqlite:////data/m.db", "sqlite:////data/m.db"),
        ("file:mlruns", "file:///reef/mlruns"),
        ("https://host", "https://host"),
    ],
)
def test_a_store_in_a_file_lies_beside_the_yaml(store: str, told: str) -> None:
    assert mlflow_runs.absolute_uri(store, Path("/reef")) == told


@pytest.mark.all(but="raise SystemError")
@pytest.mark.contract
@pytest.mark.parametrize("program", ["import sys; sys.exit(3)", "import time; time.sleep(60)", "raise SystemError"])
def test_a_store_that_fails_or_hangs_costs_the_batch_nothing(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(mlflow_runs, "find_spec", lambda _: True)
    monkeypatch.setattr(mlflow_runs, "PROGRAM", (sys.executable, "-c", program))
    monkeypatch.setattr(mlflow_runs, "TIMEOUT_S", 0.5)
    batch.make("p0", "p1", tracking={"mlflow": "http://127.0.0.1:9"})
    ended = batch.run("train")
    assert (ended.returncode, "2 of 2 patches trained" in ended.stdout) == (0, True)
    assert "tracking.mlflow: " in ended.stderr


@pytest.mark.contract
def test_a_program_that_is_not_there_costs_the_batch_nothing(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_runs, "find_spec", lambda _: True)
    monkeypatch.setattr(mlflow_runs, "PROGRAM", ("/nowhere/python",))
    ended = batch.make("p0", tracking={"mlflow": "file:mlruns"}).run("train")
    assert (ended.returncode, "tracking.mlflow: cannot be started" in ended.stderr) == (0, True)


def test_a_store_in_a_database_needs_what_the_extra_brings(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_runs, "find_spec", lambda name: None if name == "alembic" else True)
    ended = batch.make("p0", tracking={"mlflow": "sqlite:///mlflow.db"}).run("train")
    assert (ended.returncode, "alembic is not installed" in ended.stderr) == (4, True)


def test_without_mlflow_a_batch_that_asks_for_it_ends_before_it_begins(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_runs, "find_spec", lambda _: None)
    ended = batch.make("p0", tracking={"mlflow": "file:mlruns"}).run("train")
    assert (ended.returncode, "splatbatch[mlflow]" in ended.stderr) == (4, True)
    with pytest.raises(TrainerError):
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

    def tick(self) -> Iterator[str]:
        self._at("tick")
        yield from ()

    def close(self, end: BatchOutcome) -> None:
        self._at("close")

    def is_done(self) -> bool:
        self._at("is_done")
        return False

    def give_up(self) -> Iterator[str]:
        self._at("give_up")
        yield "left over"


@pytest.mark.parametrize("where", ["tell", "tick", "close", "is_done", "give_up"])
def test_a_sink_that_raises_is_told_of_once_and_left_alone(where: str) -> None:
    spoilt, sound = Spoilt(where), Spoilt("")
    sinks, said = Sinks([spoilt, sound]), []
    for _ in range(2):
        sinks.tell(AttemptEnded("p0", 1, "trained"))
        said += [*sinks.tick(), *sinks.finish(BatchOutcome(""), lambda: 0.0)]
    assert [line for line in said if "spoilt" in line] == [
        "spoilt: RuntimeError: no such server; nothing more is written there"
    ]
    assert said.count("left over") == 2
    assert sound.heard > 6


@pytest.mark.contract
def test_a_beat_never_waits(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_runs, "find_spec", lambda _: True)
    monkeypatch.setattr(mlflow_runs, "PROGRAM", (sys.executable, "-c", "import time; time.sleep(60)"))
    sink = MlflowSink(Tracking(mlflow="file:x"), OutputFolder(batch.output), batch.folder, dict)
    sink.tell(AttemptEnded("p0", 1, "trained"))
    began = time.monotonic()
    for _ in range(20):
        assert list(sink.tick()) == []
    assert time.monotonic() - began < 2
    assert any("not all written in time" in line for line in Sinks([sink]).finish(BatchOutcome(""), lambda: 0.0))


class Failing:
    """A store that fails each time it is asked."""

    num_started = 0

    def __init__(self, *_: object, **__: object) -> None:
        Failing.num_started += 1

    def verdict(self) -> str:
        return "exit code 1: MlflowException: away"


def test_a_store_that_is_away_all_night_is_told_of_once_and_not_asked_without_pause(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_runs, "find_spec", lambda _: True)
    monkeypatch.setattr(mlflow_runs, "Hook", Failing)
    monkeypatch.setattr("splatbatch.monitor.sinks.LOOK_S", 0.0)
    sink = MlflowSink(Tracking(mlflow="http://x"), OutputFolder(batch.output), batch.folder, lambda: {"p0": {}})
    said = [line for _ in range(50) for line in sink.tick()]
    assert (len(said), Failing.num_started) == (1, 1)
    assert "MlflowException: away" in said[0]
    assert len([*Sinks([sink]).finish(BatchOutcome(""), lambda: 30.0)]) == 1
