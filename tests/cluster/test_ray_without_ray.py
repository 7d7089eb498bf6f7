"""What of Ray's engine needs no Ray: the keeper of a worker, and how an engine that does not answer is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_batch import ROOT
from sites import wait_for

from splatbatch.cluster.engine import Ended, Pending, Running, Unknown, WorkerRequest
from splatbatch.cluster.ray import engine
from splatbatch.cluster.ray.engine import KEEPER, Connection, RayEngine, RayError, _seen, job_of, script_of, told
from splatbatch.config import Executor, load
from splatbatch.output.submissions import Submission

ANSWER = {
    "names": ["s/0", "s/1~2", "s/2"],
    "nodes": [{"name": "n1", "id": "a1", "gpus": 2}],
    "free": {"GPU": [1.0, 2.0], "CPU": [3.0, 8.0]},
}


def kept(folder: Path, script: str, grace_s: float = 5) -> subprocess.Popen[bytes]:
    """Run a script under a keeper."""
    (folder / "job.sh").write_text(script)
    files = [str(folder / name) for name in ("job.sh", "0.log", "0.code")]
    keeper = subprocess.Popen([sys.executable, str(KEEPER), *files, str(grace_s)])
    wait_for((folder / "0.log").exists)
    return keeper


def code_of(folder: Path) -> str:
    code = folder / "0.code"
    wait_for(code.exists)
    return code.read_text()


@pytest.mark.contract
def test_how_a_worker_has_ended_is_written_down(tmp_path: Path) -> None:
    keeper = kept(tmp_path, "echo at work; exit 75")
    assert (keeper.wait(30), code_of(tmp_path)) == (0, "75\n")
    assert (tmp_path / "0.log").read_text() == "at work\n"


@pytest.mark.contract
def test_a_worker_that_is_told_to_stop_has_its_grace_and_no_more(tmp_path: Path) -> None:
    keeper = kept(tmp_path, "trap 'echo heard' TERM; echo ready; while :; do sleep 0.1; done", grace_s=2)
    wait_for(lambda: "ready" in (tmp_path / "0.log").read_text())
    began = time.monotonic()
    keeper.send_signal(signal.SIGTERM)
    assert (keeper.wait(30), code_of(tmp_path)) == (0, "-9\n")
    assert "heard" in (tmp_path / "0.log").read_text()
    assert time.monotonic() - began > 1


@pytest.mark.contract
def test_a_worker_whose_keeper_is_killed_is_told_to_stop(tmp_path: Path) -> None:
    keeper = kept(tmp_path, "trap 'echo heard; exit 75' TERM; echo ready; while :; do sleep 0.1; done")
    wait_for(lambda: "ready" in (tmp_path / "0.log").read_text())
    keeper.kill()
    keeper.wait()
    wait_for(lambda: "heard" in (tmp_path / "0.log").read_text())
    assert not (tmp_path / "0.code").exists()  # so that Ray starts it again


@pytest.mark.parametrize(
    ("index", "starts", "code", "expected"),
    [
        (0, "", "", Pending("for room: Ray has 1 of 2 GPUs and 3 of 8 CPUs free")),
        (0, "n1 a1\n", "", Running("n1")),
        (1, "n9 a9\nn1 a1\n", "", Running("n1")),  # moved
        (2, "n1 a0\n", "", Pending("since its node n1 is lost")),
        (3, "n1 a1\n", "75\n", Ended("with exit code 75", "n1", 75)),
        (3, "n1 a1\n", "-9\n", Ended("with exit code -9", "n1", -9)),
        (3, "n1 a1\n", "", Ended("without a word: Ray has it no more", "n1")),
        (3, "", "what\n", Ended("without a word: Ray has it no more")),
    ],
)
def test_how_a_worker_is_follows_from_rays_names_and_its_own_files(
    tmp_path: Path, index: int, starts: str, code: str, expected: object
) -> None:
    for kind, words in (("starts", starts), ("code", code)):
        if words:
            (tmp_path / f"{index}.{kind}").write_text(words)
    assert _seen(Submission(tmp_path), f"s/{index}", ANSWER) == expected


@pytest.mark.contract
def test_an_engine_that_cannot_be_asked_says_unknown_and_is_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "client.py"
    broken.write_text(f"open('{tmp_path}/calls', 'a').write('.'); raise SystemExit('head: No route to host')")
    monkeypatch.setattr(engine, "CLIENT", broken)
    (tmp_path / "submission.json").write_text('{"name": "s", "engine": "ray", "handles": ["s/0"]}')
    ray = RayEngine(Executor(engine="ray"))
    for _ in range(3):
        assert ray.look([Submission(tmp_path)]) == {"s/0": Unknown("Ray: head: No route to host")}
    assert ray.find(Submission(tmp_path)) is None
    assert ray.stop([Submission(tmp_path)]) == "Ray: head: No route to host"
    assert len((tmp_path / "calls").read_text()) <= 2


@pytest.mark.all
def test_a_client_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "client.py").write_text("import sys, time; print('connecting', file=sys.stderr); time.sleep(600)")
    monkeypatch.setattr(engine, "CLIENT", tmp_path / "client.py")
    monkeypatch.setattr(engine, "CONNECT_S", 3.0)
    with pytest.raises(RayError, match="not answered for 3 s: connecting"):
        Connection().ask("look")


@pytest.mark.contract
def test_a_worker_gets_this_shells_environment_but_not_its_gpus_nor_rays_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "RAY_AUTH_TOKEN", "OF_MINE"):
        monkeypatch.setenv(name, "secret")
    wanted = WorkerRequest(1, 2, ("/bin/echo", "it's", "work"), {"A": "b c"}, tmp_path, 5, ("module load cuda",))
    environment = told(wanted)
    assert (environment["OF_MINE"], environment["A"]) == ("secret", "b c")
    assert not {"CUDA_VISIBLE_DEVICES", "RAY_AUTH_TOKEN"} & environment.keys()
    job = job_of(wanted, Submission(tmp_path / "s"), 3, 1)
    assert (job["handle"], job["gpus"], job["keeper"][-1]) == ("s/3", 2, "25.0")
    (tmp_path / "job.sh").write_text("module() { echo loaded; }\n" + script_of(wanted))
    assert subprocess.check_output(["bash", tmp_path / "job.sh"], text=True) == "loaded\nit's work\n"
    (tmp_path / "job.sh").write_text(script_of(wanted))
    failed = subprocess.run(["bash", tmp_path / "job.sh"], capture_output=True, text=True, env=os.environ, check=False)
    assert (failed.returncode, "module load cuda" in failed.stderr) == (5, True)


@pytest.mark.parametrize("name", ["ray", "slurm"])
def test_the_example_is_a_config(name: str) -> None:
    assert load(ROOT / f"configs/engines/{name}.yml").executor.engine == name
