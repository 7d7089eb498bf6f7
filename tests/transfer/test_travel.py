"""Tasks that travel: packed at home, trained by workers that see nothing but the store, adopted once."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from process_family import wait_until
from travelling import QUICK, SHORT, bundles, decided_at_home, ends, run, states, work, worker

if TYPE_CHECKING:
    from fake_batch import FakeBatch
    from store_sites import Site

THREE = ("p0", "p1", "p2")


@pytest.fixture
def home(batch: FakeBatch) -> FakeBatch:
    return batch.make(*THREE, constants=SHORT, **QUICK)


def packed(home: FakeBatch, place: Site, *words: str) -> str:
    done = run(home, place.url, "pack", "--to", place.url, *words)
    assert done.returncode == 0, done.stderr
    return place.url


def adopted(home: FakeBatch, url: str) -> str:
    done = run(home, url, "adopt", url)
    return done.stdout + done.stderr


def test_outcomes_are_those_of_a_night_at_home(home: FakeBatch, place: Site, tmp_path: Path) -> None:
    home.script(p0=["train"], p1=["die SIGSEGV", "train"], p2=["exit 1 odd"])
    code, said = work(home, tmp_path / "far", packed(home, place))
    assert (code, "2 trained here, 1 failed" in said) == (1, True), said
    adopted(home, place.url)
    assert states(home) == {"p0": "trained", "p1": "trained", "p2": "failed unknown"}
    assert [one[:3] for one in ends(home)] == [
        ("p0", 1, "trained"), ("p1", 1, "failed"), ("p1", 2, "trained"), ("p2", 1, "failed"), ("p2", 2, "failed"),
    ]  # fmt: skip


@pytest.mark.all
@pytest.mark.journey
def test_train_packs_waits_adopts_and_reports(home: FakeBatch, place: Site, tmp_path: Path) -> None:
    home.change(executor={"store": place.url})
    parent = home.start("train")
    far = worker(home, tmp_path / "far", place.url, "--idle", "600s")
    out, err = parent.communicate(timeout=90)
    far.terminate()
    assert (parent.returncode, "3 of 3 patches trained" in out) == (0, True), err
    assert (far.wait(30), states(home)) == (75, dict.fromkeys(THREE, "trained"))
    assert (home.output / "report.html").exists()
    assert not (home.output / ".arriving").exists()


@decided_at_home
def test_what_was_adopted_is_not_adopted_again(home: FakeBatch, place: Site, tmp_path: Path) -> None:
    work(home, tmp_path / "far", packed(home, place))
    adopted(home, place.url)
    before = ends(home)
    adopted(home, place.url)
    assert (ends(home), len(before)) == (before, 3)
    assert "already trained: p0, p1, p2" in run(home, place.url, "pack", "--to", place.url).stdout


@pytest.mark.journey
@decided_at_home
def test_a_killed_worker_costs_one_attempt(home: FakeBatch, place: Site, tmp_path: Path) -> None:
    home.script(p0=["train 600"], p1=["train 600"], p2=["train 600"])
    first = worker(home, tmp_path / "far", packed(home, place))
    wait_until(lambda: list((tmp_path / "far").glob("scratch/*/*/output/patches/*/attempt-01/start.json")))
    os.kill(first.pid, signal.SIGKILL)
    first.communicate(timeout=30)
    home.script()
    code, said = work(home, tmp_path / "other", place.url)
    assert (code, "3 trained here" in said) == (0, True), said
    adopted(home, place.url)
    assert states(home) == dict.fromkeys(THREE, "trained")
    assert max(one["claims"] for one in bundles(place.url)) == 2


@pytest.mark.all
@pytest.mark.journey
@decided_at_home
def test_a_worker_that_is_told_to_stop_lets_go_and_sends_its_attempt(
    home: FakeBatch, place: Site, tmp_path: Path
) -> None:
    home.script(p0=["train 600"], p1=["train 600"], p2=["train 600"])
    first = worker(home, tmp_path / "far", packed(home, place))
    wait_until(lambda: list((tmp_path / "far").glob("scratch/*/*/output/patches/*/attempt-01/start.json")))
    first.terminate()
    said = first.communicate(timeout=30)[0]
    assert first.returncode == 75, said
    assert [one["state"] for one in bundles(place.url)] == ["waiting"] * 3
    adopted(home, place.url)
    assert [outcome for _, _, outcome, _ in ends(home)] == ["stopped"]


@pytest.mark.all
@decided_at_home
def test_cancel_at_a_store_reaches_its_worker(home: FakeBatch, place: Site, tmp_path: Path) -> None:
    home.script(p0=["train 600"], p1=["train 600"], p2=["train 600"])
    far = worker(home, tmp_path / "far", packed(home, place))
    wait_until(lambda: list((tmp_path / "far").glob("scratch/*/*/output/patches/*/attempt-01/start.json")))
    done = run(home, place.url, "cancel", place.url)
    assert "cancelled: p0, p1, p2" in done.stdout, done.stderr
    assert far.wait(60) == 0
    assert {one["state"] for one in bundles(place.url)} == {"closed"}


def test_what_was_cancelled_at_a_store_is_packed_anew_by_the_next_train(
    home: FakeBatch, sites: dict[str, Site], tmp_path: Path
) -> None:
    url = packed(home, sites["folder"])
    run(home, url, "cancel", url)
    home.change(executor={"store": url})
    ended = run(home, url, "train", others=(lambda: work(home, tmp_path / "far", url),))
    assert (ended.returncode, states(home)) == (0, dict.fromkeys(THREE, "trained")), ended.stderr


@pytest.mark.all
@decided_at_home
def test_a_killed_home_goes_on_where_it_was(home: FakeBatch, place: Site, tmp_path: Path) -> None:
    packed(home, place)  # a worker finds them however slow home begins
    home.change(executor={"store": place.url})
    parent = home.start("train")
    code, said = work(home, tmp_path / "far", place.url)
    wait_until(lambda: list(home.output.glob("patches/*/attempt-*/brought.json")))
    parent.kill()
    parent.communicate()
    again = run(home, place.url, "train")
    assert (again.returncode, code) == (0, 0), (again.stderr, said)
    assert [one[:3] for one in ends(home)] == [(name, 1, "trained") for name in THREE]


@decided_at_home
def test_what_was_trained_while_home_was_away_is_not_trained_again(
    home: FakeBatch, place: Site, tmp_path: Path
) -> None:
    work(home, tmp_path / "far", packed(home, place))
    assert "to adopt, run: splatbatch adopt" in run(home, place.url, "pack", "--to", place.url).stdout
    home.change(executor={"store": place.url})
    assert run(home, place.url, "train").returncode == 0
    assert [one["results"] for one in bundles(place.url)] == [["trained"]] * 3


@pytest.mark.all
@pytest.mark.parametrize("place", ["ssh"], indirect=True)
def test_a_worker_keeps_its_few_connections(home: FakeBatch, place: Site, tmp_path: Path) -> None:
    """A server may refuse whoever connects anew for every call, and its log names each."""
    url = packed(home, place)
    with Path(place.environment["HOME"], "../sshd.log").open() as told:
        told.seek(0, os.SEEK_END)
        work(home, tmp_path / "far", url)
        assert 1 <= told.read().count("Accepted publickey") <= 6  # it made 33


@decided_at_home
def test_what_home_has_changed_meanwhile_is_kept_and_not_accepted(home: FakeBatch, place: Site, tmp_path: Path) -> None:
    work(home, tmp_path / "far", packed(home, place))
    home.change(training={"max_steps": 30, "device": "cpu", "colors": "as_is"})
    said = adopted(home, place.url)
    assert said.count("kept as an attempt, not accepted: its settings") == 3, said
    assert list(home.output.glob("patches/*/accepted")) == []
    assert len(list(home.output.glob("patches/*/attempt-01/splat.ply"))) == 3


@decided_at_home
def test_two_who_train_the_same_bring_one_splat(home: FakeBatch, place: Site, tmp_path: Path) -> None:
    """As where a store lets two win: the claims of the first are taken away."""
    url = packed(home, place)
    work(home, tmp_path / "far", url)
    results = forget_results(place, home)
    work(home, tmp_path / "other", url)
    results()
    adopted(home, url)
    trained = [one for one in ends(home) if one[2] == "trained"]
    assert sorted(one[3] for one in trained) == [False] * 3 + [True] * 3
    assert sorted(path.name for path in home.output.glob("patches/*/accepted/*")) == ["1.json"] * 3


def test_a_second_result_of_a_task_that_is_trained_already_does_not_end_the_night(
    home: FakeBatch, sites: dict[str, Site], tmp_path: Path
) -> None:
    place = sites["folder"]
    url = packed(home, place, "p0")
    work(home, tmp_path / "far", url)
    results = forget_results(place, home)
    work(home, tmp_path / "other", url)
    adopted(home, url)
    results()
    home.change(executor={"store": url})
    ended = run(home, url, "train", others=(lambda: work(home, tmp_path / "third", url),))
    assert (ended.returncode, states(home)) == (0, dict.fromkeys(THREE, "trained")), ended.stderr
    assert "another splat was accepted meanwhile" in ended.stderr


def forget_results(place: Site, home: FakeBatch) -> Any:
    """Hide the claims and results of a store; return what brings the results back."""
    import obstore

    from splatbatch.transfer.schemes import open_store
    from splatbatch.transfer.store import read_whole

    store = open_store(place.url)
    kept = {name: read_whole(store, f"results/{name}", 1 << 24) for name in store.names("results")}
    for folder in ("results", "claims"):
        for name in store.names(folder):
            if place.kept:
                (place.kept / folder / name).unlink()
            else:
                obstore.delete(store._bucket, f"{folder}/{name}")
    return lambda: [store.write(f"results/{name}", content) for name, content in kept.items()]


def test_photographs_that_patches_share_lie_in_the_store_once(home: FakeBatch, place: Site) -> None:
    from splatbatch.transfer.schemes import open_store
    from splatbatch.transfer.store import read_whole

    store = open_store(packed(home, place))
    sizes = [len(read_whole(store, f"blobs/{name}", 1 << 24)) for name in store.names("blobs")]
    distinct = {path.read_bytes() for path in home.folder.glob("images/*")}
    distinct |= {path.read_bytes() for path in home.folder.glob("patches/*/sparse/0/*")}
    assert sum(sizes) == sum(map(len, distinct))


def test_json_of_a_store_says_who_is_at_what(home: FakeBatch, place: Site) -> None:
    told = bundles(packed(home, place))
    assert [(one["task"], one["state"], one["max_steps"], one["claims"]) for one in told] == [
        (name, "waiting", 20, 0) for name in THREE
    ]
    assert json.loads(home.run("pack", "--to", place.url, "--json").stdout)["packed"] == list(THREE)
