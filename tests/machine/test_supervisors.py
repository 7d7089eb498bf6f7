"""A supervisor that was forked is as one that was started as a program; without the server it is one."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import ASLEEP, PATIENCE_S, alive, wait_for

from splatbatch import processes
from splatbatch.files import read_json
from splatbatch.machine import supervisors
from splatbatch.machine.supervisors import Child, ForkedChild, Supervisors
from splatbatch.output.attempt_folder import AttemptFolder

PYTHON = (sys.executable, "-c")


class Starts:
    """Starts supervisors over small programs."""

    def __init__(self, root: Path) -> None:
        processes.adopt_orphans()
        self.root, self.supervisors, self.started = root, Supervisors(), list[Child]()

    def folder(self, *argv: str) -> AttemptFolder:
        folder = AttemptFolder(self.root / f"attempt-{len(self.started) + 1:02d}")
        folder.path.mkdir(parents=True)
        folder.job.write_text(json.dumps({"argv": argv, "limits": {"wall_s": 60.0, "grace_s": 0.3}}))
        return folder

    def start(self, *argv: str) -> tuple[AttemptFolder, Child]:
        folder = self.folder(*argv)
        self.started.append(self.supervisors.start(folder))
        return folder, self.started[-1]

    def asleep(self) -> tuple[AttemptFolder, Child]:
        folder, child = self.start(*PYTHON, ASLEEP)
        wait_for(folder.heartbeat.exists)
        return folder, child

    def close(self) -> None:
        for child in self.started:
            child.send_signal(signal.SIGTERM)
            child.wait(PATIENCE_S)
        self.supervisors.close()


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Starts]:
    starts = Starts(tmp_path)
    yield starts
    starts.close()


def of_proc(pid: int) -> dict[str, object]:
    """Return what tells a process from another: its command line, its session, where its descriptors lead."""
    descriptors = {str(one.readlink()).partition(":[")[0] for one in Path(f"/proc/{pid}/fd").iterdir()}
    argv = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return {
        "argv": argv[:3],
        "leads": os.getsid(pid) == pid,
        "parent": parent,
        "descriptors": {Path(one).name for one in descriptors},
    }


@pytest.mark.contract
def test_a_forked_supervisor_looks_like_one_that_was_started_as_a_program(starts: Starts) -> None:
    forked_folder, forked = starts.asleep()
    starts.supervisors._is_given_up = True
    plain_folder, plain = starts.asleep()
    assert isinstance(forked, ForkedChild)
    assert isinstance(plain, subprocess.Popen)
    wait_for(lambda: of_proc(forked.pid) == of_proc(plain.pid))  # either may just be writing a file
    for folder, child in ((forked_folder, forked), (plain_folder, plain)):
        assert Path(f"/proc/{child.pid}/cmdline").read_bytes().split(b"\0")[3] == os.fsencode(folder.path)
        assert (read_json(folder.start) or {})["pid"] == child.pid


@pytest.mark.all(but="raise SystemExit(3)-1")
@pytest.mark.contract
@pytest.mark.parametrize(("code", "ends_with"), [("", 0), ("raise SystemExit(3)", 1)])
def test_how_a_forked_supervisor_ended_is_known(starts: Starts, code: str, ends_with: int) -> None:
    folder, child = starts.start(*PYTHON, code)
    assert child.wait(PATIENCE_S) == ends_with
    assert child.poll() == ends_with
    assert (read_json(folder.exit) or {})["kind"] == "exited"


@pytest.mark.all
def test_a_killed_one_is_known_to_be_killed(starts: Starts) -> None:
    _, child = starts.asleep()
    child.send_signal(signal.SIGKILL)
    assert child.wait(PATIENCE_S) == -signal.SIGKILL


@pytest.mark.all
def test_a_second_start_of_a_folder_is_fenced(starts: Starts) -> None:
    folder, child = starts.start(*PYTHON, "")
    child.wait(PATIENCE_S)
    again = starts.supervisors.start(folder)
    assert again.wait(PATIENCE_S) == 75


@pytest.mark.contract
def test_when_the_server_dies_supervisors_live_on_and_the_next_one_starts_as_a_program(starts: Starts) -> None:
    folder, child = starts.asleep()
    os.kill(starts.supervisors.server() or 0, signal.SIGKILL)
    _, after = starts.asleep()
    assert isinstance(after, subprocess.Popen)
    assert child.poll() is None
    assert not folder.exit.exists()
    assert starts.supervisors.server() is None


@pytest.mark.contract
def test_a_server_that_stands_still_is_not_waited_for_long(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    _, child = starts.asleep()
    server = starts.supervisors.server() or 0
    starts.supervisors._server.channel.settimeout(0.3)  # type: ignore[union-attr]
    os.kill(server, signal.SIGSTOP)
    folder, after = starts.start(*PYTHON, "")
    assert after.wait(PATIENCE_S) == 0
    assert isinstance(after, subprocess.Popen)
    assert not alive(server)
    assert child.poll() is None
    assert (read_json(folder.exit) or {})["code"] == 0


@pytest.mark.all
def test_a_server_that_cannot_be_started_costs_nothing_but_time(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "FORK_SERVER", "splatbatch.nowhere")
    _, child = starts.start(*PYTHON, "")
    assert child.wait(PATIENCE_S) == 0
    assert isinstance(child, subprocess.Popen)


@pytest.mark.all
def test_a_server_forks_also_where_whoever_started_us_ignores_the_end_of_children(starts: Starts) -> None:
    """Ignored signals are inherited, and the kernel then forgets children that nobody has waited for."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        starts.supervisors._server = supervisors._Server.start()
    finally:
        signal.signal(signal.SIGCHLD, before)
    folder, child = starts.start(*PYTHON, "")
    assert isinstance(child, ForkedChild)
    assert child.wait(PATIENCE_S) == 0
    assert (read_json(folder.exit) or {})["code"] == 0


