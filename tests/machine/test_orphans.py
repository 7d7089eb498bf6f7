"""Supervisors that stand still, and processes that hide from everybody: no batch waits for them, and none is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fake_batch import FakeBatch
from process_family import family, fugitives, wait_until
from supervised import Attempts, wait_for

from splatbatch import processes
from splatbatch.config import Executor as ExecutorConfig
from splatbatch.files import read_json, write_json
from splatbatch.machine import control_group, orphans
from splatbatch.machine.local import LocalExecutor, SupervisorWatchdog
from splatbatch.machine.supervisors import ForkedChild
from splatbatch.output.attempt_folder import AttemptFolder

AT_ONCE = {
    "splatbatch.machine.local.SILENCE_S": 0.3,
    "splatbatch.machine.local.WAKING_S": 0.3,
    "splatbatch.machine.local.LOOK_S": 0.05,
    "splatbatch.supervisor.watch.HEARTBEAT_S": 0.05,
}
QUICK = {"splatbatch.machine.local.SILENCE_S": 1.0, "splatbatch.machine.local.WAKING_S": 1.0}
HIDING = "import os, time\nif os.fork() == 0:\n os.setsid(); os.execve('/bin/sleep', ['sleep', '600'], {})\n"


def start(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, **constants: float) -> subprocess.Popen[str]:
    """Start a batch; return when its first attempt trains and has beaten since."""
    monkeypatch.setenv("FAKE_TRAINER_CONSTANTS", json.dumps(QUICK | constants))
    parent, folder = batch.start("train"), AttemptFolder(batch.output / "patches/p0/attempt-01")
    wait_until(folder.progress.exists)
    beats = beats_of(folder)
    wait_until(lambda: beats_of(folder) >= beats + 2)
    return parent


def beats_of(folder: AttemptFolder) -> int:
    return (read_json(folder.heartbeat) or {}).get("sequence", 0)


def supervisor_of(parent: subprocess.Popen[str]) -> int:
    return family(parent.pid)["supervisor"][0]


def plague(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Signal the supervisor of the first attempt whenever its batch looks, once its fugitive is written down."""
    folder, poll = AttemptFolder(batch.output / "patches/p0/attempt-01"), LocalExecutor.poll

    def plagued(executor: LocalExecutor, handles: Any) -> Any:
        below = (read_json(folder.heartbeat) or {}).get("below", [])
        if any(int(name.partition(":")[0]) in fugitives(batch) for name in below):
            processes.send(number, [(read_json(folder.start) or {})["pid"]])
        return poll(executor, handles)

    monkeypatch.setattr(LocalExecutor, "poll", plagued)


def forget(batch: FakeBatch, file: str, field: str) -> None:
    """Remove a field from a file of the first attempt, as if nobody had known."""
    path = batch.output / "patches/p0/attempt-01" / file
    write_json(path, {key: value for key, value in (read_json(path) or {}).items() if key != field})


