"""Accepted products: what they depend on, and that a kill at any moment leaves nothing false."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_trainer import splat_of

from splatbatch.config import Evaluation, Recipe, Training
from splatbatch.files import read_json
from splatbatch.hashing import sha256_of
from splatbatch.outcome import Splat, Trained
from splatbatch.output import results
from splatbatch.output.attempt_folder import Attempt
from splatbatch.output.folders import PatchFolder
from splatbatch.output.records.attempt import AttemptFacts, JobSpec
from splatbatch.output.records.result import Result
from splatbatch.output.results import CHANGED, restore, why_not_the_splat
from splatbatch.scene.patches import Patch
from splatbatch.splats import check_splat, write_splat
from splatbatch.tasks.fingerprint import fingerprint

if TYPE_CHECKING:
    from fake_batch import FakeBatch

RECIPE = Recipe()


@pytest.fixture
def patch(batch: FakeBatch) -> Patch:
    batch.make("p0")
    return Patch("p0", batch.folder / "patches/p0/sparse/0", batch.folder / "images")


@pytest.fixture
def folder(tmp_path: Path) -> PatchFolder:
    return PatchFolder(tmp_path / "output/patches/p0")


def attempt_with_splat(folder: PatchFolder, num: int = 10) -> tuple[Attempt, Trained]:
    attempt = Attempt("p0", folder.new_attempt(), JobSpec(changes={"training.seed": 1}))
    write_splat(attempt.folder.splat, splat_of(num), 20)
    splat = check_splat(attempt.folder.splat)
    assert isinstance(splat, Splat)
    return attempt, Trained(splat, ("odd",))


def accept(folder: PatchFolder, attempt: Attempt, trained: Trained, facts: dict[str, Any]) -> None:
    results.accept(folder, attempt.folder, results.keep(attempt, trained, AttemptFacts.from_record(facts)))


def product(folder: PatchFolder) -> Result:
    return folder.read_result() or Result()


def manifest(folder: PatchFolder) -> dict[str, Any]:
    return read_json(folder.result) or {}


def test_an_accepted_splat_moves_up_and_has_its_manifest(folder: PatchFolder) -> None:
    attempt, trained = attempt_with_splat(folder)
    accept(folder, attempt, trained, {"seconds": 3.0})
    assert attempt.folder.splat.samefile(folder.splat)
    wanted = {"patch": "p0", "attempt": "attempt-01", "num_gaussians": 10, "step": 20, "seconds": 3.0}
    assert manifest(folder).items() >= wanted.items()
    assert manifest(folder)["bytes"] == folder.splat.stat().st_size
    assert (manifest(folder)["changes"], manifest(folder)["warnings"]) == ({"training.seed": 1}, ["odd"])
    assert why_not_the_splat(folder, product(folder), "every byte") == ""


def test_a_later_splat_replaces_an_earlier_one(folder: PatchFolder) -> None:
    for num in (3, 4):
        accept(folder, *attempt_with_splat(folder, num), {})
    assert manifest(folder)["num_gaussians"] == 4
    names = sorted(path.name for path in folder.path.iterdir())
    assert names == ["accepted", "attempt-01", "attempt-02", "result.json", "splat.ply"]


def no_links(*_: object) -> None:
    raise OSError(1, "Operation not permitted")


@pytest.mark.parametrize("step", ["link", "replace"])
def test_a_kill_between_any_two_steps_leaves_no_manifest_of_another_splat(
    folder: PatchFolder, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Where a splat can be linked, and where it is copied and replaces the one before."""
    done = [0]

    def until_killed(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            done[0] -= 1
            if done[0] == -1:
                raise KeyboardInterrupt
            return real(*arguments)

        return call

    monkeypatch.setattr(os, "link", until_killed(os.link if step == "link" else no_links))
    monkeypatch.setattr(Path, "replace", until_killed(Path.replace))
    for number in count():
        home, done[0] = PatchFolder(folder.path / str(number)), 99
        accept(home, *attempt_with_splat(home, 3), {})
        attempt, trained = attempt_with_splat(home, 4)
        done[0] = number
        try:
            accept(home, attempt, trained, {})
            break
        except KeyboardInterrupt:
            told = Result.read(home.result)
        assert told is None or told.sha256 == sha256_of(home.splat), f"killed at step {number}"
        assert manifest(home) == {} or not why_not_the_splat(home, product(home), "every byte")
        assert isinstance(check_splat(attempt.folder.splat), Splat)
    assert number >= 5


def test_where_links_are_not_possible_the_splat_is_copied(folder: PatchFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", no_links)
    accept(folder, *attempt_with_splat(folder), {})
    assert why_not_the_splat(folder, product(folder), "every byte") == ""
    assert sorted(path.name for path in folder.path.iterdir()) == ["accepted", "attempt-01", "result.json", "splat.ply"]


def test_a_splat_that_was_changed_or_removed_is_not_the_accepted_one(folder: PatchFolder) -> None:
    accept(folder, *attempt_with_splat(folder), {})
    whole = folder.splat.read_bytes()
    folder.splat.write_bytes(whole[:-200] + bytes(200))
    assert [why_not_the_splat(folder, product(folder), depth) for depth in ("time", "content")] == ["", CHANGED]
    folder.splat.write_bytes(whole)
    assert [why_not_the_splat(folder, product(folder), depth) for depth in ("time", "content")] == ["", ""]
    os.truncate(folder.splat, len(whole) - 4)
    assert why_not_the_splat(folder, product(folder), "time") == CHANGED
    folder.splat.unlink()
    assert why_not_the_splat(folder, product(folder), "time") == "missing"


def test_a_change_that_hides_its_time_is_found_by_reading_every_byte(folder: PatchFolder) -> None:
    accept(folder, *attempt_with_splat(folder), {})
    stat = folder.splat.stat()
    folder.splat.write_bytes(folder.splat.read_bytes()[:-4] + b"abcd")
    os.utime(folder.splat, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert why_not_the_splat(folder, product(folder), "content") == ""
    assert why_not_the_splat(folder, product(folder), "every byte") == CHANGED


@pytest.mark.parametrize("lost", ["splat", "result"])
def test_what_was_accepted_and_is_gone_comes_back_from_its_attempt(folder: PatchFolder, lost: str) -> None:
    accept(folder, *attempt_with_splat(folder), {})
    before = manifest(folder)
    getattr(folder, lost).unlink()
    assert restore(folder) == "attempt-01"
    assert manifest(folder) == before
    assert why_not_the_splat(folder, product(folder), "every byte") == ""


def test_what_cannot_be_brought_back_stays_as_it_is(folder: PatchFolder) -> None:
    accept(folder, *attempt_with_splat(folder), {})
    assert restore(folder) == ""
    os.truncate(folder.splat, 500)  # the attempt's own name is the same file
    assert restore(folder) == ""
    assert why_not_the_splat(folder, product(folder), "content") == CHANGED


def test_attempts_are_numbered_on_and_strangers_beside_them_are_no_attempts(folder: PatchFolder) -> None:
    for name in ("attempt-09", "attempt-10", "attempt-x", "attempt-", "attempt-1.bak"):
        (folder.path / name).mkdir(parents=True)
    assert [attempt.number for attempt in folder.attempts()] == [9, 10]
    assert folder.new_attempt().path.name == "attempt-11"


def append(path: str) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        (root / path).write_bytes((root / path).read_bytes() + b"\n")

    return change


@pytest.mark.parametrize(
    "change",
    [
        append("patches/p0/sparse/0/points3D.txt"),
        append("patches/p0/sparse/0/cameras.txt"),
        append("images/img3.png"),
        lambda root: (root / "images/img3.png").unlink(),
        lambda root: (root / "patches/p0/sparse/0/rigs.txt").touch(),
        lambda root: (root / "patches/p0/sparse/0/images.txt").write_bytes(b"junk"),
    ],
)
def test_a_changed_input_changes_the_fingerprint(batch: FakeBatch, patch: Patch, change: Any) -> None:
    before = fingerprint(patch, RECIPE)
    assert fingerprint(patch, RECIPE) == before
    change(batch.folder)
    after = fingerprint(patch, RECIPE)
    assert after.inputs != before.inputs
    assert after.recipe == before.recipe


def test_a_photograph_of_no_patch_changes_nothing(batch: FakeBatch, patch: Patch) -> None:
    before = fingerprint(patch, RECIPE)
    (batch.folder / "images/other.png").touch()
    assert fingerprint(patch, RECIPE) == before


def test_a_changed_setting_or_holdout_list_changes_the_fingerprint(batch: FakeBatch, patch: Patch) -> None:
    assert fingerprint(patch, Recipe(training=Training(seed=7))).recipe != fingerprint(patch, RECIPE).recipe
    listed = Recipe(evaluation=Evaluation(holdout_list=batch.folder / "holdout.txt"))
    prints = []
    for text in ("img1.png\n", "img2.png\n"):
        (batch.folder / "holdout.txt").write_text(text)
        prints.append(fingerprint(patch, listed).inputs)
    assert prints[0] != prints[1]


def test_the_manifest_is_read_back_as_json(folder: PatchFolder) -> None:
    accept(folder, *attempt_with_splat(folder), {"gpu_peak_mib": None})
    assert (read_json(folder.result) or {})["gpu_peak_mib"] is None
