"""What patches need is said before the start, and a GPU that is too small for them too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from splatbatch.config import Config, load
from splatbatch.machine import gpu
from splatbatch.machine.gpu import Gpu
from splatbatch.scene.patches import find_patches
from splatbatch.tasks import estimates
from splatbatch.tasks.task import tasks_of

if TYPE_CHECKING:
    from fake_batch import FakeBatch

SMALL = Gpu(0, "GPU-small", "small", 1_024)
LARGE = Gpu(1, "GPU-large", "large", 81_920)


def config_of(batch: FakeBatch, **sections: dict[str, object]) -> Config:
    return load(batch.make("p0", "p1", **sections).config)


def test_plan_tells_the_cap_as_a_number_and_the_memory(batch: FakeBatch) -> None:
    batch.make("p0", training={"cap_max": "2x", "strategy": "default"})
    shown = batch.run("plan")
    assert "p0: expected: up to 72 Gaussians, " in shown.stdout, shown.stderr
    need = json.loads(batch.run("plan", "--json").stdout)["patches"][0]["need"]
    assert (need["num_gaussians"], need["gpu_mib"], need["photos"]) == (72, 0, "host")


def test_a_batch_writes_down_what_it_expects(batch: FakeBatch) -> None:
    batch.make("p0").run("train")
    (event,) = batch.events("expected")
    assert event["patch"] == "p0"
    assert event["host_mib"] > 0


@pytest.mark.parametrize(("wanted", "names"), [("auto", {"p0", "p1"}), ([0], {"p0", "p1"}), ([1], set())])
def test_the_smallest_gpu_of_the_batch_decides(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, wanted: object, names: set[str]
) -> None:
    monkeypatch.setattr(gpu, "gpus", lambda: (SMALL, LARGE))
    training = {"device": "cuda", "strategy": "default", "cap_max": 2_000_000}
    config = config_of(batch, training=training, executor={"gpus": wanted})
    found = estimates.footprints_of(config, tasks_of(config, find_patches(config.scene)))
    assert set(estimates.tight(found, config)) == names
    assert found["p0"].gpu_mib > 2_000


def test_a_patch_whose_model_is_broken_is_left_to_the_audit(batch: FakeBatch) -> None:
    config = config_of(batch)
    Path(batch.folder / "patches/p0/sparse/0/points3D.txt").unlink()
    assert set(estimates.footprints_of(config, tasks_of(config, find_patches(config.scene)))) == {"p1"}
