"""Workers on three hosts that share a folder over a network: one is cut off in mid-attempt, and comes back later."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import hosts
import pytest
from fake_batch import FakeBatch
from hosts import Hosts
from process_family import left_of, wait_until

pytestmark = [pytest.mark.long, pytest.mark.all, pytest.mark.skipif(bool(hosts.lack()), reason=hosts.lack())]
QUICK = {"training": {"colors": "as_is"}, "limits": {"grace_s": 0.5, "free_disk_mib": 0}}
CONSTANTS = {"FAKE_TRAINER_CONSTANTS": '{"splatbatch.output.workers.SILENCE_S": 8}'}


class Moment(NamedTuple):
    """When a host is cut off: what its trainer does, and the file of its attempt that is awaited."""

    script: str
    file: str


TRAINS = Moment("await go", "start.json")
"""It still trains when it comes back."""
WANTS_TO_WRITE = Moment("train 2", "start.json")
"""It has trained meanwhile, and writes its splat when it comes back."""
HAS_WRITTEN = Moment("train", "splat.ply")
"""Its splat is written, and about to be accepted: whoever takes over may find it whole."""
ROUNDS = (
    TRAINS,
    WANTS_TO_WRITE,
    HAS_WRITTEN,
    TRAINS,
    WANTS_TO_WRITE,
    HAS_WRITTEN,
    TRAINS,
    WANTS_TO_WRITE,
    TRAINS,
    HAS_WRITTEN,
)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Hosts]:
    with Hosts(tmp_path, 3) as up:
        yield up


def cut_one_off(three: Hosts, batch: FakeBatch, moment: Moment, wait_s: float = 0.0) -> str:
    """Cut h2 off in mid-attempt, have the others train its task, heal it; return what became of its attempt."""
    batch.make("p0", "p1", **QUICK).script(p0=[moment.script, "train"])
    environment = {**batch.environment(), **CONSTANTS}
    first = three.start(2, batch.command("work", "p0"), environment)
    wait_until(lambda: first.poll() is not None or (batch.output / "patches/p0/attempt-01" / moment.file).exists())
    assert first.poll() is None, first.communicate()
    time.sleep(wait_s)
    three.cut(2)
    told = [
        one.communicate(timeout=120) for one in [three.start(n, batch.command("work"), environment) for n in (1, 3)]
    ]
    accepted = batch.result("p0")
    three.heal(2)
    (batch.folder / "go").touch()
    told += [first.communicate(timeout=120)]
    assert all("2 of 2 patches trained" in out for out, _ in told), told  # whoever did it
    assert sorted(path.name for path in batch.output.glob("patches/p0/accepted/*")) == ["1.json"]
    assert batch.result("p0") == accepted
    assert left_of(batch) == []
    return f"{accepted['attempt']} accepted, attempt-01 {ends_of_first(batch)}"


def ends_of_first(batch: FakeBatch) -> str:
    """Return what the ledgers say of the attempt that was cut off, by whoever has judged it."""
    texts = [path.read_text() for path in batch.output.glob("ledger/*.jsonl")]
    events = [json.loads(line) for text in texts for line in text.splitlines()]
    ends = [one for one in events if one["event"] == "attempt_ended" and (one["patch"], one["attempt"]) == ("p0", 1)]
    return " and ".join(sorted({one["outcome"] for one in ends}))


def test_a_node_that_is_cut_off_is_replaced_and_what_its_twin_brings_is_not_accepted(three: Hosts) -> None:
    assert "attempt-01 accepted" not in cut_one_off(three, FakeBatch(three.folder), TRAINS)


def test_ten_times_out_of_ten(three: Hosts, record_property: pytest.RecordProperty) -> None:
    chance, became = random.Random(0), Counter[str]()
    for number, moment in enumerate(ROUNDS):
        batch = FakeBatch(three.folder / f"round-{number}")
        batch.folder.mkdir()
        became[cut_one_off(three, batch, moment, 0.0 if moment is HAS_WRITTEN else chance.uniform(0, 1))] += 1
    record_property("figure", f"10 of 10: {dict(became)}")
