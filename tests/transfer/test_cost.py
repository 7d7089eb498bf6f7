"""What a store costs beside a shared folder: between machines that share nothing, at 100 MB/s."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import hosts
import pytest
import store_sites
from fake_batch import SHARED, FakeBatch
from hosts import SERVER, Hosts
from travelling import QUICK, elsewhere, states

SCENE = SHARED / "data/caliterra"
LACK = hosts.lack(shares=False) or store_sites.lack("ssh") or ("" if SCENE.exists() else f"needs {SCENE.name}")
pytestmark = [pytest.mark.long, pytest.mark.all, pytest.mark.skipif(bool(LACK), reason=LACK)]
MEGABITS, TASKS, SECONDS, GAUSSIANS = 800, 8, 20, 70_000
HOME, AWAY = 1, 2


def batch_of(folder: Path, **sections: Any) -> FakeBatch:
    """Return CaliTerra's four patches, each twice, whose trainings take 20 s and leave a splat of 17 MB."""
    names = [f"p{number}" for number in range(TASKS)]
    (folder / "patches").mkdir(parents=True)
    for number, name in enumerate(names):
        (folder / "patches" / name).symlink_to(SCENE / "patches" / f"p{number % 4}")
    batch = FakeBatch(folder)
    batch.settings = {"scene": {"patches": str(folder / "patches"), "images": str(SCENE / "images")}}
    batch.change(training={"device": "cpu", "max_steps": 20, "colors": "as_is"}, limits=QUICK["limits"], **sections)
    return batch.script(**{name: [f"train {SECONDS} {GAUSSIANS}"] for name in names})


def seconds_of(up: Hosts, batch: FakeBatch, environment: dict[str, str]) -> float:
    began = time.monotonic()
    out, err = up.start(HOME, batch.command("train"), batch.environment() | environment).communicate(timeout=600)
    assert f"{TASKS} of {TASKS} patches trained" in out, err
    return time.monotonic() - began


def test_a_store_costs_no_more_than_a_twentieth(tmp_path: Path, record_property: pytest.RecordProperty) -> None:
    (tmp_path / "server").mkdir()
    with Hosts(tmp_path, 2, shares=False) as up:
        for number in (HOME, AWAY):
            up.limit(number, MEGABITS)
        prefix = tuple(up.within_switch())
        with store_sites.site("ssh", tmp_path / "server", SERVER, prefix) as site:
            slots = {"executor": {"cpu_slots": 1}}
            here = seconds_of(up, batch_of(tmp_path / "here", **slots), {})
            home = batch_of(tmp_path / "home", executor={"store": site.url})
            far = elsewhere(tmp_path / "far", home)
            environment = {name: value for name, value in far.environment().items() if name != "SPLATBATCH_CONFIG"}
            command = far.command("work", site.url, "--idle", "600s", "--scratch", str(tmp_path / "far/scratch"))
            worker = up.start(AWAY, command, environment | site.environment)
            there = seconds_of(up, home, dict(site.environment))
            worker.kill()
    words = f"{TASKS} tasks of {SECONDS} s: {here:.1f} s here, {there:.1f} s by way of a store: {there / here - 1:.1%}"
    print(words)
    record_property("figure", words)
    assert set(states(home).values()) == {"trained"}
    assert there <= 1.05 * here, words
