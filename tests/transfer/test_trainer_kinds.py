"""Every kind of trainer travels by every kind of store: once the worker's folder is gone, each splat comes home."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cut_batch
import pytest
import trainer_kinds
from fake_batch import QUARRY, FakeBatch
from homeless import without_home
from travelling import QUICK, SHORT, decided_at_home, run, states, work

from splatbatch.output.records.result import Result
from splatbatch.tasks.batch import open_batch
from splatbatch.transfer.bundle import bundle_of

if TYPE_CHECKING:
    from store_sites import Site

TIMELESS = ("step", "num_gaussians", "warnings", "photographs", "recipe", "inputs", "bytes")
"""Of a manifest: what no clock decides."""


class RealBatch(FakeBatch):
    """A batch whose builtin trainer is the real one."""

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "splatbatch", *arguments]


def travelled(home: FakeBatch, url: str, far: Path) -> str:
    """Pack, train elsewhere, remove the worker's folder, adopt; return what was said."""
    packed = run(home, url, "pack", "--to", url)
    assert packed.returncode == 0, packed.stderr
    code, said = work(home, far, url)
    assert code == 0, said
    shutil.rmtree(far)
    adopted = run(home, url, "adopt", url)
    return adopted.stdout + adopted.stderr


@pytest.fixture
def home(batch: FakeBatch, place: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBatch:
    folder = Path(place.environment.get("HOME", tmp_path / "user"))
    for name, value in trainer_kinds.install_programs(folder).items():
        monkeypatch.setenv(name, value)
    return trainer_kinds.make(batch, tmp_path / "started-here")


def manifest(batch: FakeBatch, patch: str) -> dict[str, Any]:
    """Return what no clock decides of the manifest of a splat."""
    told = batch.result(patch)
    figures = Result.from_record(told).metrics
    return {name: told[name] for name in TIMELESS} | {"final": figures.final, "by": figures.measured_by}


@pytest.mark.all
@decided_at_home
def test_splats_of_every_kind_of_trainer_come_home(
    home: FakeBatch, place: Site, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    said = travelled(home, place.url, tmp_path / "far")
    found = states(home)
    record_property("figure", f"{list(found.values()).count('trained')} of {len(found)} kinds of trainers came home")
    assert found == dict.fromkeys(found, "trained"), said
    assert len(found) == 8 + len(trainer_kinds.PRESETS)


@pytest.mark.all
@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_what_came_home_is_what_would_have_been_trained_there(home: FakeBatch, place: Site, tmp_path: Path) -> None:
    there = home.copied(tmp_path.with_name(f"{tmp_path.name}-there"))
    travelled(home, place.url, tmp_path / "far")
    assert there.run("train").returncode == 0
    assert [manifest(home, one) for one in states(home)] == [manifest(there, one) for one in states(home)]


@pytest.mark.all
@decided_at_home
def test_splats_of_our_own_strategies_come_home(place: Site, tmp_path: Path) -> None:
    home = RealBatch(tmp_path / "home").make("default", "mcmc", **QUICK)
    home.change(scene={"patches": str(QUARRY / "patches"), "images": str(QUARRY / "images")})
    home.change(patches={"p0": {"training": {"strategy": "default"}}, "p1": {"training": {"strategy": "mcmc"}}})
    said = travelled(home, place.url, tmp_path / "far")
    assert states(home) == {"p0": "trained", "p1": "trained"}, said
    assert all(manifest(home, one)["final"].psnr for one in ("p0", "p1"))


@pytest.fixture(scope="module")
def came_home(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    """Return a batch whose three splats came home: of ours, of a program, and of one that we have measured."""
    batch = FakeBatch(folder := tmp_path_factory.mktemp("came-home"))
    trainers = {name: trainer_kinds.argv_trainers(folder)[name] for name in ("globbed", "measured")}
    patches = {name: {"training": {"trainer": name}} for name in trainers}
    batch.make("builtin", *trainers, constants=SHORT, trainers=trainers, patches=patches, **QUICK)
    travelled(batch, str(folder / "store"), folder / "far")
    return batch


@pytest.fixture
def adopted(came_home: FakeBatch, tmp_path: Path) -> FakeBatch:
    return came_home.copied(tmp_path / "home")


def test_an_adopted_splat_was_measured_by_its_worker_and_keeps_its_figures(adopted: FakeBatch) -> None:
    metrics = Result.from_record(adopted.result("measured")).metrics
    assert (metrics.measured_by, metrics.final.psnr is not None, bool(metrics.covered.hash)) == (
        "splatbatch",
        True,
        True,
    )
    assert metrics.splat == "output/point_cloud_20.ply"


@pytest.mark.contract  # of a program
def test_commands_work_on_adopted_attempts_as_on_local_ones(adopted: FakeBatch) -> None:
    assert "PSNR 21.5" in adopted.run("explain", "globbed", "--log").stdout
    assert adopted.run("report").returncode == 0
    told = json.loads((adopted.output / "report.json").read_text())
    [attempt] = next(one["attempts"] for one in told["patches"] if one["patch"] == "measured")
    assert (attempt["outcome"], attempt["psnr"] is not None, attempt["has_splat"]) == ("trained", True, True)
    again = adopted.run("retry", "globbed", "--force", "--set", "training.max_steps=30")
    assert again.returncode == 0, again.stderr
    assert adopted.run("accept", "globbed", "--attempt", "2").returncode == 0
    assert adopted.run("accept", "globbed", "--attempt", "1").returncode == 0
    assert (adopted.result("globbed")["attempt"], states(adopted)["globbed"]) == ("attempt-01", "trained")


@pytest.mark.all
def test_a_scene_of_adopted_splats_is_merged_and_evaluated(batch: FakeBatch, tmp_path: Path) -> None:
    batch.make("p0", "p1", constants=SHORT, trainers={"beside": trainer_kinds.argv()}, **QUICK)
    batch.change(training={"trainer": "beside"}, patches={"p0": {"setting": {"do": "train-at -0.5"}}})
    cut_batch.cut(batch, [(0, 0, 0.0)])
    travelled(batch, str(tmp_path / "store"), tmp_path / "far")
    for command in ("merge", "evaluate"):
        ended = batch.run_apart(command, timeout_s=200)
        assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.contract  # of a program
def test_a_working_folder_below_the_home_of_a_user_is_that_of_the_worker(
    batch: FakeBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "store")
    for user in ("here", "there"):
        for name, value in trainer_kinds.install_programs(tmp_path / user).items():
            monkeypatch.setenv(name, value)
        if user == "here":
            batch.make(
                "p0", constants=SHORT, trainers={"simple_trainer": trainer_kinds.preset("simple_trainer")}, **QUICK
            )
            batch.change(training={"trainer": "simple_trainer", "max_steps": 30_000})
            assert run(batch, url, "pack", "--to", url).returncode == 0
            shutil.rmtree(tmp_path / user)
    code, said = work(batch, tmp_path / "far", url)
    assert code == 0, said
    run(batch, url, "adopt", url)
    assert states(batch) == {"p0": "trained"}


def test_a_program_is_packed_for_a_user_without_a_home_folder(
    batch: FakeBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch.make("p0", trainers={"beside": trainer_kinds.argv(do="melt rises")}, training={"trainer": "beside"})
    without_home(monkeypatch)
    packed, _ = bundle_of("home", False, open_batch(batch.config).tasks[0])
    assert packed["settings"]["trainers"]["beside"]["working_folder"] is None


@pytest.mark.all
def test_the_rules_of_health_judge_a_program_that_trained_elsewhere(batch: FakeBatch, tmp_path: Path) -> None:
    told = {"progress": {"step": r"step (\d+)/", "loss": r"loss (\S+)"}}
    batch.make("p0", constants=SHORT, trainers={"beside": trainer_kinds.argv(do="melt rises", **told)}, **QUICK)
    batch.change(training={"trainer": "beside", "max_steps": 60})
    travelled(batch, str(tmp_path / "store"), tmp_path / "far")
    assert [one.partition(":")[0] for one in batch.result("p0")["warnings"]] == ["loss_not_falling"]
