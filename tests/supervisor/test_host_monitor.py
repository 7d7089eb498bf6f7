"""Evidence from around the process: what the kernel said, how much room there was, how many files may be open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from supervised import ASLEEP, Attempts, alive, wait_for

from splatbatch import processes
from splatbatch.supervisor import host_monitor
from splatbatch.supervisor.host_monitor import KMSG, KernelLog, concerns, message_of

OURS, OTHER = "0000:3b:00", "0000:86:00"


@pytest.mark.parametrize(
    ("line", "is_ours"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", True),
        ("NVRM: Xid (PCI:0000:86:00): 79, GPU has fallen off the bus.", False),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x40:2477)", True),
        ("NVRM: GPU at PCI:00000000:3B:00: GPU-0123", True),
        ("NVRM: API mismatch: the client has the version 550.54", True),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python,pid=4242,uid=0", True),
        ("Memory cgroup out of memory: Killed process 4242 (python) total-vm:9kB", True),
        ("Out of memory: Killed process 4243 (firefox) total-vm:9kB", False),
        ("usb 1-1: new high-speed USB device number 4", False),
    ],
)
def test_only_lines_about_our_gpu_and_our_processes_concern_us(line: str, is_ours: bool) -> None:
    assert concerns(line, OURS, {4242}) is is_ours


def test_without_a_gpu_no_xid_concerns_us() -> None:
    assert not concerns("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "", set())


def test_the_text_of_a_record_stands_between_its_prefix_and_its_keys() -> None:
    assert message_of(b"6,339,5140900,-;NVRM: hello\n SUBSYSTEM=pci\n") == "NVRM: hello"


def test_a_kernel_log_that_nobody_may_read_says_nothing(tmp_path: Path) -> None:
    log = KernelLog(OURS, str(tmp_path / "missing"))
    log.look(set())
    log.close()
    assert log.lines == []


@pytest.mark.skipif(not os.access(KMSG, os.R_OK | os.W_OK), reason="only root may write the kernel's log")
def test_of_the_kernels_words_only_the_first_new_ones_about_us_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_monitor, "MOST_LINES", 2)
    with Path(KMSG).open("wb", buffering=0) as kernel:
        kernel.write(b"NVRM: Xid (PCI:0000:3b:00): 1, splatbatch test\n")
        log = KernelLog(OURS)
        said = ((OURS, 2), (OTHER, 3), (OURS, 4), (OURS, 5))
        kernel.writelines(f"NVRM: Xid (PCI:{bus}): {number}, splatbatch test\n".encode() for bus, number in said)
    log.look(set())
    assert [line.split()[3] for line in log.lines] == ["2,", "4,"]
    log.close()


def test_the_record_says_how_much_room_there_was(attempt: Attempts) -> None:
    attempt.program("").run()
    assert attempt.end["kernel_lines"] == []
    for key in ("disk_free_mib", "shm_free_mib"):
        assert attempt.end[key] is None or attempt.end[key] >= 0


@pytest.mark.contract
def test_the_program_may_open_as_many_files_as_the_hard_limit_allows(attempt: Attempts) -> None:
    limit = "resource.getrlimit(resource.RLIMIT_NOFILE)"
    code = f"import resource; soft, hard = {limit}; print(soft in (hard, {processes.MOST_FILES}))"
    attempt.program(code).run_apart()
    assert attempt.folder.log.read_text() == "True\n"


@pytest.mark.contract
def test_what_a_killed_supervisor_leaves_behind_is_found_by_its_key_and_ended(attempt: Attempts) -> None:
    spawn = (
        "import subprocess; p = subprocess.Popen(['sleep', '600'], start_new_session=True); print(p.pid, flush=True)"
    )
    supervisor = attempt.program(f"{spawn}; {ASLEEP}", key="batch7.p0.a1").until_ready()
    grandchild = int(attempt.folder.log.read_text().split()[0])
    supervisor.kill()
    supervisor.wait()
    wait_for(lambda: processes.with_marker("batch7.p0.") == {grandchild: "batch7.p0.a1"})
    processes.end_marked("batch7.p0.a1")
    assert not alive(grandchild)
