"""A worker of a store that is told to stop while its claim is under way."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, cast

import pytest
from fake_batch import FakeBatch
from store_sites import Site
from travelling import QUICK, bundles

from splatbatch.night.interruption import Interruption
from splatbatch.night.store_worker import Stay, StoreWorker
from splatbatch.remote import exchange

CLAIM = exchange.claim


def slow_claim(url: str, asked: tuple[str, int, str, str, bool]) -> dict[str, Any]:
    """Claim, and be slow to answer."""
    record = CLAIM(url, asked)
    Path(os.environ["CLAIMED"]).touch()
    time.sleep(1.0)
    return record


class AsSoonAs:
    """Says stop as soon as a file is there."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def reason(self) -> str:
        return "told to stop" if self._file.exists() else ""


def test_a_claim_that_is_under_way_when_it_is_told_to_stop_is_let_go(
    batch: FakeBatch, sites: dict[str, Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever looks must find out that its worker is no more."""
    url = sites["folder"].below("told-to-stop")
    batch.make("p0", "p1", **QUICK).run_apart("pack", "--to", url)
    monkeypatch.setenv("CLAIMED", str(tmp_path / "claimed"))
    monkeypatch.setattr(exchange, "claim", slow_claim)
    (scratch := tmp_path / "scratch").mkdir()
    worker = StoreWorker(url, Stay(), cast("Interruption", AsSoonAs(tmp_path / "claimed")), scratch)
    assert worker.work() == 75
    assert sorted((one["state"], one["claims"]) for one in bundles(url)) == [("waiting", 0), ("waiting", 1)]
    claims = sorted(path.name for path in (Path(url) / exchange.CLAIMS).iterdir())
    assert len(claims) == 2 and claims[1] == claims[0] + exchange.LEFT


def test_a_worker_leaves_to_others_what_its_machine_cannot_train_and_ends(
    batch: FakeBatch, sites: dict[str, Site]
) -> None:
    url = sites["folder"].below("lacks-a-package")
    batch.make("p0", "p1", **QUICK).script(p1=["exit 1 ModuleNotFoundError: No module named 'x'"])
    batch.run_apart("pack", "--to", url)
    ended = batch.run_apart("work", url)
    assert ended.returncode == 1, ended.stderr
    assert "p1: is left to other machines: a package is missing (missing_dependency)" in ended.stderr
    assert sorted((one["task"], one["state"]) for one in bundles(url)) == [("p0", "trained"), ("p1", "waiting")]
