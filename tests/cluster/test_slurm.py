"""What Slurm does to workers, and what it refuses: real commands, a real controller, nodes that are none."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from process_family import left_of
from sites import CONSTANTS, SlurmSite, at_work, wait_for, worker_pid

from splatbatch.cluster import slurm
from splatbatch.cluster.job import WorkerJob
from splatbatch.cluster.slurm import job_of, of_squeue, queue_limit_s, time_limit_s
from splatbatch.errors import ExecutorError

if TYPE_CHECKING:
    from fake_batch import FakeBatch


def submitted(batch: FakeBatch) -> list[str]:
    """Return the jobs that were submitted for a batch."""
    files = sorted(batch.output.glob("workers/jobs/*/submission.json"))
    return [handle for file in files for handle in json.loads(file.read_text())["handles"]]


@pytest.mark.parametrize(
    ("executor", "words", "remedy"),
    [
        ({"sbatch": ["--partition=nope"]}, "invalid partition", "sinfo"),
        ({"gpus_per_worker": 3}, "Requested node configuration is not available", "gpus_per_worker"),
        ({"sbatch": ["--mem=99G"]}, "Requested node configuration is not available", "executor.sbatch"),
        ({"sbatch": ["--nodelist=n9"]}, "Invalid node name", "sinfo -N"),
        ({"worker_time": "3h"}, "worker_time", "remove it"),
        ({"sbatch": ["--no-such-option"]}, "unrecognized option", "man sbatch"),
    ],
)
def test_what_slurm_would_refuse_is_said_in_its_words_before_anything_is_submitted(
    elsewhere: FakeBatch, executor: dict[str, object], words: str, remedy: str
) -> None:
    elsewhere.change(executor=executor)
    ended = elsewhere.run("train")
    assert (ended.returncode, submitted(elsewhere)) == (5, [])
    assert words in ended.stderr
    assert remedy in ended.stderr


FAILED = "sbatch: error: Batch job submission failed"


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "executor.workers"),
        ("Invalid account or account/partition combination specified", "--account"),
        ("Invalid partition name specified", "--partition"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "executor.worker_time"),
        ("Unable to contact slurm controller (connect failure)", "scontrol ping"),
        ("Memory specification can not be satisfied", "executor.sbatch"),
    ],
)
def test_each_refusal_has_its_own_remedy(said: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = subprocess.CompletedProcess("sbatch", 1, "", f"{FAILED}: {said}")
    monkeypatch.setattr(slurm, "ask", lambda *_: answer)
    with pytest.raises(ExecutorError, match=FAILED) as refused:
        slurm._sbatch()
    assert remedy in refused.value.hint


def test_without_sbatch_the_engine_cannot_be_used_here(elsewhere: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        ended = elsewhere.run("train")
    assert (ended.returncode, "sbatch not found" in ended.stderr) == (5, True)


def test_a_controller_that_is_down_refuses_new_workers_and_ends_none(elsewhere: FakeBatch, site: SlurmSite) -> None:
    elsewhere.script(p0=["await go"])
    site.cluster.stop_controller()
    try:
        refused = elsewhere.run_apart("train", timeout_s=200)
        assert (refused.returncode, "scontrol ping" in refused.stderr) == (5, True), refused.stderr
    finally:
        site.cluster.start_controller()
        site.cluster.await_idle()
    parent = elsewhere.start("train")
    wait_for(lambda: at_work(elsewhere.output))
    site.cluster.stop_controller()
    try:
        told = json.loads(elsewhere.run("status", "--json").stdout)
        assert {one["state"] for one in told["jobs"]} == {"unknown"}
        assert parent.poll() is None
        (elsewhere.folder / "go").touch()
        out = parent.communicate(timeout=200)
        assert parent.returncode == 0, out
    finally:
        site.cluster.start_controller()


def test_a_folder_that_nodes_do_not_see_is_told_with_the_node(batch: FakeBatch, site: SlurmSite) -> None:
    batch.make("p0", training={"colors": "as_is"}, executor=site.executor)
    batch.change(output={"folder": str(site.cluster.blind / "output")})
    ended = batch.run_apart("train", timeout_s=200)
    assert ended.returncode == 5
    assert "is visible and writable on that node" in ended.stderr
    assert " on n" in ended.stderr


def test_a_setup_that_fails_is_told_with_its_words(elsewhere: FakeBatch) -> None:
    elsewhere.change(executor={"setup": ["echo from the node", "no-such-module load cuda"]})
    ended = elsewhere.run_apart("train", timeout_s=200)
    assert ended.returncode == 5
    assert "a line of executor.setup failed: no-such-module load cuda" in ended.stderr


def test_a_yaml_that_changes_while_workers_wait_ends_them(elsewhere: FakeBatch, site: SlurmSite) -> None:
    elsewhere.change(executor={"sbatch": ["--hold"]})
    assert elsewhere.run_apart("train", "--detach", timeout_s=200).returncode == 0
    waiting = json.loads(elsewhere.run("status", "--json").stdout)["jobs"]
    assert {(one["state"], one["reason"]) for one in waiting} == {("pending", "JobHeldUser")}
    elsewhere.change(training={"max_steps": 21})
    refused = elsewhere.run_apart("train", timeout_s=200)
    assert (refused.returncode, "another YAML" in refused.stderr) == (5, True)
    site.cluster.ask("scontrol", "release", submitted(elsewhere)[0].partition("_")[0])
    [log, *_] = wait_for(lambda: [one for one in elsewhere.output.glob("workers/jobs/*/*.log") if one.stat().st_size])
    wait_for(lambda: "requested with another YAML" in log.read_text())
    assert not list(elsewhere.output.glob("patches/*/attempt-*"))


def test_status_names_node_and_job_of_what_runs(elsewhere: FakeBatch) -> None:
    elsewhere.script(p0=["train 600"])
    assert elsewhere.run_apart("train", "p0", "--detach", timeout_s=200).returncode == 0
    [worker] = wait_for(lambda: at_work(elsewhere.output))
    told = elsewhere.run("status").stdout
    assert f"worker {worker.worker} on {worker.host}, job {submitted(elsewhere)[0]}: p0" in told
    assert f"slurm: 1 worker running on {worker.host}" in told
    assert elsewhere.run_apart("cancel", timeout_s=200).returncode == 0


def test_a_worker_gets_the_gpus_that_were_asked_for_and_no_others(elsewhere: FakeBatch) -> None:
    elsewhere.script(p0=["train 600"])
    elsewhere.change(executor={"gpus_per_worker": 2})
    assert elsewhere.run_apart("train", "p0", "--detach", timeout_s=200).returncode == 0
    [worker] = wait_for(lambda: at_work(elsewhere.output))
    environment = Path(f"/proc/{worker_pid(worker.job)}/environ").read_bytes().split(b"\0")
    assert b"CUDA_VISIBLE_DEVICES=0,1" in environment
    assert elsewhere.run_apart("cancel", timeout_s=200).returncode == 0


def test_a_job_that_the_queue_takes_back_goes_on_where_it_was(elsewhere: FakeBatch, site: SlurmSite) -> None:
    elsewhere.script(p0=["train 600", "train"])
    parent = elsewhere.start("train", "p0")
    [worker] = wait_for(lambda: at_work(elsewhere.output))
    site.cluster.ask("scontrol", "requeue", worker.job)
    told = parent.communicate(timeout=200)
    assert parent.returncode == 0, told
    assert len(list(elsewhere.output.glob("workers/jobs/*"))) == 1  # nothing more was asked for
    assert json.loads((elsewhere.output / "patches/p0/result.json").read_text())["attempt"] == "attempt-02"


@pytest.mark.long
def test_workers_whose_time_is_up_are_followed_by_the_next_of_their_array(
    elsewhere: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"splatbatch.scheduler.work.time_left.MARGIN_S": 30}
    monkeypatch.setenv("FAKE_TRAINER_CONSTANTS", json.dumps(CONSTANTS | times))
    elsewhere.change(executor={"workers": 1, "worker_time": "1m"})
    elsewhere.script(p0=["train 600", "train"])
    ended = elsewhere.run_apart("train", "p0", timeout_s=200)
    assert ended.returncode == 0, ended.stderr
    said = [path.name for path in elsewhere.output.glob("workers/jobs/*/*.log") if path.stat().st_size]
    assert sorted(said)[:2] == ["0.log", "1.log"]
    assert len(list(elsewhere.output.glob("workers/jobs/*"))) == 1
    assert json.loads((elsewhere.output / "patches/p0/result.json").read_text())["attempt"] == "attempt-02"


CUT = """\
#!/bin/sh
case " $* " in *" --parsable "*) {before}; {sbatch} "$@"; kill -KILL $PPID ;; *) exec {sbatch} "$@" ;; esac
"""


@pytest.mark.parametrize(("before", "num_submissions"), [(":", 1), ("kill -KILL $PPID; exit", 2)])
def test_a_train_that_is_killed_while_it_submits_is_followed_and_nothing_is_submitted_twice(
    elsewhere: FakeBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, num_submissions: int
) -> None:
    shim = tmp_path / "shims/sbatch"
    shim.parent.mkdir()
    shim.write_text(CUT.format(before=before, sbatch=shutil.which("sbatch")))
    shim.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
        assert elsewhere.run_apart("train", timeout_s=200).returncode == -signal.SIGKILL
    assert submitted(elsewhere) == []
    ended = elsewhere.run_apart("train", timeout_s=200)
    assert (ended.returncode, "3 of 3 patches trained" in ended.stdout) == (0, True), ended.stderr
    assert len(list(elsewhere.output.glob("workers/jobs/*"))) == num_submissions
    assert len({job.partition("_")[0] for job in submitted(elsewhere)}) == 1


def test_scancel_is_a_wish_and_no_failure(elsewhere: FakeBatch, site: SlurmSite) -> None:
    elsewhere.script(p0=["train 600"])
    parent = elsewhere.start("train", "p0")
    [worker] = wait_for(lambda: at_work(elsewhere.output))
    site.cluster.ask("scancel", worker.job.partition("_")[0])
    out, err = parent.communicate(timeout=200)
    assert (parent.returncode, "stopped: p0" in out) == (1, True), err
    assert len(list(elsewhere.output.glob("workers/jobs/*"))) == 1


def test_who_interrupts_train_leaves_the_workers_at_work(elsewhere: FakeBatch) -> None:
    elsewhere.script(p0=["await go"])
    parent = elsewhere.start("train", "p0")
    wait_for(lambda: at_work(elsewhere.output))
    os.kill(parent.pid, signal.SIGINT)
    told = parent.communicate(timeout=200)
    assert (parent.returncode, "keep running" in told[1]) == (130, True), told
    (elsewhere.folder / "go").touch()
    assert elsewhere.run_apart("status", "--watch", timeout_s=200).returncode == 1  # the others were not asked for
    assert (elsewhere.output / "patches/p0/splat.ply").exists()


def ended(job: str, how: str, code: int | None = None) -> WorkerJob:
    return WorkerJob(job, "ended", where="n1", how=how, code=code)


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("PENDING", "Resources", WorkerJob("7_0", "pending", "Resources")),
        ("CONFIGURING", "None", WorkerJob("7_0", "pending", "CONFIGURING")),
        ("RUNNING", "None", WorkerJob("7_0", "running", where="n1")),
        ("COMPLETING", "None", WorkerJob("7_0", "running", where="n1")),
        ("NODE_FAIL", "NodeDown", ended("7_0", "NODE_FAIL (NodeDown)")),
        ("OUT_OF_MEMORY", "OutOfMemory", ended("7_0", "OUT_OF_MEMORY (OutOfMemory)")),
        (
            "A_STATE_OF_TOMORROW",
            "",
            WorkerJob("7_0", "unknown", why="Slurm reports the unknown state A_STATE_OF_TOMORROW"),
        ),
        ("PENDING", "launch_failed_requeued_held", ended("7_0", "JobLaunchFailure (launch failed requeued held)")),
        ("PENDING", "launch failed requeued held", ended("7_0", "JobLaunchFailure (launch failed requeued held)")),
    ],
)
def test_every_state_is_told_in_one_of_four_ways(state: str, reason: str, expected: WorkerJob) -> None:
    assert job_of("7_0", state, "n1", reason) == expected


def test_exit_codes_are_read_from_squeue() -> None:
    listed = "10|2|FAILED|n1|NonZeroExitCode|19200|\n8|0|FAILED|n2|None|9|\ngarbage\n"
    assert [one.code for one in of_squeue(listed)] == [75, None]


@pytest.mark.parametrize(
    ("words", "seconds"),
    [("1:00:00", 3600), ("2-12:00:00", 216_000), ("30:00", 1800), ("infinite", None), ("n/a", None)],
)
def test_time_limits_are_read(words: str, seconds: float | None) -> None:
    assert time_limit_s(words) == seconds


def test_the_limit_is_that_of_the_partition_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "gpu*|1:00:00\nlong|2-00:00:00\nfree|infinite\n"
    monkeypatch.setattr(slurm, "ask", lambda *_: subprocess.CompletedProcess("sinfo", 0, listed, ""))
    wanted = ([], ["-p"], ["-p", "long"], ["--partition=long,gpu"], ["-pfree"], ["--partition", "unheard-of"])
    assert [queue_limit_s(options) for options in wanted] == [3600, 3600, 172_800, 3600, None, None]


def test_cancel_ends_workers_by_files_alone_where_no_controller_answers(elsewhere: FakeBatch, site: SlurmSite) -> None:
    elsewhere.script(p0=["train 600"])
    assert elsewhere.run_apart("train", "p0", "--detach", timeout_s=200).returncode == 0
    wait_for(lambda: at_work(elsewhere.output))
    site.cluster.stop_controller()
    try:
        done = elsewhere.run_apart("cancel", timeout_s=200)
        assert (done.returncode, "the cluster could not cancel its workers" in done.stderr) == (0, True), done
        assert left_of(elsewhere, patience_s=10) == []
    finally:
        site.cluster.start_controller()
