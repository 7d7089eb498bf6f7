"""What holds for engines alike, and needs none: their settings, workers of this machine, workers by another YAML."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fake_batch import ROOT
from process_family import left_of
from sites import LocalSite, at_work, wait_for

from splatbatch.cluster import slurm
from splatbatch.cluster.job import JOB, TERMS
from splatbatch.cluster.slurm import clean_environment, options_of
from splatbatch.cluster.workers import RequestedWorkers
from splatbatch.config import load
from splatbatch.errors import ConfigError
from splatbatch.output.events import AttemptEnded
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Tail
from splatbatch.output.records.run import SubmissionRecord
from splatbatch.output.submissions import Submission
from splatbatch.tasks.batch import open_batch

if TYPE_CHECKING:
    from fake_batch import FakeBatch


@pytest.mark.parametrize(
    ("executor", "words"),
    [
        ("{engine: slurm, sbatch: [--array=0-7]}", "executor.workers sets the number"),
        ("{engine: slurm, sbatch: ['-t 10']}", "executor.worker_time sets the time"),
        ("{engine: slurm, sbatch: [--output=x]}", "this option is set by splatbatch itself: remove it"),
        ("{engine: slurm, gpus: [0, 1]}", "slurm chooses the GPUs"),
        ("{sbatch: [--partition=gpu]}", "sbatch needs engine: slurm"),
        ("{setup: [module load cuda]}", "setup and worker_time need engine: slurm"),
        ("{engine: slrum}", "engine"),
        ("{engine: ray}", "local"),
        ("{engine: slurm, worker_time: soon}", "worker_time"),
        ("{engine: slurm, worker_time: 30s}", "worker_time"),
        ("{workers: 0}", "workers"),
    ],
)
def test_settings_that_fit_no_engine_are_mistakes_of_the_yaml(tmp_path: Path, executor: str, words: str) -> None:
    (tmp_path / "splat_config.yml").write_text(f"executor: {executor}\n")
    with pytest.raises(ConfigError) as told:
        load(tmp_path / "splat_config.yml")
    assert words in told.value.message
    assert "line 1" in told.value.message


def test_the_example_for_slurm_is_a_config() -> None:
    assert load(ROOT / "configs/engines/slurm.yml").executor.engine == "slurm"


@pytest.mark.parametrize("engine", ["ray", "of-a-later-version"])
def test_what_an_engine_was_asked_for_that_cannot_be_asked_any_more_stops_nobody(batch: FakeBatch, engine: str) -> None:
    batch.make("p0", training={"colors": "as_is"})
    asked_of(batch, engine, "r/0")
    assert (batch.run("status").returncode, batch.run("cancel").returncode) == (0, 0)
    assert batch.run("work").returncode == 0


def test_workers_that_were_just_asked_for_may_still_start(batch: FakeBatch) -> None:
    batch.make("p0")
    asked_of(batch, "slurm", "7_0")
    assert RequestedWorkers(OutputFolder(batch.output)).lives()


def asked_of(batch: FakeBatch, engine: str, handle: str) -> None:
    """Write down that an engine was asked for a worker."""
    folder = batch.output / "workers/jobs/splatbatch-001-abcdef01"
    folder.mkdir(parents=True)
    record = {"name": folder.name, "engine": engine, "workers": 1, "handles": [handle]}
    (folder / "submission.json").write_text(json.dumps(record))


def test_a_folder_with_a_percent_sign_is_no_pattern_of_sbatch(batch: FakeBatch, tmp_path: Path) -> None:
    asked = Submission(tmp_path / "50%j", SubmissionRecord(num_workers=1))
    options = options_of(open_batch(batch.make("p0").config), asked, 1, None)
    assert f"--output={tmp_path}/50%%j/%a.log" in options


FORGETFUL = """\
#!/bin/sh
[ -e {told} ] || printf '7|0|COMPLETED|n1|None|0|\\n7|1|FAILED|n2|None|19200|\\n'
touch {told}
echo '7|2|RUNNING|n3|None|0|'
"""


@pytest.mark.all
def test_how_jobs_have_ended_is_remembered_once_squeue_has_forgotten_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "squeue").write_text(FORGETFUL.format(told=tmp_path / "told"))
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    asked = Submission(tmp_path / "splatbatch-001-abcdef01", SubmissionRecord(handles=("7_0", "7_1", "7_2", "7_3")))
    jobs = slurm.query_jobs([asked], {})
    assert [(one.state, one.code) for one in jobs.values()] == [
        *(("ended", 0), ("ended", 75), ("running", None), ("ended", None))
    ]
    assert jobs["7_3"].how == "no longer known to Slurm"
    assert slurm.query_jobs([asked], jobs) == jobs


def test_options_of_sbatch_are_read_as_people_write_them(tmp_path: Path) -> None:
    (tmp_path / "splat_config.yml").write_text(
        "executor: {engine: slurm, sbatch: [-p gpu, --mem=3G, --comment-me 'not'], worker_time: 1h30m}\n"
    )
    settings = load(tmp_path / "splat_config.yml").executor
    assert settings.sbatch == ("-p", "gpu", "--mem=3G", "--comment-me", "not")
    assert settings.worker_time == 5400


def test_a_worker_that_was_asked_for_by_another_yaml_or_version_ends_with_5(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TERMS, "of another")
    ended = batch.make("p0").run("work")
    assert (ended.returncode, "another YAML or version of splatbatch" in ended.stderr) == (5, True)
    assert not (batch.output / "workers").exists()


def test_a_job_inherits_neither_our_gpus_nor_the_job_that_we_are_part_of() -> None:
    ours = {"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_ID": "3", "SLURM_MEM_PER_CPU": "1", "SQUEUE_FORMAT": "%i"}
    kept = {"SLURM_CONF": "/etc/x", "HOME": "/root", "SBATCH_ACCOUNT": "us"}
    assert clean_environment(ours | kept) == kept


@pytest.mark.parametrize("site", ["local"], indirect=True)
def test_more_gpus_than_are_here_are_refused(elsewhere: FakeBatch, site: LocalSite) -> None:
    elsewhere.change(executor={"gpus_per_worker": 50})
    ended = elsewhere.run("train")
    assert (ended.returncode, "gpus_per_worker" in ended.stderr) == (5, True), ended.stderr
    assert not list(elsewhere.output.glob("workers/jobs/*"))


@pytest.mark.all
@pytest.mark.parametrize("site", ["local"], indirect=True)
def test_workers_that_all_end_too_early_are_followed_by_others(elsewhere: FakeBatch, site: LocalSite) -> None:
    elsewhere.script(p0=["train 600", "train"])
    parent = elsewhere.start("train", "p0")
    [worker] = wait_for(lambda: at_work(elsewhere.output))
    wait_for(lambda: list(elsewhere.output.glob("patches/p0/attempt-01/start.json")))
    os.kill(worker.pid, signal.SIGTERM)
    _, err = parent.communicate(timeout=200)
    assert (parent.returncode, err.count("starting new ones")) == (0, 1), err
    assert len(list(elsewhere.output.glob("workers/jobs/*"))) == 2
    assert left_of(elsewhere, patience_s=10) == []


@pytest.mark.all
@pytest.mark.parametrize("site", ["local"], indirect=True)
def test_workers_that_cannot_train_have_their_words_told(elsewhere: FakeBatch, site: LocalSite) -> None:
    elsewhere.change(training={"device": "auto"}, executor={"gpus": [977], "gpus_per_worker": 0})
    ended = elsewhere.run_apart("train", timeout_s=200)
    assert (ended.returncode, "977" in ended.stderr) == (5, True), ended.stderr


def test_a_ledger_is_followed_line_by_line_and_each_event_is_told_once(tmp_path: Path) -> None:
    output = OutputFolder(tmp_path)
    output.ledger.parent.mkdir()
    output.ledger_of("early").write_text(line_of("p0"))
    tail = Tail(output)
    tail.skip()
    assert list(tail.read()) == []
    with output.ledger_of("early").open("a") as file:
        file.write(line_of("p1") + line_of("p2")[:20])
    output.ledger_of("late").write_text("torn{\n" + line_of("p3"))
    assert [event.patch for _, event in tail.read() if isinstance(event, AttemptEnded)] == ["p1", "p3"]
    with output.ledger_of("early").open("a") as file:
        file.write(line_of("p2")[20:])
    assert [event.patch for _, event in tail.read() if isinstance(event, AttemptEnded)] == ["p2"]


def line_of(patch: str) -> str:
    return json.dumps({"t": 1.0, "event": "attempt_ended", "patch": patch, "attempt": 1, "outcome": "trained"}) + "\n"


def test_a_worker_says_which_job_it_is(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JOB, "12_3")
    assert batch.make("p0", training={"colors": "as_is"}).run("work").returncode == 0
    [record] = [json.loads(path.read_text()) for path in batch.output.glob("workers/*.json")]
    assert record["job"] == "12_3"
