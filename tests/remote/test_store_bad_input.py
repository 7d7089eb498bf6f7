"""What may be wrong with a store and with who works there: it is said, nothing is lost, nothing counts twice."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import late_clock
import pytest
from travelling import QUICK, SHORT, bundles, elsewhere, ends, files_below, states, work, worker

if TYPE_CHECKING:
    from fake_batch import FakeBatch
    from store_sites import Site

TWO = ("p0", "p1")


@pytest.fixture
def home(batch: FakeBatch) -> FakeBatch:
    return batch.make(*TWO, constants=SHORT, **QUICK)


def test_a_worker_of_another_version_leaves_what_is_packed_and_says_so(home: FakeBatch, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    home.run_apart("pack", "--to", url)
    home.constants |= {
        f"splatbatch.{module}.__version__": "9.9" for module in ("night.store_worker", "remote.exchange")
    }
    far = worker(home, tmp_path / "far", url, "--idle", "2s")
    said, _ = far.communicate(timeout=60)
    assert (far.returncode, said.count("was packed by splatbatch")) == (0, 2), said
    assert [one["state"] for one in bundles(url)] == ["waiting"] * 2


def test_two_homes_of_one_store_take_home_their_own(home: FakeBatch, tmp_path: Path) -> None:
    url, other = str(tmp_path / "store"), home.copied(tmp_path.with_name(f"{tmp_path.name}-other"))
    for one in (home, other):
        assert one.run_apart("pack", "--to", url).returncode == 0
    work(home, tmp_path / "far", url)
    for one in (home, other):
        one.run_apart("adopt", url)
    assert states(home) == states(other) == dict.fromkeys(TWO, "trained")
    assert [len(ends(one)) for one in (home, other)] == [2, 2]


def test_a_worker_whose_clock_is_hours_ahead_trains_as_any(home: FakeBatch, tmp_path: Path) -> None:
    url, far = str(tmp_path / "store"), elsewhere(tmp_path / "far", home)
    home.run_apart("pack", "--to", url)
    environment = {name: value for name, value in far.environment().items() if name != "SPLATBATCH_CONFIG"}
    command = [sys.executable, late_clock.__file__, "work", url, "--scratch", "scratch"]
    ended = subprocess.run(command, cwd=far.folder, env=environment, capture_output=True, timeout=90, check=False)
    home.run_apart("adopt", url)
    assert (ended.returncode, states(home)) == (0, dict.fromkeys(TWO, "trained"))


def test_a_worker_whose_time_is_up_sends_its_attempt_and_lets_go(home: FakeBatch, place: Site, tmp_path: Path) -> None:
    home.script(p0=["train 600"], p1=["train 600"])
    home.run_apart("pack", "--to", place.url)
    home.constants["splatbatch.night.store_worker.MARGIN_S"] = 1.0
    code, said = work(home, tmp_path / "far", place.url, "--for", "6s")
    assert (code, [one["state"] for one in bundles(place.url)]) == (75, ["waiting"] * 2), said
    home.run_apart("adopt", place.url)
    assert [outcome for _, _, outcome, _ in ends(home)] == ["stopped"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_store_that_fills_up_is_said_and_shows_nothing_half_written(home: FakeBatch, tmp_path: Path) -> None:
    """In a mount namespace of its own; 16 KiB hold no bundle."""
    store = tmp_path / "store"
    store.mkdir()
    mounted = f'mount -t tmpfs -o size=16k none {store} && "$@"; code=$?; ls -R {store}; exit $code'
    command = ["unshare", "--mount", "sh", "-c", mounted, "sh", *home.command("pack", "--to", str(store))]
    ended = subprocess.run(command, env=home.environment(), capture_output=True, text=True, timeout=90, check=False)
    assert (ended.returncode, os.strerror(errno.ENOSPC) in ended.stderr or "full" in ended.stderr) == (6, True), ended
    assert "Traceback" not in ended.stderr
    assert not files_below(store)


@pytest.mark.slow
def test_two_hundred_tasks_come_home_once(batch: FakeBatch, place: Site, tmp_path: Path) -> None:
    names = [f"p{number:03d}" for number in range(200)]
    batch.make(*names, constants=SHORT, **QUICK).change(executor={"store": place.url})
    parent = batch.start("train")
    workers = [worker(batch, tmp_path / name, place.url, "--idle", "60s") for name in ("far", "other")]
    out, err = parent.communicate(timeout=600)
    for one in workers:
        one.terminate()
        one.communicate(timeout=60)
    assert (parent.returncode, "200 of 200 patches trained" in out) == (0, True), err
    assert sorted(patch for patch, _, outcome, accepted in ends(batch) if outcome == "trained" and accepted) == names
