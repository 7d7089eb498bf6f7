"""What cannot be written costs one patch, or ends the command with 6; never a traceback, never the other patches."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from splatbatch.processes import with_marker

if TYPE_CHECKING:
    from fake_batch import FakeBatch

Freeze = Callable[[Path], None]


pytestmark = pytest.mark.contract  # what chattr freezes, the kernel does not let change


@pytest.fixture
def freeze() -> Iterator[Freeze]:
    """Make files and folders immutable, where the file system and we may."""
    frozen: list[Path] = []

    def freeze(path: Path) -> None:
        if subprocess.run(["chattr", "+i", path], capture_output=True, check=False).returncode:
            pytest.skip("chattr +i is not to be had here")
        frozen.append(path)

    yield freeze
    for path in frozen:
        subprocess.run(["chattr", "-i", path], check=False)


def diagnosis(batch: FakeBatch, patch: str) -> dict[str, str]:
    return [one["diagnosis"] for one in batch.events("attempt_ended") if one["patch"] == patch][-1]


@pytest.mark.parametrize("standby", [False, True])
def test_a_patch_whose_folder_cannot_be_written_fails_alone(batch: FakeBatch, freeze: Freeze, standby: bool) -> None:
    batch.make("p0", "p1", "p2", constants={"splatbatch.scheduler.standby.ON_CPUS": standby})
    folder = batch.output / "patches" / "p1"
    folder.mkdir(parents=True)
    freeze(folder)
    ended = batch.run("train")
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False), ended.stderr
    assert "2 of 3 patches trained; failed: p1" in ended.stdout
    found = diagnosis(batch, "p1")
    assert (found["cause"], found["action"]) == ("output_unwritable", "fail")
    assert str(folder) in found["advice"] and "Operation not permitted" in found["advice"]


def test_where_a_folder_stands_in_place_of_a_splat_nothing_is_trained_for_it(batch: FakeBatch) -> None:
    batch.make("p0", "p1")
    (batch.output / "patches/p0/splat.ply/x").mkdir(parents=True)
    ended = batch.run("train")
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False), ended.stderr
    assert "splat.ply" in diagnosis(batch, "p0")["advice"] and "Is a directory" in diagnosis(batch, "p0")["advice"]
    assert not list((batch.output / "patches/p0").glob("attempt-*"))
    for command in ("status", "report", "plan", "explain p0", "publish p1 --as ply"):
        assert batch.run(*command.split()).returncode == 0


def test_what_was_trained_is_kept_where_its_place_cannot_be_written_and_taken_later(
    batch: FakeBatch, freeze: Freeze
) -> None:
    batch.make("p0", "p1").script(p0=["await now"])
    folder = batch.output / "patches" / "p0"
    night = batch.beside("train").until((folder / "attempt-01" / "progress.jsonl").exists)
    freeze(folder)
    (batch.folder / "now").touch()
    ended = night.ended()
    assert (ended.returncode, "1 of 2 patches trained; failed: p0" in ended.stdout) == (1, True), ended
    assert diagnosis(batch, "p0")["cause"] == "output_unwritable"
    subprocess.run(["chattr", "-i", folder], check=True)
    assert batch.run("train").returncode == 0
    assert batch.result("p0")["attempt"] == "attempt-01"


@pytest.mark.parametrize("name", ["ledger/local.jsonl", "patches", "workers/local.json"])
def test_what_a_whole_batch_needs_and_cannot_write_ends_it_with_6_and_words(
    batch: FakeBatch, freeze: Freeze, name: str
) -> None:
    batch.make("p0")
    path = batch.output / name
    path.parent.mkdir(parents=True)
    path.mkdir() if name == "patches" else path.touch()
    freeze(path)
    ended = batch.run("train")
    assert (ended.returncode, "Traceback" in ended.stderr) == ((1 if name == "patches" else 6), False), ended.stderr
    assert "Operation not permitted" in ended.stderr


def test_nights_end_when_the_ledger_cannot_be_written_any_more(batch: FakeBatch, freeze: Freeze) -> None:
    batch.make("p0", "p1", executor={"cpu_slots": 2}).script(p0=["hang"], p1=["await now"])
    night = batch.beside("train")
    night.until(lambda: len(list(batch.output.glob("patches/*/attempt-01/progress.jsonl"))) == 2)
    freeze(batch.ledger)
    (batch.folder / "now").touch()
    ended = night.ended()
    told = (ended.returncode, "local.jsonl: cannot be written" in ended.stderr, "hint: " in ended.stderr)
    assert told == (6, True, True), ended.stderr
    assert (batch.output / "patches/p0/attempt-01/exit.json").exists()


@pytest.mark.all
def test_attempts_are_stopped_when_the_ledger_cannot_be_written_any_more(batch: FakeBatch, freeze: Freeze) -> None:
    batch.make("p0", "p1", executor={"cpu_slots": 2}).script(p0=["hang deaf child"], p1=["await now"])
    process = batch.start("train")
    while len(list(batch.output.glob("patches/*/attempt-01/progress.jsonl"))) < 2:
        time.sleep(0.02)
    freeze(batch.ledger)
    (batch.folder / "now").touch()
    _, said = process.communicate(timeout=30)
    assert (process.returncode, "local.jsonl: cannot be written" in said, "hint: " in said) == (6, True, True), said
    with contextlib.suppress(AssertionError):
        time.sleep(0.1)
    assert not [key for key in with_marker("").values() if str(batch.output) in key]
    assert (batch.output / "patches/p0/attempt-01/exit.json").exists()
