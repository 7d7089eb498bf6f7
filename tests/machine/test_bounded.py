"""A program of somebody else ends within its limits, and with it all that it has started."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from splatbatch.machine import limited_program
from splatbatch.machine.limited_program import CallBounds, LimitedProgram, run_bounded


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: object, timeout_s: float = 10) -> None:
    give_up_at = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


@pytest.mark.contract
def test_a_program_that_ends_well_says_so(tmp_path: Path) -> None:
    command, odd = ["sh", "-c", "pwd; echo $ODD"], {"ODD": "word"}
    ended = LimitedProgram(command, CallBounds(10), folder=tmp_path, environment=odd).wait()
    assert ended.is_well and ended.said.split() == [str(tmp_path), "word"]


@pytest.mark.contract
def test_what_it_has_started_ends_with_it(tmp_path: Path) -> None:
    script = f"setsid sleep 60 & echo $! > {tmp_path}/own; sleep 60 & echo $! > {tmp_path}/group; wait"
    ended = run_bounded(["sh", "-c", script], CallBounds(0.5))
    assert ended.exceeded == "time" and "was ended after 0.5 s" in ended.why(CallBounds(0.5))
    for name in ("own", "group"):
        pid = int((tmp_path / name).read_text())
        until(lambda pid=pid: not lives(pid))


@pytest.mark.contract
def test_memory_is_counted_with_all_children() -> None:
    script = 'python3 -c "a = bytearray(200 << 20); import time; time.sleep(60)" & wait'
    ended = run_bounded(["sh", "-c", script], CallBounds(30, 100))
    assert ended.exceeded == "memory" and 100 < ended.peak_mib < 400


@pytest.mark.contract
def test_an_interrupt_ends_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_pid: int) -> int:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip():
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(limited_program, "memory_mib", stop)
    with pytest.raises(KeyboardInterrupt):
        run_bounded(["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60"], CallBounds(30))
    assert not lives(int((tmp_path / "pid").read_text()))


@pytest.mark.contract
def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        run_bounded(["/nowhere/program"], CallBounds())
