"""`inspect` as a supervised step: what it writes, when it does nothing, what it says of what cannot be inspected."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import Ended, invoke
from cut_quarry import QUARRY, accept, quarry_splat

from splatbatch.config import load
from splatbatch.store.layout import OutputFolder


@pytest.fixture(scope="module")
def quarry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quarry with p0 trained, and inspected once."""
    folder = tmp_path_factory.mktemp("inspected") / "quarry"
    shutil.copytree(QUARRY, folder, ignore=shutil.ignore_patterns("output"))
    config = folder / "splat_config.yml"
    config.write_text(config.read_text().replace("training:\n", "training:\n  device: cpu\n  resolution: 1/4\n", 1))
    accept(folder / "output", "p0", quarry_splat())
    assert inspect(folder, "p0").code == 0
    return folder


def inspect(folder: Path, *arguments: str) -> Ended:
    return invoke("inspect", *arguments, "--config", str(folder / "splat_config.yml"))


def test_the_process_is_an_attempt_and_its_record_lies_beside_the_splat(quarry: Path) -> None:
    patch = OutputFolder(quarry / "output").patch("p0")
    attempt, found, result = patch.inspecting.attempts()[0], patch.read_inspection(), patch.read_result()
    job, told = attempt.read_job(), attempt.read_exit()
    assert job is not None and "splatbatch.training.inspection" in job.argv
    assert told is not None and told.end.code == 0 and attempt.last_progress().phase == "photographs"
    assert found is not None and result is not None and found.splat == result.sha256
    assert found.grade in "ABCD" and len(found.figures) == 15


def test_what_was_inspected_as_it_is_is_not_inspected_again(quarry: Path) -> None:
    patch = OutputFolder(quarry / "output").patch("p0")
    ended = inspect(quarry, "p0", "--json")
    (name,) = json.loads(ended.out)
    assert name == "p0" and ended.code == 0 and len(patch.inspecting.attempts()) == 1


def test_a_patch_that_is_not_trained_is_told_and_the_others_are_inspected(quarry: Path) -> None:
    ended = inspect(quarry)
    assert ended.code == 1 and "p0" in ended.out
    assert "p1: not trained yet" in ended.err and "Traceback" not in ended.err


def test_a_photograph_that_is_gone_is_named(quarry: Path, tmp_path: Path) -> None:
    shutil.copytree(quarry, tmp_path / "quarry")
    gone = next((tmp_path / "quarry/images").rglob("*.jpg"))
    gone.unlink()
    ended = inspect(tmp_path / "quarry", "p0", "--again")
    assert ended.code == 1 and gone.name in ended.err and "train.log" in ended.err


def test_whether_splats_are_inspected_changes_no_splat(quarry: Path) -> None:
    config = load(quarry / "splat_config.yml").recipe("p0")
    other = config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"inspect": True})})
    assert config.decisive() == other.decisive()
