"""`status` sees what has changed since a patch was trained: files, accepted records, settings, lines of the ledger."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_batch import FakeBatch

from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.patch_state import UNCOMPARED
from splatbatch.tasks.status import read_status

Change = Callable[[FakeBatch], object]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    """Three patches, of which the last has failed."""
    batch = FakeBatch(tmp_path_factory.mktemp("night")).make("p0", "p1", "p2", retry={"max_attempts": 1})
    batch.script(p2=["exit 1 Traceback: IndexError"]).run("train")
    long_ago = time.time() - 3600
    for path in (*batch.output.glob("patches/*/result.json"), *batch.output.glob("patches/*/accepted")):
        os.utime(path, (long_ago, long_ago))
    return batch


@pytest.fixture
def batch(night: FakeBatch, tmp_path: Path) -> FakeBatch:
    """A copy of it, with all times as they were."""
    shutil.copytree(night.folder, tmp_path / "batch", symlinks=True)
    copy = FakeBatch(tmp_path / "batch", dict(night.settings))
    assert look(copy) == {"p0": "trained", "p1": "trained", "p2": "failed"}
    return copy


def look(batch: FakeBatch) -> dict[str, str]:
    opened = open_batch(batch.config)
    found = read_status(opened.output, opened.names, 0, opened.standing())
    return {one.patch: "moved" if any(UNCOMPARED in told for told in one.warnings) else one.state for one in found}


def product(batch: FakeBatch, name: str) -> Path:
    return batch.output / "patches" / "p0" / name


def in_place(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Write into a file as it is: no new inode, no new name."""
    with path.open("r+b") as file:
        data = change(file.read())
        file.seek(0)
        file.truncate()
        file.write(data)


def other_time(path: Path) -> None:
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))


def add_mask(folder: Path) -> None:
    folder.mkdir()
    (folder / "img3.png.png").write_bytes(b"a mask")


def other_recipe(data: bytes) -> bytes:
    return json.dumps({**json.loads(data), "recipe": "0" * 16, "effective": "0" * 16}).encode()


def accept_other(folder: Path) -> None:
    """Accept once more what was trained under other settings, and make no files of it."""
    (folder / "2.json").write_bytes(other_recipe((folder / "1.json").read_bytes()))


CHANGES: dict[str, tuple[Change, set[str]]] = {
    "size of a splat": (lambda batch: os.truncate(product(batch, "splat.ply"), 500), {"p0"}),
    "time of a splat": (lambda batch: other_time(product(batch, "splat.ply")), {"p0"}),
    "a splat is gone": (lambda batch: product(batch, "splat.ply").unlink(), {"p0"}),
    "result.json is gone, of which the accepted record says all": (
        lambda batch: product(batch, "result.json").unlink(),
        set(),
    ),
    "accepted record and result.json are gone": (
        lambda batch: (product(batch, "accepted/1.json").unlink(), product(batch, "result.json").unlink()),
        {"p0"},
    ),
    "result.json is empty": (lambda batch: os.truncate(product(batch, "result.json"), 0), set()),
    "a newer record is accepted": (lambda batch: accept_other(product(batch, "accepted")), {"p0"}),
    "result.json says otherwise": (lambda batch: in_place(product(batch, "result.json"), other_recipe), {"p0"}),
    "time of a photograph": (lambda batch: other_time(batch.folder / "images/img3.png"), {"p0", "p1"}),
    "a photograph is gone": (lambda batch: (batch.folder / "images/img3.png").unlink(), {"p0", "p1"}),
    "there are no masks in a folder for them": (lambda batch: (batch.folder / "masks").mkdir(), set()),
    "there is a mask": (lambda batch: add_mask(batch.folder / "masks"), {"p0", "p1"}),
    "a model in another format": (lambda batch: model(batch, "cameras.bin").touch(), {"p0"}),
    "a model has other points": (lambda batch: other_time(model(batch, "points3D.txt")), {"p0"}),
    "a setting": (lambda batch: batch.change(training={"max_steps": 30}), {"p0", "p1"}),
    "another offset": (lambda batch: batch.change(scene={"offset": [1, 2, 3]}), {"p0", "p1"}),
    "a setting of one patch": (lambda batch: batch.change(patches={"p1": {"training": {"seed": 7}}}), {"p1"}),
}


def model(batch: FakeBatch, name: str) -> Path:
    return batch.folder / "patches/p0/sparse/0" / name


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_after_a_training_is_seen(batch: FakeBatch, what: str) -> None:
    change, hit = CHANGES[what]
    change(batch)
    found = look(batch)
    assert {name for name in ("p0", "p1") if found[name] != "trained"} == hit


def test_what_the_ledger_says_later_counts(batch: FakeBatch) -> None:
    with batch.ledger.open("a") as file:
        file.write('{"t": 1, "event": "attempt_ended", "patch": "p0", "attempt": 2, "outcome": "failed"}\n')
    opened = open_batch(batch.config)
    found = read_status(opened.output, opened.names, 0, opened.standing())[0]
    assert (found.state, found.warnings) == ("trained", ("attempt 2 failed; the splat of attempt-01 is kept",))


def test_a_ledger_that_is_another_is_read_from_its_first_line(batch: FakeBatch) -> None:
    batch.ledger.write_text("".join(line for line in batch.ledger.open() if '"p2"' not in line) + "\n" * 10_000)
    assert look(batch) == {"p0": "trained", "p1": "trained", "p2": "waiting"}
