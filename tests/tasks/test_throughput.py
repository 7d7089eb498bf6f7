"""How long it will take: by the throughput of what is trained, and by who takes what."""

from __future__ import annotations

import json

import pytest
from fake_batch import FakeBatch

from splatbatch.config import Config
from splatbatch.machine.gpu import Gpu
from splatbatch.scene.memory_estimate import MemoryEstimate
from splatbatch.tasks import estimates
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.estimates import makespan_s, seconds_per_step


def test_the_pace_is_that_of_the_typical_patch() -> None:
    assert seconds_per_step([(100, 1000), (120, 1000), (5000, 1000)]) == 0.12
    assert seconds_per_step([(0, 1000), (10, 0)]) is None


@pytest.mark.parametrize(
    ("seconds", "slots", "ends"),
    [([], 2, 0), ([5, 5, 5], 1, 15), ([5, 5, 10], 2, 10), ([4, 4, 3, 3, 3], 2, 10), ([7], 4, 7)],
)
def test_slots_that_are_free_take_the_longest_that_is_left(seconds: list[float], slots: int, ends: float) -> None:
    assert makespan_s(seconds, slots) == ends


def test_plan_tells_how_long_it_will_take_by_what_is_trained_once_something_is(batch: FakeBatch) -> None:
    batch.make("p0", "p1", "p2")
    assert "3 patches of 20 steps, on the CPU, based on benchmarks on CPUs" in batch.run("plan").stdout
    batch.run("train", "p0")
    planned = json.loads(batch.run("plan", "--json").stdout)
    assert planned["forecast_s"] == pytest.approx(2 * batch.result("p0")["seconds"])
    assert planned["forecast"]["basis"] == "based on 1 trained patch"


def test_variants_train_by_the_pace_of_their_patches_only_where_somebody_knows_it(batch: FakeBatch) -> None:
    program = {"command": ["true"], "artifact": {"ply": "*.ply"}}
    batch.make("p0", training={"device": "cpu", "trainer": "other", "max_steps": 10}, trainers={"other": program})
    assert "no estimate yet: 1 patch of 10 steps" in batch.run("plan").stdout


@pytest.mark.parametrize(
    ("at_once", "num_gpus", "slowdown"), [(1, 1, 1.0), (4, 1, 3.0), (4, 2, 1.5), (2, 2, 1.0), (4, 0, 1.0)]
)
def test_patches_that_share_a_gpu_take_longer_each(
    monkeypatch: pytest.MonkeyPatch, at_once: int, num_gpus: int, slowdown: float
) -> None:
    monkeypatch.setattr(estimates, "cards", lambda _: tuple(range(num_gpus)))
    assert estimates.packed_slowdown(Config(), at_once) == slowdown


def test_a_patch_that_is_trained_by_itself_shares_its_gpu_with_none(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch.make("p0", "p1", "p2", "p3", training={"device": "auto"})
    need = MemoryEstimate(1000, 1000, 100_000, "gpu", 100, num_points=10_000, mean_px=700_000)
    monkeypatch.setattr(estimates, "cards", lambda _: (Gpu(0, "GPU-a", "H200", 100_000),))
    monkeypatch.setattr(estimates, "is_on_cpu", lambda *_: False)
    monkeypatch.setattr(estimates, "num_cores", lambda: 16)
    monkeypatch.setattr(estimates, "available_mib", lambda: 1 << 20)
    opened = open_batch(batch.config)

    def seconds(*names: str) -> float:
        return estimates.forecast(opened, names, dict.fromkeys(names, need)).seconds or 0.0

    alone = seconds("p0")
    assert seconds("p0", "p1", "p2", "p3") == pytest.approx(3 * alone)
    batch.change(executor={"patches_per_gpu": 1})
    opened = open_batch(batch.config)
    assert seconds("p0") == alone


@pytest.mark.parametrize("on_cpu", [False, True])
def test_a_training_that_may_end_early_is_not_expected_to_make_all_its_steps(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, *, on_cpu: bool
) -> None:
    monkeypatch.setattr(estimates, "is_on_cpu", lambda *_: on_cpu)

    def planned(stop_after: object) -> tuple[float, str]:
        batch.make("p0", training={"max_steps": 20_000, "strategy": "default"}, evaluation={"stop_after": stop_after})
        opened = open_batch(batch.config)
        need = MemoryEstimate(0, 1000, 36, "host", 1, num_points=36, mean_px=768)
        found = estimates.forecast(opened, ["p0"], {"p0": need})
        return found.seconds or 0.0, found.patches

    (early_s, early), (full_s, full) = planned("auto"), planned(0)
    assert early_s / full_s == 1 if on_cpu else 0.65 < early_s / full_s < 0.8
    assert (early, full) == ("1 patch of up to 20,000 steps", "1 patch of 20,000 steps")
