"""The MPS daemon of a batch: started where it can be, and never left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_batch import FakeBatch
from supervised import alive, wait_for

from splatbatch.config import Executor as ExecutorConfig
from splatbatch.machine import gpu
from splatbatch.machine.local import LocalExecutor
from splatbatch.machine.mps import DAEMON, Mps
from splatbatch.output.ledger import Ledger
from splatbatch.scheduler.work.adopt import adopt
from splatbatch.tasks.batch import open_batch

READY = 'echo $$ > "$TOLD"; touch "$CUDA_MPS_PIPE_DIRECTORY/control"; '
SERVER = 'sleep 600 & echo $! > "$TOLD.server"; '


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TOLD", str(tmp_path / "pid"))
    return tmp_path / "pid"


def install(told: Path, script: str) -> None:
    """Put a daemon on the PATH."""
    program = told.with_name(DAEMON)
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)


def test_without_the_program_there_is_no_mps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Mps.start([]) is None


@pytest.mark.contract
def test_attempts_are_told_where_the_daemon_listens_and_it_ends_with_its_server(told: Path) -> None:
    install(told, f"{SERVER}{READY}wait")
    mps = Mps.start([])
    assert mps is not None
    folder = Path(dict(mps.environment)["CUDA_MPS_PIPE_DIRECTORY"])
    pids = [int(path.read_text()) for path in (told, told.with_suffix(".server"))]
    assert all(alive(pid) for pid in pids)
    mps.stop()
    assert not any(alive(pid) for pid in pids)
    assert not folder.exists()


@pytest.mark.contract
def test_a_daemon_that_is_deaf_is_ended_by_force(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatbatch.machine.mps.QUIT_S", 0.2)
    install(told, f"trap '' TERM; {READY}while true; do sleep 0.1; done")
    mps = Mps.start([])
    assert mps is not None
    mps.stop()
    assert not alive(int(told.read_text()))


@pytest.mark.all
def test_a_daemon_that_does_not_come_up_is_done_without(told: Path) -> None:
    install(told, "exit 1")
    assert Mps.start([]) is None


@pytest.mark.contract
def test_a_daemon_ends_when_its_batch_is_killed_and_the_next_run_sweeps_up_its_server(told: Path) -> None:
    install(told, f"{SERVER}{READY}wait")
    code = "from splatbatch.machine.mps import Mps; Mps.start([]); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout and parent.stdout.readline()
        parent.kill()
    wait_for(lambda: not alive(int(told.read_text())))
    server = int(told.with_suffix(".server").read_text())
    mps = Mps.start([])
    assert mps is not None
    assert not alive(server)
    mps.stop()


@pytest.mark.all
def test_a_look_for_attempts_of_an_earlier_run_starts_no_daemon(
    told: Path, batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(told, f"{READY}sleep 600")
    monkeypatch.setattr(gpu, "gpus", lambda: (gpu.Gpu(0, "GPU-a", "H200", 1),))
    batch.make("p0", training={"device": "cuda"}, executor={"patches_per_gpu": 2})
    opened = open_batch(batch.config)
    opened.output.create()
    opened.output.patch("p0").new_attempt()
    adopt(opened, Ledger(opened.output.ledger))
    assert not told.exists()


@pytest.mark.all(but="False")
@pytest.mark.parametrize("shares", [False, True])
def test_mps_is_started_only_for_patches_that_share_a_gpu(
    told: Path, monkeypatch: pytest.MonkeyPatch, shares: bool
) -> None:
    install(told, f"{READY}sleep 600")
    monkeypatch.setattr(gpu, "gpus", lambda: (gpu.Gpu(0, "GPU-a", "H200", 1),))
    executor = LocalExecutor(ExecutorConfig(), "cuda", shares_gpus=shares)
    assert ("CUDA_MPS_PIPE_DIRECTORY" in dict(executor.slots[0].environment)) == shares == bool(executor.shared_mib)
    executor.close()


@pytest.mark.all
def test_the_daemon_serves_the_gpus_of_the_batch_where_the_shell_shows_others(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(told, f'echo "$CUDA_VISIBLE_DEVICES" > "$TOLD.cards"; {READY}sleep 600')
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    cards = tuple(gpu.Gpu(index, f"GPU-{index}", "H200", 1) for index in range(4))
    monkeypatch.setattr(gpu, "gpus", lambda: cards)
    executor = LocalExecutor(ExecutorConfig(gpus=[0, 2]), "cuda", shares_gpus=True)
    executor.close()
    assert told.with_suffix(".cards").read_text().strip() == "GPU-0,GPU-2"
