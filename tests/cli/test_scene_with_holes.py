"""A scene that was merged with holes: it is evaluated, published and viewed, and the holes are named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import invoke
from cut_batch import copy_of, trained
from cut_quarry import lay_out
from fake_batch import FakeBatch

from splatbatch.config import load
from splatbatch.output.layout import OutputFolder
from splatbatch.publish.joint_scene import view_together
from splatbatch.publish.source import viewed
from splatbatch.tasks.batch import open_batch


@pytest.fixture(scope="module")
def merged_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    """A batch of which p1 was refused, since its model is broken, and the others were merged."""
    batch = trained(tmp_path_factory.mktemp("holes") / "batch")
    refuse(batch.folder, batch.output)
    ended = invoke("merge", "--allow-missing", batch=batch)
    assert ended.code == 0, ended.err
    return batch


@pytest.fixture
def batch(merged_once: FakeBatch, tmp_path: Path) -> FakeBatch:
    return copy_of(merged_once, tmp_path / "batch")


def refuse(folder: Path, output: Path) -> None:
    """Break the model of p1, whose splat is none any more."""
    model = folder / "patches/p1/sparse/0"
    for path in model.glob("images.*"):
        path.write_bytes(b"\xff")
    shutil.rmtree(output / "patches/p1")


@pytest.mark.all
def test_it_is_published_and_its_holes_are_named(batch: FakeBatch) -> None:
    ended = invoke("publish", "--as", "ply,tiles", "--to", str(batch.folder / "published"), batch=batch)
    assert ended.code == 0, ended.err
    assert "p1: " in ended.err and "a hole in the scene" in ended.err
    assert (batch.folder / "published/publish.json").exists()


def test_it_can_be_viewed(batch: FakeBatch) -> None:
    (scene,) = viewed(open_batch(batch.config), ["scene"])
    assert view_together([scene], "").facts.splat.num_gaussians == scene.num_gaussians
    assert scene.views.holdout == ("img0.png", "img8.png")
    assert [warning for warning in scene.warnings if warning.startswith("p1: ")]


def test_it_is_cleaned(batch: FakeBatch) -> None:
    ended = invoke("merge", "--allow-missing", "--clean", batch=batch)
    assert ended.code == 0, ended.err


@pytest.mark.all
def test_it_is_measured_with_the_refused_patch_named(tmp_path: Path) -> None:
    partition = lay_out(tmp_path / "quarry")
    config = tmp_path / "quarry/splat_config.yml"
    config.write_text(config.read_text().replace("training:\n", "training:\n  device: cpu\n  resolution: 1/4\n", 1))
    refuse(tmp_path / "quarry", load(config).output.folder)
    ended = invoke("evaluate", "--config", str(config))
    assert ended.code == 1, ended.err  # as documented: a patch is missing beside it
    assert "p1: not trained yet" in ended.err
    found = OutputFolder(tmp_path / "quarry/output").scene.read_evaluation()
    assert found is not None and found.photos.keys() == partition.test
