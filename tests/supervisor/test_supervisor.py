"""The supervisor: one start per folder, an end that is written down whatever it is, and nothing left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from supervised import ASLEEP, DEAF, PATIENCE_S, Attempts, alive, wait_for

from splatbatch import processes
from splatbatch.files import read_json
from splatbatch.supervisor import host_monitor, log, watch


@pytest.mark.parametrize(
    ("code", "kind", "facts", "ends_with"),
    [
        ("", "exited", {"code": 0}, 0),
        ("raise SystemExit(3)", "exited", {"code": 3}, 1),
        ("import os; os._exit(255)", "exited", {"code": 255}, 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed", {"signal": 9}, 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed", {"signal": 11}, 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "killed", {"signal": 15}, 1),
    ],
)
def test_every_end_is_written_down(
    attempt: Attempts, code: str, kind: str, facts: dict[str, int], ends_with: int
) -> None:
    assert attempt.program(code).run() == ends_with
    assert attempt.end.items() >= {"kind": kind, **facts, "out_of_memory": False}.items()
    assert 0 <= attempt.end["seconds"] < PATIENCE_S


@pytest.mark.contract
@pytest.mark.parametrize("argv", [["/nowhere/trainer"], ["/etc/hostname"], ["a\0b"]])
def test_a_command_that_cannot_be_started_is_a_reason_not_a_crash(attempt: Attempts, argv: list[str]) -> None:
    assert attempt.job(*argv).run() == 1
    assert attempt.end["kind"] == "not_started"
    assert argv[0] in attempt.end["reason"]


def test_a_folder_that_vanishes_before_the_start_is_a_reason_too(attempt: Attempts, tmp_path: Path) -> None:
    attempt.folder.watch.write_text(json.dumps({"cwd": str(tmp_path / "gone")}))
    assert attempt.program("").run() == 1
    assert attempt.end["kind"] == "not_started"


def test_a_second_start_loses_and_changes_nothing(attempt: Attempts) -> None:
    attempt.program("print('once', flush=True)").run()
    before = attempt.end
    assert attempt.run() == watch.FENCED == 75
    assert attempt.end == before
    assert attempt.folder.log.read_text() == "once\n"


@pytest.mark.contract
def test_of_two_starts_at_once_one_runs(attempt: Attempts) -> None:
    attempt.program("print('once', flush=True)")
    first, second = attempt.start(), attempt.start()
    assert sorted((first.wait(PATIENCE_S), second.wait(PATIENCE_S))) == [0, 75]
    assert attempt.folder.log.read_text() == "once\n"


def test_without_a_job_nothing_is_claimed(attempt: Attempts) -> None:
    assert attempt.run() == 75
    assert not attempt.folder.start.exists()


def test_start_json_says_who_runs_it(attempt: Attempts) -> None:
    attempt.program("").run()
    start = read_json(attempt.folder.start)
    assert start is not None
    assert {"host", "pid", "boot_id", "started_at", "ticks"} <= start.keys()
    assert start["pid"] == os.getpid()


@pytest.mark.contract
def test_the_program_sees_its_environment_its_folder_and_no_stdin(attempt: Attempts) -> None:
    code = "import os, sys; print(os.environ['WHO'], os.getcwd(), repr(sys.stdin.read()), os.getsid(0) == os.getpid())"
    attempt.program(code, env={"WHO": "me"}).run_apart()
    assert attempt.folder.log.read_text() == f"me {attempt.folder.path} '' True\n"


def test_both_streams_are_logged_to_the_last_word(attempt: Attempts) -> None:
    attempt.program("import sys; print('out', flush=True); print('x' * 200_000, end='', file=sys.stderr)").run()
    assert attempt.folder.log.read_text() == "out\n" + "x" * 200_000


def test_the_heartbeat_moves_while_the_program_is_silent(attempt: Attempts) -> None:
    beats: list[int] = []
    for second in (0.5, 1.5, 2.5):
        attempt.after(second, lambda: beats.append((read_json(attempt.folder.heartbeat) or {})["sequence"]))
    attempt.program("import time; time.sleep(4)").run()
    assert beats == [1, 2, 3]


@pytest.mark.contract
def test_a_program_that_closes_its_streams_is_watched_on(attempt: Attempts) -> None:
    attempt.program("import os, time; os.close(1); os.close(2); time.sleep(0.4); os._exit(7)").run_apart()
    assert attempt.end["code"] == 7


@pytest.mark.parametrize("code", [ASLEEP, DEAF], ids=["obedient", "deaf"])
def test_at_the_wall_limit_it_is_asked_then_forced_to_end(attempt: Attempts, code: str) -> None:
    assert attempt.program(code, limits={"wall_s": 50, "grace_s": 3}).run() == 1
    assert attempt.end.items() >= {"kind": "timed_out", "limit": "wall", "limit_s": 50}.items()
    assert attempt.end["seconds"] == pytest.approx(50 if code == ASLEEP else 53, abs=0.3)


@pytest.mark.parametrize("code", [ASLEEP, DEAF], ids=["obedient", "deaf"])
def test_a_cancel_file_ends_it(attempt: Attempts, code: str) -> None:
    attempt.after(5, attempt.folder.cancel.touch)
    assert attempt.program(code).run() == 1
    assert attempt.end.items() >= {"kind": "cancelled", "by": "cancel file in the folder of the attempt"}.items()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_the_supervisor_ends_the_program_and_is_named(attempt: Attempts, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    attempt.after(5, lambda: signal.raise_signal(number))
    assert attempt.program(ASLEEP).run() == 1
    assert attempt.end.items() >= {"kind": "cancelled", "by": number.name}.items()
    assert signal.getsignal(number) == before


def test_who_ends_well_when_asked_to_stop_has_ended_well(attempt: Attempts) -> None:
    code = f"import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); {ASLEEP}"
    attempt.after(5, lambda: signal.raise_signal(signal.SIGTERM))
    assert attempt.program(code).run() == 0
    assert attempt.end["kind"] == "exited"


@pytest.mark.contract
def test_a_grandchild_in_its_own_session_is_ended_too(attempt: Attempts) -> None:
    code = "import subprocess; p = subprocess.Popen(['sleep', '600'], start_new_session=True); print(p.pid, flush=True)"
    assert attempt.program(code).run_apart() == 0
    assert not alive(int(attempt.folder.log.read_text()))


@pytest.mark.contract
def test_grandchildren_of_a_program_that_is_forced_to_end_are_ended(attempt: Attempts) -> None:
    spawn = (
        "import subprocess; p = subprocess.Popen(['sleep', '600'], start_new_session=True); print(p.pid, flush=True)"
    )
    supervisor = attempt.program(f"{spawn}; {DEAF}").until_ready()
    supervisor.terminate()
    supervisor.wait(PATIENCE_S)
    assert not alive(int(attempt.folder.log.read_text().split()[0]))


@pytest.mark.contract
def test_a_program_dies_with_its_supervisor(attempt: Attempts) -> None:
    supervisor = attempt.program(ASLEEP).until_ready()
    child = attempt.child
    supervisor.kill()
    wait_for(lambda: not alive(child))
    assert not attempt.folder.exit.exists()


def test_the_middle_of_a_log_that_grows_too_large_is_cut_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("HEAD_BYTES", 10), ("TAIL_BYTES", 20), ("LARGEST_BYTES", 100)):
        monkeypatch.setattr(log, name, size)
    bounded = log.BoundedLog(tmp_path / "train.log")
    bounded.write(b"first wrong" + b"." * 80)
    bounded.write(b"." * 80 + b"last words")
    bounded.write(b" and more")
    bounded.close()
    said = (tmp_path / "train.log").read_bytes()
    assert said == b"first wron\n[splatbatch: 151 bytes left out here]\n..........last words and more"


@pytest.mark.all
def test_a_program_that_talks_without_end_fills_no_disk(attempt: Attempts) -> None:
    attempt.program("import sys\nfor _ in range(40): sys.stdout.write('y' * (1 << 20))").run_apart()
    assert attempt.folder.log.stat().st_size <= log.LARGEST_BYTES + (1 << 17)
    assert b"bytes left out here" in attempt.folder.log.read_bytes()


def test_the_memory_killer_is_seen_when_its_counter_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = tmp_path / "memory.events"
    counter.write_text("oom 1\noom_kill 2\n")
    groups = {"": [tmp_path, tmp_path / "above"], "memory": [tmp_path / "missing"]}
    monkeypatch.setattr(processes, "control_groups", lambda: groups)
    before = host_monitor.oom_kills()
    counter.write_text("oom 2\noom_kill 3\n")
    assert host_monitor.oom_kills() == before + 1


def test_a_process_is_named_by_its_number_and_its_start() -> None:
    assert processes.start_ticks(os.getpid()) > 0
    assert os.getpid() in processes.descendants(os.getppid())
    assert processes.start_ticks(1 << 30) == 0
    assert processes.boot_id()


@pytest.mark.contract
def test_signals_to_processes_that_are_gone_are_no_error() -> None:
    gone, there = subprocess.Popen(["true"]), subprocess.Popen(["sleep", "600"])
    gone.wait()
    processes.send_group(signal.SIGTERM, gone.pid)
    processes.send(signal.SIGTERM, [gone.pid, there.pid])
    assert there.wait(PATIENCE_S) == -signal.SIGTERM


@pytest.mark.contract
def test_inside_this_process_it_is_watched_the_same(attempt: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals and orphans are the whole process's affair, so that here only the calls of this thread are looked at."""
    monkeypatch.setattr(watch.signal, "signal", lambda *_: None)
    monkeypatch.setattr(watch.processes, "adopt_orphans", lambda: None)
    monkeypatch.setattr(watch.processes, "end_orphans", lambda _: None)
    attempt.program(f"print({os.getpid()})", gpu="GPU-none")
    assert watch.supervise(attempt.folder) == 0
    assert attempt.folder.log.read_text() == f"{os.getpid()}\n"
    assert json.loads(attempt.folder.gpu_samples.read_text().splitlines()[0])["used_mib"] is None
    for job in (
        lambda: attempt.program(ASLEEP, limits={"wall_s": 0.2, "grace_s": 0.1}),
        lambda: attempt.job("/nowhere"),
    ):
        attempt.folder.start.unlink()
        assert watch.supervise(job().folder) == 1
    assert watch.supervise(attempt.folder) == watch.FENCED


@pytest.mark.parametrize(
    "spoilt", [{"limits": 5}, {"env": [1], "limits": {"wall_s": "x", "grace_s": None}}, {"cwd": 7}, {"gpu": {}}]
)
def test_an_order_of_wrong_kinds_is_read_as_far_as_it_can_be(attempt: Attempts, spoilt: dict[str, Any]) -> None:
    attempt.folder.job.write_text(json.dumps({"argv": [sys.executable, "-c", ""], **spoilt}))
    watch = {"env": 5, "progress": {"step": 1}, "max_steps": "x", "finish": {"folder": []}, "then": "now"}
    attempt.folder.watch.write_text(json.dumps(watch))
    assert attempt.run() == 0
    assert attempt.end["kind"] == "exited"


@pytest.mark.parametrize("argv", [5, [], None, {"a": 1}])
def test_an_order_without_a_command_cannot_be_started_and_says_so(attempt: Attempts, argv: Any) -> None:
    attempt.folder.job.write_text(json.dumps({"argv": argv, "limits": []}))
    assert attempt.run() == 1
    assert (attempt.end["kind"], "names no command" in attempt.end["reason"]) == ("not_started", True)
