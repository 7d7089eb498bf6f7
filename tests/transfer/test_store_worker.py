"""A worker of a store that is told to stop, that cannot train here, or whose results the store does not take."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from fake_batch import FakeBatch
from in_process_courier import InProcessCourier
from store_sites import Site
from travelling import QUICK, bundles, run, taking_turns, work
from turns import CLOCK

from splatbatch.errors import StoreError
from splatbatch.isolated import Answer
from splatbatch.run.interruption import Interruption
from splatbatch.run.store_worker import StoreWorker
from splatbatch.transfer import blobs, courier, exchange
from splatbatch.transfer.courier import Order
from splatbatch.transfer.exchange import MOST_HANDLINGS, BundleState, StoreListing, StoreWatch


class SlowToClaim(InProcessCourier):
    """Makes each call at once, and never says what came of a claim."""

    claimed = 0

    def run(self, orders: Iterable[Order]) -> list[Any]:
        made = list(orders)
        SlowToClaim.claimed += sum(call is exchange.claim for call, _ in made)
        return super().run(made)

    def look(self) -> list[tuple[Order, Answer]]:
        is_claim = bool(self._left) and self._left[0][0] is exchange.claim
        found = super().look()
        if is_claim:
            self._left.append(found.pop()[0])
        return found


class OnceClaimed:
    """Says stop as soon as a claim was made."""

    def reason(self) -> str:
        return "told to stop" if SlowToClaim.claimed else ""


def test_a_claim_that_is_under_way_when_it_is_told_to_stop_is_let_go(
    batch: FakeBatch, sites: dict[str, Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever looks must find out that its worker is no more."""
    url = sites["folder"].below("told-to-stop")
    run(batch.make("p0", "p1", **QUICK), url, "pack", "--to", url)
    monkeypatch.setattr(courier, "Courier", SlowToClaim)
    monkeypatch.setattr(SlowToClaim, "claimed", 0)
    (scratch := tmp_path / "scratch").mkdir()
    worker = StoreWorker(url, cast("Interruption", OnceClaimed()), scratch)
    with taking_turns(), CLOCK.of_commands():
        assert worker.work() == 75
    assert SlowToClaim.claimed == 1
    assert sorted((one["state"], one["claims"]) for one in bundles(url)) == [("waiting", 0), ("waiting", 1)]


def test_a_worker_with_too_little_time_left_claims_nothing(
    batch: FakeBatch, sites: dict[str, Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim would count as made in vain: eight such workers would cost the patch."""
    url = sites["folder"].below("too-little-time")
    run(batch.make("p0", **QUICK), url, "pack", "--to", url)
    monkeypatch.setattr(courier, "Courier", InProcessCourier)
    (scratch := tmp_path / "scratch").mkdir()
    worker = StoreWorker(url, cast("Interruption", OnceClaimed()), scratch, for_s=1000.0)
    worker._took_s = 2000.0
    assert worker.work() == 75
    assert [(one["state"], one["claims"]) for one in bundles(url)] == [("waiting", 0)]


@pytest.mark.parametrize(("num_stopped", "due"), [(0, []), (1, ["a"]), (8, ["a"])])
def test_workers_that_were_told_to_stop_do_not_cost_a_patch(num_stopped: int, due: list[str]) -> None:
    results = {f"a.{number}.stopped.h": "stopped" for number in range(num_stopped)}
    seen = StoreListing({"a": BundleState(generation=MOST_HANDLINGS, results=results)})
    assert StoreWatch().due(seen, "me") == due


def test_a_worker_leaves_to_others_what_its_machine_cannot_train_and_ends(
    batch: FakeBatch, sites: dict[str, Site], tmp_path: Path
) -> None:
    url = sites["folder"].below("lacks-a-package")
    batch.make("p0", "p1", **QUICK).script(p1=["exit 1 ModuleNotFoundError: No module named 'x'"])
    run(batch, url, "pack", "--to", url)
    code, said = work(batch, tmp_path / "far", url)
    assert code == 1, said
    assert "p1: left to other machines: a package is missing (missing_dependency)" in said
    assert sorted((one["task"], one["state"]) for one in bundles(url)) == [("p0", "trained"), ("p1", "waiting")]


def test_what_a_store_does_not_take_ends_its_worker_and_stays_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier, "Courier", InProcessCourier)
    (tmp_path / "store").mkdir()
    (tmp_path / "store/results").write_text("no folder")
    worker = StoreWorker(str(tmp_path / "store"), cast("Interruption", OnceClaimed()), tmp_path)
    (folder := tmp_path / "attempt").mkdir()
    worker._sends.begin(lambda store, *_: blobs.put(store, [("results/a", b"1")]), None, folder)
    for _ in range(2):
        with pytest.raises(StoreError):
            worker._beat()
    assert folder.is_dir()
