"""What nobody reads holds nothing up: full pipes, stopped and dead terminals, closed descriptors."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_batch import FakeBatch
from sampled import each
from supervised import Attempts

from splatbatch import terminal

LONGEST_S = 90.0
IGNORE_HUP = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"


def full_pipe() -> tuple[int, int]:
    """Return a pipe that takes not one byte more."""
    outlet, inlet = os.pipe()
    fcntl.fcntl(inlet, fcntl.F_SETPIPE_SZ, 4096)
    fill(inlet)
    return outlet, inlet


def stopped_terminal() -> tuple[int, int]:
    """Return a terminal that takes not one byte more, as after Ctrl-S."""
    master, slave = pty.openpty()
    termios.tcflow(slave, termios.TCOOFF)
    return master, slave


def fill(descriptor: int) -> None:
    os.set_blocking(descriptor, False)
    for size in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while os.write(descriptor, b"." * size):
                pass
    os.set_blocking(descriptor, True)


@pytest.fixture(params=[full_pipe, stopped_terminal], ids=["pipe", "terminal"])
def unread(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    ends = request.param()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


def start(batch: FakeBatch, *arguments: str, prefix: tuple[str, ...] = (), **streams: Any) -> subprocess.Popen[bytes]:
    command = [*prefix, *batch.command(*arguments)]
    environment = batch.environment() | {"TERM": "xterm"}
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, **streams)


def closed(*arguments: str, without: str, batch: FakeBatch) -> subprocess.CompletedProcess[bytes]:
    """Run a command with some of its descriptors closed, as the shell's `2>&-` does."""
    shell = ["sh", "-c", f'exec "$@" {without}', "sh", *batch.command(*arguments)]
    return subprocess.run(shell, env=batch.environment(), capture_output=True, timeout=60, check=False)


@pytest.mark.all
def test_a_batch_that_nobody_reads_ends_all_the_same(batch: FakeBatch, unread: tuple[int, int]) -> None:
    batch.make("p0", "p1")
    assert start(batch, "train", stdout=unread[1], stderr=unread[1]).wait(LONGEST_S) == 0
    assert [batch.result(patch)["attempt"] for patch in ("p0", "p1")] == ["attempt-01"] * 2


@pytest.mark.journey
@pytest.mark.all(but="pipe")
def test_a_batch_that_nobody_reads_obeys_sigterm(batch: FakeBatch, unread: tuple[int, int]) -> None:
    process = start(batch.make("p0").script(p0=["hang"]), "train", stdout=unread[1], stderr=unread[1])
    wait_until((batch.output / "patches/p0/attempt-01/heartbeat.json").exists)
    process.terminate()
    assert process.wait(LONGEST_S) == 143
    assert batch.events("attempt_ended")[0]["outcome"] == "stopped"


@pytest.mark.all
def test_a_mistake_that_nobody_reads_is_told_to_nobody(batch: FakeBatch, unread: tuple[int, int]) -> None:
    batch.make("p0").change(training={"max_steps": -1})
    assert start(batch, "train", stderr=unread[1]).wait(LONGEST_S) == 2


@pytest.mark.all
def test_a_descriptor_that_the_shell_shares_stays_as_it_was(batch: FakeBatch, unread: tuple[int, int]) -> None:
    assert start(batch.make("p0"), "train", stdout=unread[1], stderr=unread[1]).wait(LONGEST_S) == 0
    assert os.get_blocking(unread[1])


