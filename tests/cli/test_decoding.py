"""Photographs whose pixels are broken are found while others train: their patch never gets a turn to fail in."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from command_line import invoke
from fake_batch import FakeBatch, write_model
from PIL import Image

from splatbatch.run import decode_ahead
from splatbatch.tasks.batch import open_batch

BROKEN = "img8.png"


def spoil(photograph: Path) -> None:
    """Flip bytes of the compressed pixels: header and end are sound, so that only decoding tells."""
    data = bytearray(photograph.read_bytes())
    start = data.index(b"IDAT") + 40
    data[start : start + 60] = bytes(60)
    photograph.write_bytes(data)


@pytest.fixture
def spoilt(batch: FakeBatch) -> FakeBatch:
    """p2 alone has the photograph that cannot be decoded."""
    batch.make("p0", "p1", "p2")
    spoil(batch.folder / "images" / BROKEN)
    for patch in ("p0", "p1"):
        write_model(batch.folder / "patches" / patch / "sparse/0", [f"img{i}.png" for i in range(8)])
    return batch.script(p0=["train 1.5"], p1=["train"], p2=["train"])


def test_a_patch_is_refused_before_its_turn(spoilt: FakeBatch) -> None:
    ended = invoke("train", batch=spoilt)
    assert ended.code == 1
    assert [event["patch"] for event in spoilt.events("attempt_started")] == ["p0", "p1"]
    (refused,) = spoilt.events("refused")
    assert refused["patch"] == "p2" and f"{BROKEN}: cannot be decoded" in refused["reason"]


def test_status_and_plan_know_that_it_was_refused(spoilt: FakeBatch) -> None:
    invoke("train", batch=spoilt)
    assert "2 of 3 patches trained; refused: p2" in invoke("status", batch=spoilt).out


def test_once_the_photograph_is_mended_it_is_trained(spoilt: FakeBatch) -> None:
    invoke("train", batch=spoilt)
    (spoilt.folder / "images" / BROKEN).write_bytes((spoilt.folder / "images/img1.png").read_bytes())
    assert invoke("train", batch=spoilt).code == 0


def test_without_the_audit_nothing_is_decoded(spoilt: FakeBatch) -> None:
    invoke("train", "--no-verify", batch=spoilt)
    assert not spoilt.events("refused")


@pytest.mark.contract
def test_a_batch_that_ends_before_all_is_decoded_leaves_no_traceback(
    spoilt: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    monkeypatch.setattr(decode_ahead, "decode_problem", lambda _: time.sleep(0.1) or "")
    before = threading.active_count()
    running = decode_ahead.start_decoding(open_batch(spoilt.config).tasks)
    time.sleep(0.15)
    running.end()
    assert (raised, decode_ahead.take_undecodable(running)) == ([], {})
    assert threading.active_count() <= before


def test_no_thread_is_left_behind(spoilt: FakeBatch) -> None:
    before = threading.active_count()
    invoke("train", batch=spoilt)
    assert threading.active_count() <= before


def smaller(batch: FakeBatch, divisor: int = 2) -> Path:
    """Write the copies in half the size that the training will load."""
    copies = batch.folder / f"images_{divisor}"
    copies.mkdir()
    for path in (batch.folder / "images").iterdir():
        with Image.open(path) as picture:
            picture.resize((32 // divisor, 24 // divisor)).save(copies / path.name)
    return copies


@pytest.mark.contract
def test_what_is_decoded_is_what_will_be_trained_on(batch: FakeBatch) -> None:
    batch.make("p0", "p1", "p2", training={"resolution": "1/2"})
    copies = smaller(batch)
    spoil(copies / BROKEN)
    write_model(batch.folder / "patches/p0/sparse/0", [f"img{i}.png" for i in range(8)])
    assert refused(batch) == ["p1", "p2"]
    (copies / BROKEN).write_bytes((copies / "img1.png").read_bytes())
    spoil(batch.folder / "images" / BROKEN)
    assert refused(batch) == []


def refused(batch: FakeBatch) -> list[str]:
    """Return the patches that are refused once all their photographs were decoded."""
    found: dict[str, str] = {}
    decoding = decode_ahead.start_decoding(open_batch(batch.config).tasks)
    while not decoding.is_over:
        found |= decode_ahead.take_undecodable(decoding)
        time.sleep(0.02)
    return sorted(found)
