"""Eight workers, killed at random over tasks that take no time: each task is accepted once, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import worker_batch


@pytest.mark.all
@pytest.mark.parametrize(
    ("tasks", "kills", "of"), [(30, 12, ""), (15, 10, "cut"), pytest.param(500, 200, "", marks=pytest.mark.long)]
)
def test_whoever_is_killed_every_task_is_accepted_exactly_once(
    tmp_path: Path, record_property: pytest.RecordProperty, tasks: int, kills: int, of: str
) -> None:
    command = [sys.executable, worker_batch.__file__, str(tmp_path), str(tasks), str(kills), "0", of]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(ended.stdout)
    did = f"{tasks} tasks, {told['killed']} workers killed, {told['attempts']} attempts"
    record_property("figure", f"{did}, {told['duplicates']} trained in vain, {told['seconds']:.0f} s")
    assert told["faults"] == []
    assert told["killed"] >= 0.8 * kills
    assert set(told["codes"]) == {"0"}, (tmp_path / "workers.log").read_text()[-4000:]