@pytest.mark.all
def test_a_path_for_which_the_command_line_has_no_room_is_supervised_all_the_same(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "ROOM", 16)
    starts.root = starts.root / ("long" * 50)
    _, child = starts.start(*PYTHON, "")
    assert child.wait(PATIENCE_S) == 0
    assert isinstance(child, subprocess.Popen)


PARENT = """
import json, os, sys, time
from pathlib import Path
from splatbatch import processes
from splatbatch.machine.supervisors import Supervisors
from splatbatch.output.attempt_folder import AttemptFolder
processes.adopt_orphans()
starts = Supervisors()
child = starts.start(AttemptFolder(Path(sys.argv[1])))
print(json.dumps([child.pid, starts.server()]), flush=True)
time.sleep(600)
"""


@pytest.mark.contract
def test_when_the_parent_is_killed_the_server_is_gone_and_its_supervisors_stop_and_tell(starts: Starts) -> None:
    folder = starts.folder(*PYTHON, ASLEEP)
    parent = subprocess.Popen([*PYTHON, PARENT, str(folder.path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    pid, server = json.loads(parent.stdout.readline())
    wait_for(folder.heartbeat.exists)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert wait_for(lambda: read_json(folder.exit))["kind"] == "cancelled"
    wait_for(lambda: not alive(pid) and not alive(server))


def cpu_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def of_bare_python() -> float:
    """Return the CPU time of an interpreter that does nothing: what this machine makes of a millisecond now."""
    before = cpu_s(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", ""], check=True)
    return cpu_s(resource.RUSAGE_CHILDREN) - before


@pytest.mark.all
def test_a_supervisor_costs_no_more_than_a_few_interpreters_that_do_nothing(starts: Starts) -> None:
    """13 ms with the program against 12 ms, on a quiet machine; as a program it took 165 ms."""
    starts.start("/bin/true")[1].wait(PATIENCE_S)
    ratios = []
    for _ in range(7):
        bare, before = of_bare_python(), cpu_s(resource.RUSAGE_CHILDREN)
        assert starts.start("/bin/true")[1].wait(PATIENCE_S) == 0
        ratios.append((cpu_s(resource.RUSAGE_CHILDREN) - before) / bare)
    assert min(ratios) < 3.0
