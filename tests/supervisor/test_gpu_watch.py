"""What an attempt holds of its GPU, by NVML: by the numbers of its processes; where these mean nothing, by who came."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from splatbatch import processes
from splatbatch.machine import gpu
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.attempt import GpuSample
from splatbatch.supervisor.host_monitor import GpuWatch

STRANGER, OURS, NEXT = 1 << 30, (1 << 30) + 1, (1 << 30) + 2  # numbers that no process here has
MIB = {STRANGER: 100, OURS: 2000, NEXT: 600}


def seen(watch: GpuWatch, monkeypatch: pytest.MonkeyPatch, *looks: tuple[int, ...]) -> list[int | None]:
    """Return what the watch says of its own at looks that find these processes on the GPU."""
    found = []
    for pids in looks:
        sample = GpuSample(processes=pids, process_mib=tuple(MIB.get(pid, 300) for pid in pids))
        monkeypatch.setattr(gpu, "sample", lambda _, sample=sample: sample)
        watch.look()
        found.append(watch._folder.read_gpu_samples()[-1].own_mib)
    return found


def test_its_processes_are_known_by_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "descendants", lambda _: [7, 8])
    watch = GpuWatch(AttemptFolder(tmp_path), "GPU-0")
    assert seen(watch, monkeypatch, (STRANGER,), (STRANGER, 7), (7, 8, NEXT)) == [None, 300, 600]
    assert watch.own_peak_mib == 600


def test_in_a_container_it_is_the_one_that_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = GpuWatch(AttemptFolder(tmp_path), "GPU-0")
    assert seen(watch, monkeypatch, (STRANGER,), (STRANGER, os.getpid()), (STRANGER, OURS)) == [None, None, 2000]


def test_who_opens_a_context_later_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = GpuWatch(AttemptFolder(tmp_path), "GPU-0")
    assert seen(watch, monkeypatch, (), (OURS,), (OURS, NEXT), (NEXT,)) == [None, 2000, 2000, None]


def test_of_several_that_come_at_once_nobody_can_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = GpuWatch(AttemptFolder(tmp_path), "GPU-0")
    assert seen(watch, monkeypatch, (), (OURS, NEXT), (NEXT,)) == [None, None, None]


def test_who_had_its_context_before_its_turn_is_none_of_those_that_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := AttemptFolder(tmp_path)).ahead.write_text("{}")
    watch = GpuWatch(folder, "GPU-0")
    assert seen(watch, monkeypatch, (OURS,), (OURS, NEXT), (NEXT,)) == [None, None, None]
    assert watch.own_peak_mib is None
