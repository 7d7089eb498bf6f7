"""What a further product takes: its kind and its program, in one file, and who asks for it, here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import eighth_product
import pytest
from command_line import surroundings
from machine_here import machine_here

from splatbatch.run.train import train
from splatbatch.splats import read_header
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.patch_state import Damaged, Missing, Stale, UpToDate

if TYPE_CHECKING:
    from fake_batch import FakeBatch


@pytest.fixture
def counted(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> FakeBatch:
    """Two patches, whose Gaussians are counted after each night."""
    monkeypatch.setenv("PYTHONPATH", str(Path(eighth_product.__file__).parent), prepend=":")
    return batch.make("p0", "p1")


def night(batch: FakeBatch) -> None:
    with surroundings(batch), machine_here():
        assert train(open_batch(batch.config), after=eighth_product.count_after).code == 0


def state(batch: FakeBatch) -> Any:
    opened = open_batch(batch.config)
    return eighth_product.counting(opened).product()


def ends(batch: FakeBatch) -> list[str]:
    return [event["outcome"] for event in batch.events("attempt_ended") if event["patch"] == "count"]


def test_it_is_missing_fresh_stale_or_damaged_and_made_in_the_night_of_its_patches(counted: FakeBatch) -> None:
    assert state(counted) == Missing()
    night(counted)
    splats = [counted.output / "patches" / name / "splat.ply" for name in ("p0", "p1")]
    record = json.loads((counted.output / "count.json").read_text())
    assert record["num"] == sum(read_header(splat).num_gaussians for splat in splats)
    assert (state(counted), ends(counted)) == (UpToDate(), ["made"])
    night(counted)
    assert ends(counted) == ["made"]
    (counted.output / "count.json").write_text(json.dumps({"inputs": record["inputs"]}))
    assert state(counted) == Damaged("count.json: damaged on disk", parts="count.json")
    counted.change(training={"max_steps": 25, "device": "cpu"})
    night(counted)
    assert (state(counted), ends(counted)) == (UpToDate(), ["made", "made"])
    (counted.output / "count.json").write_text(json.dumps({"inputs": "another", "num": 1}))
    assert isinstance(state(counted), Stale)