@pytest.mark.all
def test_a_supervisor_that_stands_still_is_woken_and_nothing_is_lost(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = start(batch.make("p0").script(p0=["train 3"]), monkeypatch)
    os.kill(supervisor_of(parent), signal.SIGSTOP)
    parent.communicate(timeout=30)
    assert parent.returncode == 0
    assert [event["outcome"] for event in batch.events("attempt_ended")] == ["trained"]


@pytest.mark.contract
def test_a_supervisor_that_will_not_wake_is_ended_and_its_patch_trained_again(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch.make("p0", constants=AT_ONCE).script(p0=["train-with-fugitive 600", "train"])
    plague(batch, monkeypatch, signal.SIGSTOP)  # whoever wakes it, it stands still again
    assert batch.run("train").returncode == 0
    assert [event.get("diagnosis", {}).get("cause") for event in batch.events("attempt_ended")] == ["lost", None]
    assert fugitives(batch) == []


@pytest.mark.all
def test_a_batch_whose_supervisor_stands_still_obeys_sigterm(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = start(batch.make("p0").script(p0=["hang"]), monkeypatch, **{"splatbatch.machine.local.SILENCE_S": 99})
    os.kill(supervisor_of(parent), signal.SIGSTOP)
    began = time.monotonic()
    parent.terminate()
    assert parent.wait(60) == 143
    assert time.monotonic() - began < 40, "long before its supervisor counts as silent"
    assert batch.events("attempt_ended")[0]["outcome"] == "stopped"


@pytest.mark.all
def test_what_a_killed_parent_leaves_standing_still_is_ended_by_the_next_run(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = start(batch.make("p0").script(p0=["train-with-fugitive 600", "train"]), monkeypatch)
    supervisor = supervisor_of(parent)
    os.kill(supervisor, signal.SIGSTOP)
    parent.kill()
    parent.communicate()
    assert batch.run("train").returncode == 0
    assert processes.start_ticks(supervisor) == 0
    assert fugitives(batch) == []


@pytest.mark.contract
def test_a_process_that_hides_does_not_survive_its_killed_supervisor(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch.make("p0", constants=AT_ONCE).script(p0=["train-with-fugitive 600", "train"])
    plague(batch, monkeypatch, signal.SIGKILL)
    assert batch.run("train").returncode == 0
    assert len(batch.events("attempt_ended")) == 2
    assert fugitives(batch) == []


def test_processes_of_another_container_are_nobody_here(tmp_path: Path) -> None:
    me, ticks, group = os.getpid(), processes.start_ticks(os.getpid()), tmp_path / "splatbatch-7-8"
    group.mkdir()
    (group / "cgroup.procs").write_text("0\n")  # what the kernel says of one that has no number in our space
    folder = AttemptFolder(tmp_path)
    here = {"boot_id": processes.boot_id(), "pid": 7, "ticks": 8, "group": str(group)}
    write_json(folder.heartbeat, {"below": [f"{me}:{ticks}"]})
    write_json(folder.start, {**here, "space": "pid:[1]"})
    assert orphans.find(folder) == []
    for space in ("", processes.pid_space()):
        write_json(folder.start, {**here, "space": space})
        assert orphans.find(folder) == [me]


@pytest.mark.all
@pytest.mark.parametrize(("file", "unknown"), [("start.json", "group"), ("heartbeat.json", "below")])
def test_a_process_that_hides_from_a_killed_batch_is_ended_by_the_next_run(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, file: str, unknown: str
) -> None:
    parent = start(batch.make("p0").script(p0=["train-with-fugitive 600", "train"]), monkeypatch)
    if unknown == "below" and not (read_json(batch.output / "patches/p0/attempt-01/start.json") or {})["group"]:
        parent.kill()
        pytest.skip("no control group (cgroup v2) may be made here")
    for pid in (parent.pid, supervisor_of(parent)):
        os.kill(pid, signal.SIGKILL)
    parent.communicate()
    forget(batch, file, unknown)
    assert len(fugitives(batch)) == 1
    assert batch.run("train").returncode == 0
    assert fugitives(batch) == []


@pytest.mark.contract
def test_a_process_that_nobody_wrote_down_falls_to_the_parent_of_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "end", lambda _: None)
    attempts = Attempts(tmp_path).program(f"{HIDING}time.sleep(600)", key="b.p0.a1")
    executor = LocalExecutor(ExecutorConfig(cpu_slots=1), "cpu")
    handles = {"b.p0.a1": executor.submit("b.p0.a1", attempts.folder)}
    wait_for(lambda: len(processes.descendants(supervisor := pid_of(handles))) == 2 and supervisor)
    bystander = subprocess.Popen(["sleep", "600"], env={processes.MARKER: "hook"}, start_new_session=True)
    hidden = processes.descendants(pid_of(handles))
    os.kill(pid_of(handles), signal.SIGKILL)
    wait_for(lambda: executor.poll(handles)["b.p0.a1"])
    assert [pid for pid in hidden if processes.start_ticks(pid)] == []
    assert bystander.poll() is None
    bystander.kill()


def pid_of(handles: Any) -> int:
    return int(handles["b.p0.a1"].partition(":")[0])


@pytest.mark.parametrize("name", ["{me}:1", "1:{ticks}", "x:y", "{me}", "", "0:0", "99999999:5"])
def test_a_number_that_somebody_else_has_by_now_is_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder, other, signals = AttemptFolder(tmp_path), os.getpid(), []
    monkeypatch.setattr(os, "kill", lambda *told: signals.append(told))
    write_json(folder.start, {"boot_id": processes.boot_id(), "pid": 1, "ticks": 1, "group": "/sys/fs/cgroup"})
    write_json(folder.heartbeat, {"below": [name.format(me=other, ticks=processes.start_ticks(other))]})
    assert orphans.find(folder) == []
    orphans.end(folder)
    write_json(folder.heartbeat, {"below": [f"{other}:{processes.start_ticks(other)}"]})
    write_json(folder.start, {"boot_id": "another"})
    assert orphans.find(folder) == []
    orphans.end(folder)
    assert signals == []


@pytest.mark.parametrize("junk", [{"below": 7}, {"below": [1, None, [2]]}, {"below": {"a": 1}}, {}])
def test_junk_in_a_heartbeat_names_nobody(tmp_path: Path, junk: dict[str, Any]) -> None:
    folder = AttemptFolder(tmp_path)
    write_json(folder.start, {"boot_id": processes.boot_id()})
    write_json(folder.heartbeat, junk)
    assert orphans.find(folder) == []


@pytest.mark.contract
def test_a_control_group_ends_all_that_is_in_it_and_goes() -> None:
    group = control_group.make(processes.start_ticks(os.getpid()))
    if group is None:
        pytest.skip("no control group (cgroup v2) may be made here")
    command = [sys.executable, "-c", f"{HIDING}time.sleep(600)"]
    process = subprocess.Popen(command, preexec_fn=lambda: control_group.enter(group))  # noqa: PLW1509
    wait_for(lambda: len(control_group.members(group)) == 2)
    control_group.end(group)
    assert process.wait(5) == -signal.SIGKILL
    assert not group.exists()


def test_the_empty_group_of_a_killed_supervisor_is_removed_by_the_next_one() -> None:
    first = control_group.make(1)
    if first is None:
        pytest.skip("no control group (cgroup v2) may be made here")
    second = control_group.make(processes.start_ticks(os.getpid()))
    assert not first.exists()
    control_group.end(second)


@pytest.mark.contract
def test_an_attempt_leaves_no_control_group_behind(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path).program("print('hello')")
    assert attempts.run_apart() == 0
    group = (read_json(attempts.folder.start) or {})["group"]
    assert group is None or not Path(group).exists()


def test_time_in_which_we_stood_still_ourselves_does_not_count_as_silence(tmp_path: Path) -> None:
    now = 1000.0
    watch = SupervisorWatchdog(ForkedChild(1 << 30), AttemptFolder(tmp_path))
    for passed_s in (2.0, 2.0, 3600.0, 2.0):
        now += passed_s
        assert watch.look(now) == ""
    assert watch.silent_s < 10


def test_a_supervisor_that_waits_for_a_disk_is_given_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "stat_of", lambda _: ["D"])
    watch = SupervisorWatchdog(ForkedChild(1 << 30), AttemptFolder(tmp_path))
    orders = [watch.look(1000.0 + second) for second in range(1, 651)]
    assert 595 < orders.index("wake") < orders.index("end") - 4 < 605