def test_what_was_left_out_is_counted_once_there_is_room() -> None:
    outlet, inlet = full_pipe()
    writer = terminal.DroppingWriter(inlet)
    for _ in range(20):
        writer.write(b"x" * (terminal.MOST_PENDING_BYTES // 8) + b"\n")
    assert (writer.is_stuck(), writer.take_lost()) == (True, 0)
    said = b""
    while writer.is_stuck():
        said += os.read(outlet, 4096)
    assert (said + os.read(outlet, 4096)).count(b"\n") == 7
    assert writer.take_lost() == 13
    assert writer.take_lost() == 0


@pytest.mark.all
def test_a_reader_that_is_slow_gets_the_last_words(batch: FakeBatch) -> None:
    outlet, inlet = full_pipe()
    process = start(batch.make("p0"), "train", stderr=subprocess.DEVNULL, stdout=inlet)
    os.close(inlet)
    wait_until((batch.output / "report.html").exists)
    said = b"".join(iter(lambda: os.read(outlet, 1 << 16), b""))
    assert process.wait(LONGEST_S) == 0
    assert b"1 of 1 patches trained" in said


@pytest.mark.parametrize("kind", ["file", "socket", "pipe"])
def test_words_arrive_whole_whatever_takes_them(tmp_path: Path, kind: str) -> None:
    ends = socket.socketpair()
    outlet, inlet = os.pipe()
    with (tmp_path / "words").open("w+b") as file:
        writer = terminal.DroppingWriter({"file": file.fileno(), "socket": ends[0].fileno(), "pipe": inlet}[kind])
        with io.TextIOWrapper(writer, encoding="utf-8", write_through=True) as stream:
            print("größer", file=stream)
            heard = {"file": lambda: Path(file.name).read_bytes(), "socket": lambda: ends[1].recv(99)}
            assert heard.get(kind, lambda: os.read(outlet, 99))() == "größer\n".encode()


def test_a_terminal_that_may_not_be_opened_anew_is_written_to_in_small_pieces(monkeypatch: Any) -> None:
    monkeypatch.setattr(terminal, "OWN_DESCRIPTOR", "/nowhere/{}")
    outlet, inlet = os.pipe()
    writer = terminal.DroppingWriter(inlet)
    writer.write(b"word " * 1000)
    assert os.read(outlet, 1 << 16) == b"word " * 1000
    fill(inlet)
    writer.write(b"more")
    assert writer.is_stuck()


@pytest.mark.all
def test_a_batch_whose_terminal_goes_trains_on_under_nohup(batch: FakeBatch) -> None:
    told = batch.folder / "told.json"
    batch.make("p0", notify={"command": ["cp", "/dev/stdin", str(told)]}).script(p0=["await go"])
    code = hung_up(batch, prefix=(sys.executable, "-c", IGNORE_HUP), hears_s=1.5)
    assert code == 0
    assert batch.result("p0")["attempt"] == "attempt-01"
    assert "1 of 1 patches trained" in told.read_text()
    assert "splatbatch_running 0.0" in (batch.output / "metrics.prom").read_text()


@pytest.mark.journey
def test_a_batch_whose_terminal_goes_without_nohup_stops_with_129(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["await never"])
    assert hung_up(batch, prefix=()) == 129
    assert batch.events("attempt_ended")[0]["outcome"] == "stopped"
    assert "splatbatch_running 0.0" in (batch.output / "metrics.prom").read_text()


def hung_up(batch: FakeBatch, prefix: tuple[str, ...], hears_s: float = 0.0) -> int:
    """Run a batch on a terminal of its own that goes while it trains; return its exit code."""
    pid, master = pty.fork()
    if pid == 0:
        command = [*prefix, *batch.command("train")]
        os.execve(command[0], command, batch.environment() | {"TERM": "xterm"})
    wait_until((batch.output / "patches/p0/attempt-01/heartbeat.json").exists)
    os.close(master)
    time.sleep(hears_s)
    (batch.folder / "go").touch()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.all
def test_status_on_a_terminal_that_has_gone_is_no_traceback(batch: FakeBatch) -> None:
    master, slave = pty.openpty()
    os.close(master)
    with (batch.folder / "err").open("wb") as err:
        assert start(batch.make("p0"), "status", stdout=slave, stderr=err).wait(LONGEST_S) == 0
    assert (batch.folder / "err").read_text() == ""


@pytest.mark.all
@pytest.mark.parametrize("without", ["2>&-", ">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_batch_with_closed_descriptors_trains(batch: FakeBatch, without: str) -> None:
    batch.make("p0")
    assert closed("train", without=without, batch=batch).returncode == 0
    assert batch.result("p0")["attempt"] == "attempt-01"


@pytest.mark.contract
@pytest.mark.parametrize("without", each(3, ["<&- >&- 2>&-", "2>&-", ">&-"]))
def test_a_command_with_closed_descriptors_is_no_traceback(batch: FakeBatch, without: str) -> None:
    ended = closed("status", without=without, batch=batch.make("p0"))
    assert ended.returncode == 0
    assert b"Traceback" not in ended.stderr


@pytest.mark.contract
def test_a_supervisor_with_closed_descriptors_writes_into_no_file_of_its_own(tmp_path: Path) -> None:
    attempt = Attempts(tmp_path).program("print('hello')")
    command = [sys.executable, "-m", "splatbatch.supervisor", str(attempt.folder.path)]
    subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], check=True, timeout=LONGEST_S)
    assert attempt.folder.log.read_text() == "hello\n"


def wait_until(condition: Any) -> None:
    end = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
