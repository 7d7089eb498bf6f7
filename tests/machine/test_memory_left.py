"""The memory that is left: that of the machine, or of the tightest of the control groups around this process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from splatbatch import processes
from splatbatch.files import MIB

V2 = ("memory.max", "memory.current")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")


class Kernel:
    """The kernel's files about this process, with a hierarchy of control groups below a temporary folder."""

    def __init__(self, top: Path, patch: pytest.MonkeyPatch) -> None:
        self.top, self.texts = top, {"/proc/meminfo": "MemAvailable: 64000000 kB\n"}
        real = processes.kernel_file
        patch.setattr(processes, "kernel_file", lambda path: self.texts.get(path, real(path)))

    def mounted(self, name: str, root: str = "/", *, old: bool = False) -> None:
        kind = "cgroup cgroup rw,memory" if old else "cgroup2 cgroup2 rw,nsdelegate"
        self.texts["/proc/self/mountinfo"] = (
            f"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 23 0:28 {root} {self.top} ro,nosuid shared:4 - {kind}\n"
        )
        self.texts["/proc/self/cgroup"] = f"3:cpu,cpuacct:/else\n4:{'memory' if old else 'pids'}:{name}\n" + (
            "" if old else f"0::{name}\n"
        )

    def group(self, name: str, limit: object, used: int, stat: str = "", *, old: bool = False) -> None:
        folder = self.top / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in zip((*(V1 if old else V2), "memory.stat"), (limit, used, stat), strict=True):
            (folder / file).write_text(f"{text}\n")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


@pytest.mark.parametrize("old", [False, True], ids=["v2", "v1"])
def test_the_tightest_group_counts_wherever_it_is_above_this_process(kernel: Kernel, old: bool) -> None:
    kernel.mounted("/slurm/job_7/step_0", old=old)
    kernel.group("slurm/job_7/step_0", 1 << 62 if old else "max", 100 * MIB, old=old)
    kernel.group("slurm/job_7", 8000 * MIB, 3000 * MIB, old=old)
    kernel.group("slurm", 32000 * MIB, 9000 * MIB, old=old)
    assert processes.available_mib() == 5000


@pytest.mark.parametrize("old", [False, True], ids=["v2", "v1"])
def test_what_a_group_holds_of_files_counts_as_free_as_the_kernel_counts_it(kernel: Kernel, old: bool) -> None:
    kernel.mounted("/job", old=old)
    total = "total_" if old else ""
    stat = f"anon 9\n{total}inactive_file {500 * MIB}\n{total}active_file {400 * MIB}"
    kernel.group("job", 2000 * MIB, 1900 * MIB, stat, old=old)
    assert processes.available_mib() == 1000


def test_a_container_that_shows_only_its_own_groups_is_read_from_there(kernel: Kernel) -> None:
    kernel.mounted("/docker/abc/inner", root="/docker/abc", old=True)
    kernel.group("inner", 1 << 62, 0, old=True)
    kernel.group("", 4000 * MIB, 1000 * MIB, old=True)
    assert processes.available_mib() == 3000
    assert processes.control_groups()["memory"] == [kernel.top / "inner", kernel.top]


@pytest.mark.parametrize(
    ("texts", "cores"),
    [
        ({"inner/cpu.max": "max 100000\n", "cpu.max": "250000 100000\n"}, 3),
        ({"inner/cpu.max": "50000 100000\n", "cpu.max": "250000 100000\n"}, 1),
        ({"inner/cpu.cfs_quota_us": "-1\n", "inner/cpu.cfs_period_us": "100000\n"}, 64),
        ({"inner/cpu.cfs_quota_us": "200000\n", "inner/cpu.cfs_period_us": "100000\n"}, 2),
    ],
)
def test_a_quota_of_a_group_limits_the_cores(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, texts: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr(processes.os, "sched_getaffinity", lambda _: range(64))
    kernel.mounted("/inner", old="inner/cpu.max" not in texts)
    for path in ("/proc/self/mountinfo", "/proc/self/cgroup"):
        kernel.texts[path] = kernel.texts[path].replace("memory", "cpu,cpuacct")
    kernel.texts |= {f"{kernel.top}/{file}": text for file, text in texts.items()}
    assert processes.num_cores.__wrapped__() == cores  # which is asked once per process


def test_without_groups_the_machine_counts_and_without_that_nothing_is_known(kernel: Kernel) -> None:
    kernel.texts |= {"/proc/self/cgroup": "", "/proc/self/mountinfo": ""}
    assert processes.available_mib() == 62500
    kernel.texts["/proc/meminfo"] = ""
    assert processes.available_mib() == sys.maxsize
