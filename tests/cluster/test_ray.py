"""What Ray does to workers, and what it refuses: a real head and real nodes, with GPUs that are none."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_batch import FakeBatch
from process_family import left_of
from ray_cluster import RayCluster
from ray_site import RaySite
from sites import at_work, pids_of, wait_for, worker_pid

if TYPE_CHECKING:
    from sites import Site

on_ray = pytest.mark.parametrize("site", ["ray"], indirect=True)
SECRET = "ab" * 32
PATIENCE_S = 400.0
"""A busy machine takes a minute for what a quiet one does in seconds."""


def nodes_of(batch: FakeBatch) -> list[list[str]]:
    """Return the nodes that each worker was started on, in turn."""
    return [
        [line.split()[0] for line in path.read_text().splitlines()]
        for path in sorted(batch.output.glob("workers/jobs/*/*.starts"))
    ]


def words_of(batch: FakeBatch) -> str:
    return "".join(path.read_text() for path in sorted(batch.output.glob("workers/jobs/*/*.log")))


def test_a_ray_that_is_not_installed_is_said_with_its_remedy(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ray" else found(name, *more))
    ended = batch.make("p0", executor={"engine": "ray"}).run("train")
    assert ended.returncode == 5
    assert "the package ray is not installed" in ended.stderr
    assert "pip install 'splatbatch[ray]'" in ended.stderr
    assert list(batch.output.glob("workers/jobs/*")) == []


def test_what_only_slurm_takes_is_refused_with_its_line(batch: FakeBatch) -> None:
    ended = batch.make("p0", executor={"engine": "ray", "worker_time": "3h"}).run("train")
    assert ended.returncode == 2
    assert "worker_time is for engine: slurm" in ended.stderr


@on_ray
@pytest.mark.parametrize("mode", ["token", "disabled"])
def test_a_wrong_token_and_none_are_told_in_rays_words_and_no_secret_is_shown(
    elsewhere: FakeBatch, site: Site, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    token = elsewhere.folder / "token"
    token.write_text(SECRET)
    token.chmod(0o600)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    ended = elsewhere.run_apart("train", timeout_s=PATIENCE_S)
    assert (ended.returncode, "InvalidAuthToken" in ended.stderr) == (5, True), ended.stderr
    assert "Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH" in ended.stderr
    assert SECRET not in ended.stdout + ended.stderr
    assert list(elsewhere.output.glob("workers/jobs/*")) == []


@on_ray
def test_more_gpus_than_a_node_has_are_refused_with_what_the_nodes_have(elsewhere: FakeBatch, site: Site) -> None:
    elsewhere.change(executor={"gpus_per_worker": 3})
    ended = elsewhere.run_apart("train", timeout_s=PATIENCE_S)
    assert (ended.returncode, "n1 has 2" in ended.stderr) == (5, True), ended.stderr
    assert "Set it to 2 or less" in ended.stderr
    assert list(elsewhere.output.glob("workers/jobs/*")) == []


@on_ray
def test_a_folder_that_a_node_does_not_see_is_refused_before_anything_is_asked_for(
    site: RaySite, tmp_path: Path
) -> None:
    blind = FakeBatch(site.cluster.blind / "batch").make("p0", executor=site.executor)
    ended = blind.run_apart("train", timeout_s=PATIENCE_S)
    assert (ended.returncode, str(blind.folder) in ended.stderr) == (5, True), ended.stderr
    assert "of the Ray cluster does not see" in ended.stderr
    assert list(blind.output.glob("workers/jobs/*")) == []


@on_ray
def test_a_cluster_that_demands_no_token_is_refused(
    elsewhere: FakeBatch, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RayCluster(0, demands_token=False) as anybodys:
        for name, value in anybodys.environment.items():
            monkeypatch.setenv(name, value)
        ended = elsewhere.run_apart("train", timeout_s=PATIENCE_S)
    assert (ended.returncode, "demands no token" in ended.stderr) == (5, True), ended.stderr
    assert "RAY_AUTH_MODE=token" in ended.stderr


@on_ray
def test_each_worker_has_a_gpu_of_its_own_and_what_the_yaml_sets_up(elsewhere: FakeBatch, site: Site) -> None:
    elsewhere.change(executor={"setup": ['echo "has <$CUDA_VISIBLE_DEVICES> of $(hostname) in $PWD"'], "workers": 3})
    elsewhere.script(**{name: ["await go", "train"] for name in ("p0", "p1", "p2")})
    parent = elsewhere.start("train")
    wait_for(lambda: len(list(elsewhere.output.glob("patches/*/attempt-*/start.json"))) == 3, PATIENCE_S)
    (elsewhere.folder / "go").touch()
    _, err = parent.communicate(timeout=PATIENCE_S)
    told = [line for line in words_of(elsewhere).splitlines() if line.startswith("has <")]
    assert (parent.returncode, len(set(told))) == (0, 3), err
    assert all(line.endswith(f"in {elsewhere.folder}") for line in told)
    assert sorted(len(one) for one in nodes_of(elsewhere)) == [1, 1, 1]
    assert len({one[0] for one in nodes_of(elsewhere)}) == 2
    assert "running on n" in err


@on_ray
def test_a_line_of_setup_that_fails_is_named(elsewhere: FakeBatch, site: Site) -> None:
    elsewhere.change(executor={"setup": ["module-that-is-none load cuda"], "workers": 1})
    ended = elsewhere.run_apart("train", timeout_s=PATIENCE_S)
    assert ended.returncode == 5
    assert "module-that-is-none load cuda" in ended.stderr


@on_ray
def test_a_node_that_has_lost_two_workers_gets_no_more_of_them(elsewhere: FakeBatch, site: RaySite) -> None:
    elsewhere.change(executor={"workers": 4})
    for name in ("p3", "p4"):
        shutil.copytree(elsewhere.folder / "patches/p0", elsewhere.folder / "patches" / name)
    elsewhere.script(**{f"p{number}": ["await go", "await go", "await go", "train"] for number in range(5)})
    parent = elsewhere.start("train")
    wait_for(lambda: len(list(elsewhere.output.glob("patches/*/attempt-*/start.json"))) == 4, PATIENCE_S)
    site.cluster.power_off("n1")  # with two workers
    site.cluster.power_on("n1")
    wait_for(lambda: [name for name in site.jobs() if "~" in name])  # started there again, and sent away
    (elsewhere.folder / "go").touch()
    _, err = parent.communicate(timeout=PATIENCE_S)
    assert parent.returncode == 0, err
    starts = Counter(node for one in nodes_of(elsewhere) for node in one)
    assert starts["n1"] == 2, nodes_of(elsewhere)
    assert left_of(elsewhere, patience_s=10) == []


@on_ray
def test_a_head_that_dies_ends_nobodys_batch(elsewhere: FakeBatch, site: RaySite) -> None:
    elsewhere.script(p0=["await go", "train"], p1=["await go", "train"], p2=["await go", "train"])
    parent = elsewhere.start("train")
    wait_for(lambda: len(at_work(elsewhere.output)) == 3, PATIENCE_S)
    site.cluster.stop_head()
    wait_for(
        lambda: [one for one in elsewhere.output.glob("ledger/*.jsonl") if '"stopped"' in one.read_text()], PATIENCE_S
    )
    assert parent.poll() is None  # Ray ends its clients without a word
    site.mend()
    (elsewhere.folder / "go").touch()
    out, err = parent.communicate(timeout=PATIENCE_S)
    assert (parent.returncode, "3 of 3 patches trained" in out) == (0, True), err
    assert "unknown" in err  # what nobody could say
    assert left_of(elsewhere, patience_s=10) == []


@on_ray
def test_a_worker_whose_keeper_ray_kills_stops_with_its_grace_and_goes_on_elsewhere(
    elsewhere: FakeBatch, site: RaySite
) -> None:
    elsewhere.change(executor={"workers": 1})
    elsewhere.script(p0=["train 600", "train"])
    parent = elsewhere.start("train")
    [worker] = wait_for(lambda: at_work(elsewhere.output), PATIENCE_S)
    wait_for(lambda: list(elsewhere.output.glob("patches/p0/attempt-01/start.json")), PATIENCE_S)
    [keeper] = [pid for pid in pids_of(worker.job) if pid != worker_pid(worker.job) and _is_keeper(pid)]
    os.kill(keeper, 9)
    _, err = parent.communicate(timeout=PATIENCE_S)
    assert parent.returncode == 0, err
    events = [json.loads(line) for path in elsewhere.output.glob("ledger/*") for line in path.read_text().splitlines()]
    ends: list[Any] = [one["outcome"] for one in events if one["event"] == "attempt_ended" and one["patch"] == "p0"]
    assert sorted(ends) == ["stopped", "trained"]
    assert [len(one) for one in nodes_of(elsewhere)] == [2]


def _is_keeper(pid: int) -> bool:
    return b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
