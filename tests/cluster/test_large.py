"""What takes minutes: many tasks on many workers, and our own trainer on nodes, against bars."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_batch import QUARRY, FakeBatch
from sites import Site, SlurmSite, wait_for
from worker_batch import counts, faults_of, make

from splatbatch.files import read_json
from splatbatch.output.workers import LOCAL

pytestmark = pytest.mark.long

NUM_TASKS, NUM_WORKERS = 1000, 12
MOST_CALLS_PER_S = 1 / 5
MOST_CPU_S = 10.0
COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")
COUNTED = """\
#!/bin/sh
echo {name} >> {log}
exec {real} "$@"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Count what is asked of Slurm from now on, by whomever we start here: a line for each call."""
    shims, log = tmp_path / "shims", tmp_path / "calls"
    shims.mkdir()
    log.touch()
    for name in COMMANDS:
        (shims / name).write_text(COUNTED.format(name=name, log=log, real=shutil.which(name)))
        (shims / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}:{os.environ['PATH']}")
    yield log


def test_1000_tasks_on_12_workers_of_3_nodes_cost_the_parent_little_and_slurm_less(
    tmp_path: Path,
    site: SlurmSite,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, Any], None],
) -> None:
    monkeypatch.setenv("FAKE_TRAINER_INSTANT", "1")
    monkeypatch.delenv("FAKE_TRAINER_CONSTANTS")
    batch = make(tmp_path / "batch", NUM_TASKS)
    batch.change(executor={**site.executor, "workers": NUM_WORKERS, "gpus_per_worker": 0})
    batch.change(executor={"sbatch": ["--cpus-per-task=4"]})  # four fit on a node
    began = time.monotonic()
    parent = batch.start("train")
    out, err = parent.stdout.read(), parent.stderr.read()  # type: ignore[union-attr]
    _, status, used = os.wait4(parent.pid, 0)
    parent.returncode = os.waitstatus_to_exitcode(status)
    wall_s, cpu_s, num_calls = time.monotonic() - began, used.ru_utime + used.ru_stime, len(calls.read_text().split())
    records = [read_json(path) for path in batch.output.glob("workers/*.json") if path.stem != LOCAL]
    nodes = {record["host"] for record in records}  # type: ignore[index]
    cost = f"{wall_s:.0f} s, parent {cpu_s:.1f} s of CPU, {num_calls} calls of Slurm"
    record_property("figure", f"{cost}, {counts(batch, NUM_TASKS)}, on {nodes}")
    assert (parent.returncode, f"{NUM_TASKS} of {NUM_TASKS} patches trained" in out) == (0, True), err[-2000:]
    assert wait_for(lambda: site.jobs() == [])
    assert faults_of(batch, NUM_TASKS) == []
    assert nodes == {"n1", "n2", "n3"}
    assert cpu_s <= MOST_CPU_S
    assert num_calls <= max(6, wall_s * MOST_CALLS_PER_S)


def test_our_trainer_makes_the_same_splats_on_nodes_as_here(tmp_path: Path, site: Site) -> None:
    hashes = [
        splats_of(quarry(tmp_path / name, executor)) for name, executor in (("here", {}), ("there", site.executor))
    ]
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 2


def quarry(folder: Path, executor: dict[str, Any]) -> FakeBatch:
    """Make a batch of the quarry, to be trained for some steps on one core."""
    batch = FakeBatch(folder)
    folder.mkdir()
    settings = yaml.safe_load((QUARRY / "splat_config.yml").read_text())
    settings["scene"] = {key: str(QUARRY / place) for key, place in settings["scene"].items()}
    settings["training"] |= {"max_steps": 40, "device": "cpu", "seed": 7}
    settings["executor"] = {**executor, "cpu_slots": 1} | ({"workers": 2} if executor else {})
    batch.settings = settings
    batch.change(output={"folder": "output", "previews_mib": 0})
    return batch


def splats_of(batch: FakeBatch) -> dict[str, Any]:
    """Train with our own trainer; return of each patch the hash of its splat, and what the report says of that."""
    command = [sys.executable, "-m", "splatbatch", "train"]
    environment = {**os.environ, "SPLATBATCH_CONFIG": str(batch.config)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    rows = {one["patch"]: one for one in (read_json(batch.output / "report.json") or {})["patches"]}
    said = {
        name: [row[key] for key in ("state", "psnr", "ssim", "loss", "num_gaussians")] for name, row in rows.items()
    }
    return {name: (batch.result(name)["splat"]["sha256"], said[name]) for name in ("p0", "p1")}
