"""A standby opens its CUDA context beside a training, where nothing is risked; made-up GPUs, in simulated time."""

from __future__ import annotations

import pytest
from fake_batch import FakeBatch
from simulated import CROWDED_MIB, TOTAL_MIB, Script, Simulation, World

from splatbatch.machine import gpu
from splatbatch.outcome import Trained

CRASH = "Segmentation fault (core dumped)"


@pytest.fixture
def simulation(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    monkeypatch.setattr(gpu, "serves_many", lambda _: True)
    return Simulation(batch, monkeypatch)


def trained_all(simulation: Simulation, **sections: dict[str, object]) -> World:
    outcomes = simulation.run(**sections)
    assert all(isinstance(outcome, Trained) for outcome in outcomes.values())
    return simulation.world


def test_the_next_patch_has_its_context_before_its_turn_and_begins_at_once(simulation: Simulation) -> None:
    simulation.patches(p0=Script(10), p1=Script(10), p2=Script(10))
    world = trained_all(simulation)
    assert world.order("opens") == ["p1", "p2"]
    assert world.at("begins", "p0") < world.at("opens", "p1") < 1
    for before, after in (("p0", "p1"), ("p1", "p2")):
        assert world.at("begins", after) - world.at("ends", before) < 0.2


def test_it_begins_beside_one_that_only_evaluates(simulation: Simulation) -> None:
    simulation.patches(p0=Script(10, eval_s=8), p1=Script(10))
    assert trained_all(simulation).at("begins", "p1") < 11


def test_nobody_touches_a_gpu_that_is_to_rest_between_attempts(simulation: Simulation) -> None:
    simulation.patches(p0=Script(10), p1=Script(10))
    assert trained_all(simulation, cooldown={"floor_s": 3}).order("opens") == []


def test_nobody_touches_a_gpu_that_serves_one_process_only(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "serves_many", lambda _: False)
    simulation.patches(p0=Script(10), p1=Script(10))
    assert trained_all(simulation).order("opens") == []


def test_nobody_touches_a_gpu_that_several_patches_share(simulation: Simulation) -> None:
    simulation.patches(p0=Script(10), p1=Script(10), p2=Script(10), p3=Script(10))
    assert trained_all(simulation, executor={"patches_per_gpu": 2}).order("opens") == []


@pytest.mark.parametrize("peak_mib", [(TOTAL_MIB - 1500) / 1.3, TOTAL_MIB])
def test_nobody_takes_memory_that_the_training_may_need(simulation: Simulation, peak_mib: float) -> None:
    simulation.patches(p0=Script(10, peak_mib=peak_mib), p1=Script(10, peak_mib=10))
    assert trained_all(simulation).order("opens") == []


def test_nobody_touches_a_gpu_beside_a_program_of_which_nobody_knows_what_it_takes(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = simulation.need
    monkeypatch.setattr(simulation, "need", lambda name: None if name == "p0" else known(name))
    simulation.patches(p0=Script(10), p1=Script(10), p2=Script(10))
    assert trained_all(simulation).order("opens") == ["p2"]


def test_nobody_takes_memory_that_a_stranger_holds(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(10), p1=Script(10))
    world.squatter_mib = lambda time, _: TOTAL_MIB - 3000 if world.attempts and time < 8 else 0
    assert trained_all(simulation).at("opens", "p1") >= 8


def test_when_a_training_fails_nobody_goes_on_with_a_context_from_beside_it(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splatbatch.failures.retry.FIRST_WAIT_S", 0.0)
    world = simulation.patches(p0=[Script(log=CRASH, fails_after_s=5), Script(10)], p1=Script(10), p2=Script(10))
    trained_all(simulation)
    assert world.at("opens", "p1") < 5 <= world.at("ends", "p1")
    assert [one.folder.number for one in world.attempts.values() if one.folder.task.startswith("p1")].count(1) >= 1
    fresh = [one for one in world.attempts.values() if one.folder.task.startswith("p1") and one.began is not None]
    assert [one.opened for one in fresh] == [None]
    assert not [event for event in simulation.batch.events("attempt_ended") if event["outcome"] == "stopped"]


def test_with_two_gpus_everybody_begins_where_its_context_is(simulation: Simulation) -> None:
    """The world asserts it; no GPU waits for the other."""
    world = simulation.patches(p0=Script(10), p1=Script(14), p2=Script(10), p3=Script(10), p4=Script(10), p5=Script(10))
    world.num_gpus = 2
    trained_all(simulation)
    assert world.time < 35
    assert len(world.order("opens")) == 4


def test_the_last_patch_begins_anew_where_a_gpu_is_free_rather_than_wait_for_its_own(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(60), p1=Script(10), p2=Script(9), p3=Script(8))
    world.num_gpus = 2
    trained_all(simulation)
    assert world.time < 61


def test_one_whose_gpu_is_given_up_is_replaced_by_another(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(10), p1=Script(30), p2=Script(10), p3=Script(10))
    world.num_gpus = 2
    world.squatter_mib = lambda time, uuid: CROWDED_MIB if uuid == "GPU-1" and time > 9 else 0
    trained_all(simulation, cooldown={"longest_s": 5})
    assert [event["slot"] for event in simulation.batch.events("slot_given_up")] == ["gpu1"]
