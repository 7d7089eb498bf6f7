"""An attempt, and a batch, of an external trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from attempted import Attempted
from external_runs import RUN, Run, recipe

from splatbatch.scene.patches import Patch
from splatbatch.trainers import open_trainer

if TYPE_CHECKING:
    from fake_batch import FakeBatch


@pytest.fixture
def patch(batch: FakeBatch) -> Patch:
    batch.make("p0")
    return Patch("p0", batch.folder / "patches/p0/sparse/0", batch.folder / "images")


@pytest.fixture
def run(batch: FakeBatch, patch: Patch) -> Run:
    def run(limits: dict[str, float] | None = None, **program: Any) -> Attempted:
        return Attempted(open_trainer(recipe(**program)), patch, batch.folder / "out", **limits or {})

    return run


@pytest.fixture
def foreign_batch(batch: FakeBatch) -> FakeBatch:
    batch.make("p0", "p1", training={"trainer": "foreign"}, trainers={"foreign": {**RUN, "ladders": {}}})
    return batch
