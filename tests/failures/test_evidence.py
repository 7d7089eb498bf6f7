"""What was seen around an attempt speaks for causes that its own log does not name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_trainer import FakeTrainer

from splatbatch.config import Recipe
from splatbatch.files import write_json
from splatbatch.outcome import Exit, Exited, Failed, Killed
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.scheduler import judge

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, GPU has fallen off the bus."
OOM = "Memory cgroup out of memory: Killed process 4242 (python) total-vm:9kB"


@pytest.mark.parametrize(
    ("record", "end", "cause", "quoted"),
    [
        ({"kernel_lines": [XID]}, Exited(1), "gpu_hardware_fault", XID),
        ({"kernel_lines": [OOM]}, Killed(9), "host_oom", OOM),
        ({"out_of_memory": True}, Killed(9), "host_oom", "the kernel's OOM killer ended a process"),
        ({"disk_free_mib": 0}, Exited(0), "disk_full", "0 MiB were free on the disk"),
        ({"shm_free_mib": 1}, Killed(7), "shm_bus_error", "1 MiB were free on /dev/shm"),
        ({"disk_free_mib": 9000, "shm_free_mib": None}, Exited(0), "incomplete_artifact", "missing"),
    ],
)
def test_a_silent_failure_is_explained_by_what_happened_around_it(
    tmp_path: Path, record: dict[str, Any], end: Exit, cause: str, quoted: str
) -> None:
    folder = AttemptFolder(tmp_path)
    write_json(folder.exit, record)
    outcome = judge.judge(folder, FakeTrainer(Recipe()), end)
    assert isinstance(outcome, Failed)
    assert outcome.diagnosis.cause == cause
    assert quoted in outcome.diagnosis.evidence[0]
