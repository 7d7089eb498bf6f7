"""A disk that is full pauses a batch; it costs no training and crashes nothing."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_attempt import fill
from fake_batch import FakeBatch

from splatbatch.config import Limits
from splatbatch.files import MIB, append_line, read_lines
from splatbatch.output.events import Event, Notice, Resumed
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger, events
from splatbatch.scheduler.disk_guard import DiskGuard

MNT_DETACH = 2  # umount(2)
NOT_LOOKED_AT = {"free_disk_mib": 0}
SHM = type(shutil.disk_usage("/"))(1024 * MIB, 1000 * MIB, 24 * MIB)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB; the batch's output folder lies on it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    libc = ctypes.CDLL(None)
    if libc.mount(b"tmpfs", os.fsencode(disk), b"tmpfs", 0, b"size=8m"):
        pytest.skip("only root may mount a small disk")
    (tmp_path / "output").symlink_to(disk)
    yield disk
    assert libc.umount2(os.fsencode(disk), MNT_DETACH) == 0


def until(process: subprocess.Popen[str], words: str) -> None:
    """Read what a batch says until it has said these words."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"it never said {words!r}")


def test_a_batch_pauses_until_there_is_room_and_then_goes_on(batch: FakeBatch, small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(4 * MIB))
    night = batch.make("p0", "p1", limits={"free_disk_mib": 6}).beside("train")
    night.until(lambda: "paused, nothing new is started" in night.said)
    (small_disk / "filler").unlink()
    assert night.ended().returncode == 0
    happened = [event["event"] for event in batch.events() if event["event"] not in ("expected", "forecast")]
    assert happened[2:5] == ["paused", "resumed", "attempt_started"]


def pause(seconds: float) -> dict[str, float]:
    return {"splatbatch.scheduler.disk_guard.PAUSE_S": seconds}


def test_who_waits_for_room_in_vain_is_told_so(batch: FakeBatch) -> None:
    done = batch.make("p0", "p1", limits={"free_disk_mib": 1 << 40}, constants=pause(0.3)).run("train")
    assert done.returncode == 1
    assert "p0, p1: the disk is full (disk_full): Free space" in done.stdout
    assert "(limits.free_disk_mib); the batch stops in 0:00:00 unless space is freed" in done.stderr
    assert [event["event"] for event in batch.events()].count("paused") == 1
    assert batch.events("attempt_started") == []


@pytest.mark.all
def test_a_disk_that_fills_up_behind_a_splat_costs_no_training(batch: FakeBatch, small_disk: Path) -> None:
    batch.make("p0", "p1", limits=NOT_LOOKED_AT).script(p0=["train-then-fill"])
    process = batch.start("train")
    until(process, "paused")
    (small_disk / "filler").unlink()
    process.communicate(timeout=90)
    assert process.returncode == 0
    assert [event["outcome"] for event in batch.events("attempt_ended")] == ["trained", "trained"]
    assert len(batch.events("attempt_started")) == 2


@pytest.mark.contract
def test_a_disk_that_stays_full_is_given_up_and_what_was_trained_is_adopted(batch: FakeBatch, small_disk: Path) -> None:
    batch.make("p0", "p1", limits=NOT_LOOKED_AT, constants=pause(1)).script(p0=["train-then-fill"])
    done = batch.run("train")
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    (small_disk / "filler").unlink()
    assert batch.run("train").returncode == 0
    assert batch.result("p0")["attempt"] == "attempt-01"


def test_a_start_on_a_disk_that_stays_full_is_refused_in_words(batch: FakeBatch, small_disk: Path) -> None:
    fill(small_disk / "filler")
    done = batch.make("p0", limits=NOT_LOOKED_AT, constants=pause(1)).run("train")
    assert done.returncode == 6
    assert "paused until there is room on the disk of" in done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_start_on_a_full_disk_waits_for_room_and_obeys(batch: FakeBatch, small_disk: Path) -> None:
    fill(small_disk / "filler")
    night = batch.make("p0", limits=NOT_LOOKED_AT).beside("train")
    night.until(lambda: "paused until there is room" in night.said).send(signal.SIGTERM)
    assert (night.ended().returncode, batch.events() if batch.ledger.exists() else []) == (143, [])
    again = batch.beside("train")
    again.until(lambda: "paused until there is room" in again.said)
    (small_disk / "filler").unlink()
    assert again.ended().returncode == 0


def test_a_line_that_does_not_fit_leaves_the_file_as_it_was(small_disk: Path) -> None:
    append_line(small_disk / "ledger.jsonl", {"n": 1})
    fill(small_disk / "filler")
    with pytest.raises(OSError, match="No space left"):
        append_line(small_disk / "ledger.jsonl", {"n": "x" * 8192})
    assert list(read_lines(small_disk / "ledger.jsonl")) == [{"n": 1}]
    assert (small_disk / "ledger.jsonl").stat().st_size == 9


def test_the_ledger_keeps_what_a_full_disk_does_not_take(small_disk: Path) -> None:
    output = OutputFolder(small_disk)
    output.ledger.parent.mkdir()
    ledger = Ledger(output.ledger)
    fill(small_disk / "filler")
    ledger.write(Notice("paused", "x" * 8192))
    assert not ledger.flush()
    os.truncate(small_disk / "filler", 0)
    ledger.write(Resumed(1.0))
    assert [type(event) for event in events(output, Event)] == [Notice, Resumed]


def test_a_failed_write_shuts_the_gate_until_a_trial_succeeds(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splatbatch.scheduler.disk_guard.PAUSE_S", 10.0)
    gate = DiskGuard(small_disk, Limits(free_disk_mib=0), Ledger(tmp_path / "ledger.jsonl"))
    assert gate.is_open(0)
    fill(small_disk / "filler")
    gate.shut(1, "No space left on device")
    assert (gate.is_open(3), gate.takes_writes(5), gate.given_up(11)) == (False, False, False)
    assert gate.given_up(12)
    (small_disk / "filler").unlink()
    assert gate.takes_writes(13)
    assert not (small_disk / ".room").exists()


def test_little_shared_memory_shuts_the_gate_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SHM)
    gate = DiskGuard(tmp_path, Limits(free_disk_mib=1), Ledger(tmp_path / "ledger.jsonl"))
    assert not gate.is_open(0)
    assert gate.reason == "24 MiB free in /dev/shm, 64 MiB required"
