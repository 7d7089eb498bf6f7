"""configs/engines/ray_workers.sh: what it asks of a `ray` that only writes it down, and what a real Ray makes of it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_batch import CONSTANTS, ROOT, FakeBatch
from process_family import left_of
from programs import write_program
from sites import at_work, wait_for, worker_pid

SCRIPT = ROOT / "configs/engines/ray_workers.sh"
QUICK = {"training": {"colors": "as_is"}, "limits": {"grace_s": 0.5, "free_disk_mib": 0}}
HOSTILE = "it's $HOME; gr\u00fcn"
NUM_GPUS = 2
PATIENCE_S = 300.0
"""A busy machine takes a minute for what a quiet one does in seconds."""
RAY = """#!{python}
import json, sys
from pathlib import Path
here = Path(__file__).parent
with (here / "asked").open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if len((here / "asked").read_text().splitlines()) > {most}:
    print("Traceback (most recent call last):\\n  File 'cli.py', line 1", file=sys.stderr)
    sys.exit("ConnectionError: no such cluster\\n")
"""


def call(folder: Path, *words: str, most: int = 1000, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script with a `ray` that takes so many workers and refuses the next."""
    write_program(folder / "bin/ray", RAY.format(python=sys.executable, most=most))
    environment = {name: value for name, value in os.environ.items() if name not in ("GPUS", "CPUS", "SPLATBATCH")}
    environment |= {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", **variables}
    return run(words, environment, folder)


def run(words: tuple[str, ...], environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(SCRIPT), *words]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def asked(folder: Path) -> list[list[str]]:
    """Return the words of each call of `ray`."""
    log = folder / "bin/asked"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


@pytest.mark.contract
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_each_worker_is_a_job_and_every_word_reaches_it_as_it_is(tmp_path: Path, locale: str) -> None:
    folder = tmp_path / HOSTILE
    folder.mkdir()
    (folder / "night.yml").touch()
    program = str(folder / "splat batch")
    settings = {"GPUS": "2", "CPUS": "8", "SPLATBATCH": program, "LC_ALL": locale, "RAY_JOB_STOP_WAIT_TIME_S": "90"}
    ended = call(folder, "3", "night.yml", "--for", "1h", "p 0", **settings)
    assert (ended.returncode, ended.stderr) == (0, "")
    calls = asked(folder)
    work = [program, "work", "--config", str(folder / "night.yml"), "--for", "1h", "p 0"]
    assert [one[one.index("--") + 1 :] for one in calls] == [work] * 3
    assert all(one[:3] == ["job", "submit", "--no-wait"] for one in calls)
    assert {(option(one, "--entrypoint-num-gpus"), option(one, "--entrypoint-num-cpus")) for one in calls} == {
        ("2", "8")
    }
    jobs = [option(one, "--submission-id") for one in calls]
    assert len(set(jobs)) == 3
    assert [line.partition(":")[0] for line in ended.stdout.splitlines()] == jobs
    told = [json.loads(option(one, "--runtime-env-json")) for one in calls]
    assert told == [{"env_vars": {"SPLATBATCH_JOB": job, "RAY_JOB_STOP_WAIT_TIME_S": "90"}} for job in jobs]


@pytest.mark.contract
def test_workers_of_a_store_need_its_url_alone(tmp_path: Path) -> None:
    assert call(tmp_path, "1", "s3://reef/night", "--idle", "10m").returncode == 0
    [words] = asked(tmp_path)
    assert words[words.index("--") + 1 :] == ["splatbatch", "work", "s3://reef/night", "--idle", "10m"]
    assert (option(words, "--entrypoint-num-gpus"), option(words, "--entrypoint-num-cpus")) == ("1", "1")


@pytest.mark.contract
@pytest.mark.parametrize(
    ("words", "variables", "told"),
    [
        ((), {}, "ray_workers.sh N CONFIG"),
        (("2",), {}, "ray_workers.sh N CONFIG"),
        (("0", "night.yml"), {}, "N: 0: should be a whole number, at least 1"),
        (("night.yml", "2"), {}, "N: night.yml: should be"),
        (("2", "none.yml"), {}, "none.yml: no such file"),
        (("2", "none/night.yml"), {}, "none/night.yml: no such file"),
        (("2", "night.yml"), {"GPUS": "0.5"}, "GPUS: 0.5: should be"),
        (("2", "night.yml"), {"GPUS": "0", "CPUS": "0"}, "CPUS: 0: should be"),
        (("2", "night.yml"), {"RAY_JOB_STOP_WAIT_TIME_S": '"}'}, "RAY_JOB_STOP_WAIT_TIME_S"),
    ],
)
def test_a_wrong_call_submits_nothing(
    tmp_path: Path, words: tuple[str, ...], variables: dict[str, str], told: str
) -> None:
    (tmp_path / "night.yml").touch()
    ended = call(tmp_path, *words, **variables)
    assert (ended.returncode, told in ended.stderr, asked(tmp_path)) == (2, True, []), ended.stderr


@pytest.mark.contract
def test_a_worker_that_ray_refuses_is_told_in_its_words_and_none_follows(tmp_path: Path) -> None:
    (tmp_path / "night.yml").touch()
    ended = call(tmp_path, "3", "night.yml", most=1)
    assert (ended.returncode, len(asked(tmp_path)), len(ended.stdout.splitlines())) == (5, 2, 1)
    assert ended.stderr == "worker 2 of 3: not submitted (exit code 1): ConnectionError: no such cluster\n"


@pytest.mark.contract
def test_a_ray_that_is_not_here_is_said_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "night.yml").touch()
    for name in ("bash", "sed", "realpath", "date"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    ended = run(("1", "night.yml"), {"PATH": str(tmp_path)}, tmp_path)
    assert (ended.returncode, "pip install 'ray[default]>=2.60,<3'" in ended.stderr) == (5, True), ended.stderr


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Give what clients need of a real Ray: one node, with GPUs that are none, whose every port demands a token."""
    if os.environ.get("ENGINES") == "skip":
        pytest.skip("ENGINES=skip")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if not (ray := shutil.which("ray", path=path)):
        lacks = pytest.fail if request.config.getoption("--engines") else pytest.skip
        lacks("Ray is not installed: pip install 'ray[default]>=2.60,<3'")
    place = Path(tempfile.mkdtemp(prefix="ray."))  # short: paths of sockets end at 107 characters
    token = place / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    port, client, dashboard, agent = free_ports(4)
    variables = {
        "PATH": path,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_worker_prestart": "0",  # or a process is started for each core
        "RAY_raylet_start_wait_time_s": "250",  # by default 30: too short on a machine with other work
    }
    options = {"port": port, "ray-client-server-port": client, "dashboard-port": dashboard, "num-gpus": NUM_GPUS}
    options |= {"dashboard-agent-listen-port": agent, "num-cpus": 4, "object-store-memory": 80_000_000}
    command = [ray, "start", "--head", "--block", "--include-dashboard=true", f"--temp-dir={place}"]
    command += [f"--{name}={value}" for name, value in options.items()]
    with (place / "head.log").open("wb") as words:
        environment, streams = {**os.environ, **variables}, {"stdout": words, "stderr": subprocess.STDOUT}
        head = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True, **streams)
    try:
        wait_for(
            lambda: head.poll() is not None or b"Ray runtime started" in (place / "head.log").read_bytes(), PATIENCE_S
        )
        assert head.poll() is None, (place / "head.log").read_text()[-2000:]
        yield variables
    finally:
        head.terminate()
        try:
            head.wait(60)
        except subprocess.TimeoutExpired:
            head.kill()
            head.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGKILL)
        shutil.rmtree(place, ignore_errors=True)


def free_ports(num: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(num)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]


def submit(batch: FakeBatch, cluster: dict[str, str], num: int) -> subprocess.CompletedProcess[str]:
    """Submit workers that have the scripted trainer: a job has the environment of its node, not ours."""
    known = batch.environment()
    ours = [f"{name}={known[name]}" for name in ("SPLATBATCH_CONFIG", "FAKE_TRAINER_SCRIPT", CONSTANTS)]
    program = batch.folder / "splatbatch"
    write_program(program, f'#!/bin/sh\nexec env {shlex.join([*ours, *batch.command()])} "$@"\n')
    return run((str(num), str(batch.config)), {**os.environ, **cluster, "SPLATBATCH": str(program)}, batch.folder)


def ends_of(batch: FakeBatch) -> Counter[tuple[str, str]]:
    """Return how often the attempts of each patch have ended so, by all ledgers."""
    lines = [line for path in batch.output.glob("ledger/*.jsonl") for line in path.read_text().splitlines()]
    events: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return Counter((one["patch"], one["outcome"]) for one in events if one["event"] == "attempt_ended")


def gpus_of(job: str) -> str:
    """Return what a worker has in CUDA_VISIBLE_DEVICES."""
    pairs = Path(f"/proc/{worker_pid(job)}/environ").read_text().split("\0")
    return dict(one.partition("=")[::2] for one in pairs)["CUDA_VISIBLE_DEVICES"]


def begun(batch: FakeBatch, num: int) -> list[Any]:
    """Wait until so many workers have begun an attempt; return them."""
    wait_for(lambda: len(list(batch.output.glob("patches/*/attempt-01/start.json"))) == num, PATIENCE_S)
    return wait_for(lambda: found if len(found := at_work(batch.output)) == num else None, PATIENCE_S)


def worker_of(batch: FakeBatch, patch: str) -> str:
    """Return who has claimed a patch last."""
    claims = sorted(batch.output.glob(f"claims/{patch}/*[0-9]"), key=lambda path: int(path.name))
    worker: str = json.loads(claims[-1].read_text())["worker"]
    return worker


@pytest.mark.long
def test_jobs_of_a_real_ray_train_every_patch_once_each_on_a_gpu_of_its_own(
    tmp_path: Path, cluster: dict[str, str], record_property: Any
) -> None:
    folder = tmp_path / HOSTILE
    folder.mkdir()
    names = [f"p{number}" for number in range(6)]
    batch = FakeBatch(folder).make(*names, **QUICK).script(**{name: ["await go", "train"] for name in names[:2]})
    began = time.monotonic()
    ended = submit(batch, cluster, 2)
    assert (ended.returncode, ended.stderr) == (0, "")
    took_s = time.monotonic() - began
    workers = begun(batch, 2)
    assert {one.job for one in workers} == {line.partition(":")[0] for line in ended.stdout.splitlines()}
    gpus = sorted(gpus_of(one.job) for one in workers)
    (folder / "go").touch()
    wait_for(lambda: len(list(batch.output.glob("patches/*/result.json"))) == 6, PATIENCE_S)
    assert left_of(batch, patience_s=60) == []
    assert (gpus, ends_of(batch)) == (["0", "1"], Counter((name, "trained") for name in names))
    record_property("figure", f"2 jobs submitted in {took_s:.1f} s, 6 patches in {time.monotonic() - began:.1f} s")


@pytest.mark.long
def test_a_job_that_is_stopped_leaves_its_patch_to_the_others(batch: FakeBatch, cluster: dict[str, str]) -> None:
    batch.make("p0", "p1", "p2", **QUICK).script(p0=["train 600", "train"], p1=["await go", "train"])
    assert submit(batch, cluster, 2).returncode == 0
    begun(batch, 2)
    [stopped] = [one.job for one in at_work(batch.output) if one.worker == worker_of(batch, "p0")]
    subprocess.run(["ray", "job", "stop", stopped], env={**os.environ, **cluster}, check=True, timeout=PATIENCE_S)
    (batch.folder / "go").touch()
    wait_for(lambda: len(list(batch.output.glob("patches/*/result.json"))) == 3, PATIENCE_S)
    assert left_of(batch, patience_s=60) == []
    assert ends_of(batch) == Counter({("p0", "stopped"): 1, **{(f"p{number}", "trained"): 1 for number in range(3)}})


@pytest.mark.long
def test_a_wrong_token_is_told_in_rays_words_and_not_shown(
    batch: FakeBatch, tmp_path: Path, cluster: dict[str, str]
) -> None:
    token, secret = tmp_path / "wrong", "ab" * 32
    token.touch(0o600)
    token.write_text(secret)
    ended = submit(batch.make("p0", **QUICK), {**cluster, "RAY_AUTH_TOKEN_PATH": str(token)}, 1)
    assert (ended.returncode, "Invalid authentication token" in ended.stderr) == (5, True), ended.stderr
    assert secret not in ended.stdout + ended.stderr
    assert not batch.output.exists()
