"""A batch of patches that `split` has cut: what is trained stays so while its own patch stays as it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import vast_scene
from fake_batch import FakeBatch

from splatbatch.scene.colmap.copies import Subset
from splatbatch.scene.colmap.indexed_model import IndexedModel
from splatbatch.scene.partition.plan import SplitOptions
from splatbatch.scene.partition.split import SplitFacts, SplitRequest, split
from splatbatch.tasks.audits import audits_of
from splatbatch.tasks.batch import PendingTasks, open_batch
from splatbatch.tasks.shared_decisions.frame import choose_frame, spans_of

MADE = vast_scene.flight(120, 8000)


def write(folder: Path, photos: np.ndarray, made: IndexedModel = MADE) -> None:
    Subset(made, photos, made.seen_by(photos)).write(folder / "sparse" / "0")


def cut(batch: FakeBatch, **wish: object) -> SplitFacts:
    wished = SplitOptions(**wish)  # type: ignore[arg-type]
    return split(SplitRequest(batch.folder / "sparse" / "0", None, batch.folder / "patches", wished))


@pytest.fixture
def cut_batch(tmp_path: Path) -> FakeBatch:
    """Return a batch on a scene of which the last photographs are not there yet."""
    batch = FakeBatch(tmp_path)
    (tmp_path / "sparse" / "0").mkdir(parents=True)
    (tmp_path / "images").mkdir()
    vast_scene.photograph().save(tmp_path / "plain.png")
    for image in MADE.images:
        os.link(tmp_path / "plain.png", tmp_path / "images" / image.name)
    batch.make().change(scene={"source": "."}, training={"colors": "as_is"})
    write(tmp_path, np.arange(120) < 114)
    cut(batch, max_images=60)
    return batch


def states(batch: FakeBatch) -> dict[str, str]:
    said = json.loads(batch.run("status", "--json").stdout)
    return {one["patch"]: one["state"] for one in said["patches"]}


def test_what_was_trained_stays_trained_where_no_photograph_was_added(cut_batch: FakeBatch):
    assert cut_batch.run("train", "--no-verify").returncode == 0
    write(cut_batch.folder, np.ones(120, bool))
    again = cut(cut_batch)
    assert "stays" in {one.state for one in again.patches}
    now = states(cut_batch)
    for one in again.patches:
        assert (now[one.name] == "trained") == (one.state == "stays"), (one.name, now)


@pytest.mark.all
def test_a_core_that_has_moved_is_another_patch(cut_batch: FakeBatch):
    assert cut_batch.run("train", "--no-verify").returncode == 0
    record = cut_batch.folder / "patches" / "p1" / "patch.json"
    said = json.loads(record.read_text())
    said["grown"]["upper"][0] = 77.0
    record.write_text(json.dumps(said))
    now = states(cut_batch)
    assert [name for name, state in now.items() if state != "trained"] == ["p1"]
    assert "p1: train: model, patch borders or hold-out have changed: patch/patch.json" in cut_batch.run("plan").stdout


@pytest.mark.all
def test_all_patches_have_the_offset_of_their_partition(cut_batch: FakeBatch):
    path = cut_batch.folder / "patches" / "partition.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps(said | {"offset": [500.0, 20.0, 0.0]}))
    batch = open_batch(cut_batch.config)
    assert {task.patch.offset for task in batch.tasks} == {(500.0, 20.0, 0.0)}
    spans = spans_of(audit for audit, _ in audits_of(batch))
    assert choose_frame(batch, PendingTasks(batch.tasks, lambda: spans)) == batch.shared.frame


@pytest.mark.all
def test_a_block_is_held_out_if_the_yaml_says_so_and_there_is_one(cut_batch: FakeBatch):
    cut_batch.change(evaluation={"holdout": "contiguous"})
    refused = cut_batch.run("plan")
    assert refused.returncode == 3
    assert "evaluation.holdout: contiguous" in refused.stderr
    assert "--holdout-block" in refused.stderr
    cut(cut_batch, block=0.1)
    assert "p0: train" in cut_batch.run("plan").stdout


def test_a_broken_partition_stops_a_batch_by_its_name(cut_batch: FakeBatch):
    path = cut_batch.folder / "patches" / "partition.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 9'))
    refused = cut_batch.run("plan")
    assert refused.returncode == 6
    assert "partition.json: written by a later version of splatbatch (format 9" in refused.stderr
    assert "Traceback" not in refused.stderr
