"""Decisions that take hours or several GPUs, in simulated time: order, faults, overlap, gates, standbys."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pytest
from fake_batch import FakeBatch
from simulated import CROWDED_MIB, TOTAL_MIB, Script, Simulation, World

from splatbatch.machine import gpu
from splatbatch.outcome import Failed, Trained
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.scheduler import launch
from splatbatch.tasks.task import Task, TrainTask

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def raised(error: Exception) -> None:
    raise error


@pytest.fixture
def simulation(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    return Simulation(batch, monkeypatch)


@pytest.mark.all
def test_on_one_gpu_patches_are_trained_in_their_order(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(5), p1=Script(50), p2=Script(20))
    simulation.run()
    assert world.order() == ["p0", "p1", "p2"]


@pytest.mark.all
def test_on_several_gpus_the_longest_patch_comes_first(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(5), p1=Script(50), p2=Script(20), p3=Script(30), p4=Script(20))
    world.num_gpus = 2
    simulation.run()
    assert world.order() == ["p1", "p3", "p2", "p4", "p0"]
    assert world.time < 75


def test_a_patch_stands_by_while_another_trains_and_goes_at_once(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(10), p1=Script(10))
    simulation.run()
    assert world.at("stands by", "p1") < 1
    assert world.at("begins", "p1") - world.at("ends", "p0") < 0.2


def test_evaluation_overlaps_with_the_next_training(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(10, eval_s=8), p1=Script(10, eval_s=8), p2=Script(10))
    outcomes = simulation.run()
    assert world.at("begins", "p1") < 11
    assert world.at("begins", "p2") < 22
    assert all(isinstance(outcome, Trained) for outcome in outcomes.values())


def test_evaluation_overlaps_although_the_allocator_keeps_more_than_is_in_use(simulation: Simulation) -> None:
    """Torch gives back what it does not use only beyond half as much again and 512 MiB: no stranger's memory."""
    world = simulation.patches(p0=Script(10, eval_s=8, peak_mib=1000, reserved_mib=2000), p1=Script(10))
    simulation.run()
    assert world.at("begins", "p1") < 11


def test_nothing_overlaps_where_memory_does_not_allow_it(simulation: Simulation) -> None:
    large = 0.6 * TOTAL_MIB
    world = simulation.patches(p0=Script(10, eval_s=8, peak_mib=large), p1=Script(10, peak_mib=large))
    simulation.run()
    assert world.at("begins", "p1") >= world.at("ends", "p0") >= 18


def test_nothing_overlaps_while_a_stranger_holds_memory(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(10, eval_s=8), p1=Script(10))
    world.squatter_mib = lambda time, _: CROWDED_MIB if 5 < time < 30 else 0
    simulation.run()
    assert world.at("begins", "p1") >= 30


@pytest.mark.all
def test_who_asks_for_a_pause_gets_no_overlap(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(10, eval_s=8), p1=Script(10))
    simulation.run(cooldown={"floor_s": 3})
    assert world.at("begins", "p1") - world.at("ends", "p0") >= 3


def test_a_gpu_that_faults_is_taken_out_of_service_and_its_patch_goes_elsewhere(simulation: Simulation) -> None:
    world = simulation.patches(p0=[Script(log=XID), Script(10)], p1=Script(15), p2=Script(5), p3=Script(5))
    world.num_gpus = 2
    outcomes = simulation.run()
    assert all(isinstance(outcome, Trained) for outcome in outcomes.values())
    assert [event["slot"] for event in simulation.batch.events("slot_given_up")] == ["gpu1"]
    assert [event["how"] for event in simulation.batch.events("retry")] == ["on another GPU"]
    slots = [event["slot"] for event in simulation.batch.events("attempt_started")]
    assert slots.count("gpu1") == 1


def test_a_fault_of_the_only_gpu_is_a_failure(simulation: Simulation) -> None:
    simulation.patches(p0=Script(log=XID))
    assert isinstance(simulation.run()["p0"], Failed)
    assert simulation.batch.events("slot_given_up") == []


def test_a_patch_that_faults_a_second_gpu_is_held_to_account(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(log=XID), p1=Script(15), p2=Script(15))
    world.num_gpus = 3
    outcomes = simulation.run()
    assert isinstance(outcomes["p0"], Failed)
    assert len(simulation.batch.events("slot_given_up")) == 2


def test_a_gpu_that_never_becomes_free_is_given_up_and_the_other_does_the_work(simulation: Simulation) -> None:
    world = simulation.patches(**{f"p{number}": Script(10) for number in range(5)})
    world.num_gpus = 2
    world.squatter_mib = lambda time, uuid: CROWDED_MIB if time and uuid == "GPU-1" else 0
    outcomes = simulation.run(cooldown={"longest_s": 5})
    assert all(isinstance(outcome, Trained) for outcome in outcomes.values())
    assert [event["slot"] for event in simulation.batch.events("slot_given_up")] == ["gpu1"]


def test_who_comes_to_a_gpu_and_stays_stops_no_patch_that_has_room_beside(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(10), p1=Script(10), p2=Script(10))
    world.squatter_mib = lambda time, _: 5000 if time > 5 else 0
    outcomes = simulation.run(cooldown={"longest_s": 60})
    assert all(isinstance(outcome, Trained) for outcome in outcomes.values())
    assert world.time < 60


def test_when_the_only_gpu_never_becomes_free_what_waits_fails(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(10), p1=Script(10), p2=Script(10))
    world.squatter_mib = lambda time, _: CROWDED_MIB if time else 0
    outcomes = simulation.run(cooldown={"longest_s": 60})
    assert isinstance(outcomes["p0"], Trained)
    assert {outcomes[name].diagnosis.cause for name in ("p1", "p2")} == {"cuda_busy_or_unavailable"}
    assert world.time < 80


def test_what_comes_back_from_a_gpu_that_was_given_up_does_not_wait_for_ever(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(log=XID, fails_after_s=5), p1=Script(60, log="it broke", fails_after_s=30))
    world.num_gpus = 2
    world.squatter_mib = lambda time, uuid: CROWDED_MIB if time and uuid == "GPU-0" else 0
    outcomes = simulation.run(cooldown={"longest_s": 5}, executor={"patches_per_gpu": 2})
    assert [event["slot"] for event in simulation.batch.events("slot_given_up")] == ["gpu1", "gpu0"]
    assert {outcomes[name].diagnosis.cause for name in ("p0", "p1")} == {"cuda_busy_or_unavailable"}


def test_a_standby_that_cannot_be_told_to_go_is_told_later(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = simulation.patches(p0=Script(10), p1=Script(10))
    write_go, full = launch.write_go, [OSError(errno.ENOSPC, "No space left on device")] * 3
    monkeypatch.setattr(launch, "write_go", lambda *order: raised(full.pop()) if full else write_go(*order))
    outcomes = simulation.run()
    assert all(isinstance(outcome, Trained) for outcome in outcomes.values())
    assert world.at("begins", "p1") > world.at("ends", "p0") + 2
    assert len(simulation.batch.events("paused")) == 3


@pytest.mark.parametrize(("times", "trained"), [(2, True), pytest.param(1000, False, marks=pytest.mark.all)])
def test_a_machine_that_can_start_no_process_for_a_while_costs_no_patch(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch, times: int, trained: bool
) -> None:
    world = simulation.patches(p0=Script(10), p1=Script(10))
    short, submit = [OSError(errno.EAGAIN, "Resource temporarily unavailable")] * times, world.submit
    monkeypatch.setattr("splatbatch.scheduler.standby.ON_GPUS", False)
    monkeypatch.setattr(world, "submit", lambda *one: raised(short.pop()) if short else submit(*one))
    outcomes = simulation.run()
    assert {isinstance(outcome, Trained) for outcome in outcomes.values()} == {trained}
    assert trained or {outcome.diagnosis.cause for outcome in outcomes.values()} == {"process_limit"}


def test_a_standby_that_dies_is_replaced_by_another_and_counts_for_nothing(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(10), p1=Script(10, dies_standing_by=True), p2=Script(10))
    outcomes = simulation.run()
    assert all(isinstance(outcome, Trained) for outcome in outcomes.values())
    assert len(simulation.batch.events("attempt_ended")) == 3
    assert world.order("stands by") == ["p1", "p2"]


def test_a_rung_that_a_patch_of_its_own_kind_cannot_take_costs_that_patch_alone(simulation: Simulation) -> None:
    simulation.patches(p0=Script(log="torch.OutOfMemoryError: CUDA out of memory."), p1=Script(10))
    rungs = [{"training.workers": "x0.5"}]
    sections = {"training": {"workers": 4}, "patches": {"p0": {"training": {"workers": "auto"}}}}
    outcomes = simulation.run(retry={"ladders": {"gpu_memory": rungs}}, **sections)
    assert isinstance(outcomes["p0"], Failed)
    assert isinstance(outcomes["p1"], Trained)
    assert "training.workers is 'auto'" in simulation.batch.events("gave_up")[0]["reason"]


def test_values_that_do_not_go_together_cost_only_the_patch_that_would_have_had_them(simulation: Simulation) -> None:
    simulation.patches(p0=Script(log="torch.OutOfMemoryError: CUDA out of memory."), p1=Script(10))
    rungs = [{"evaluation.stop_after": 3}]
    outcomes = simulation.run(evaluation={"holdout_every": 0}, retry={"ladders": {"gpu_memory": rungs}})
    assert isinstance(outcomes["p1"], Trained)
    assert "set evaluation.holdout_every too" in simulation.batch.events("gave_up")[0]["reason"]


def test_a_standby_that_had_died_when_it_was_told_to_go_counts_for_nothing(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(10), p1=Script(10, dies_at_go=True), p2=Script(10))
    outcomes = simulation.run()
    assert all(isinstance(outcome, Trained) for outcome in outcomes.values())
    assert len(simulation.batch.events("attempt_ended")) == 3
    assert simulation.batch.events("retry") == []
    assert sorted(world.order()) == ["p0", "p1", "p2"]


class Briefly(TrainTask):
    """What is trained so has a limit of its own."""

    limits = {"wall_s": 77.0}


def briefly_on_cpu(task: Task) -> Task:
    return Briefly(task.id, task.patch, task.yaml_settings, task.requested_settings, task.next_settings, takes="cpu")


def given(simulation: Simulation, name: str) -> tuple[str, float]:
    """Return the slot of a task's first attempt, and its limit of time."""
    job = AttemptFolder(simulation.batch.output / "patches" / name / "attempt-01").read_job()
    assert job is not None
    return job.slot, job.limits.wall_s


def test_what_takes_no_gpu_waits_for_none_and_has_the_limits_of_its_kind(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(50), p1=Script(5), p2=Script(5))
    simulation.others = {"p1": briefly_on_cpu, "p2": briefly_on_cpu}
    simulation.run(limits={"wall_s": 900, "free_disk_mib": 0})
    assert world.at("begins", "p1") < 1 and 5 < world.at("begins", "p2") < 7
    assert [given(simulation, name) for name in ("p0", "p1", "p2")] == [("gpu0", 900), ("cpu", 77), ("cpu", 77)]


def test_what_takes_any_slot_has_the_gpu_that_is_ready_and_otherwise_the_cpu(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(5), p1=Script(5))
    simulation.others = dict.fromkeys(("p0", "p1"), partial(replace, takes="any"))
    world.squatter_mib = lambda time, _: 5000 if time > 2 else 0
    simulation.run()
    assert world.time < 12 and (given(simulation, "p0")[0], given(simulation, "p1")[0]) == ("gpu0", "cpu")


def test_a_gpu_that_is_given_up_takes_nothing_from_what_takes_none(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(5), p1=Script(50), p2=Script(50), p3=Script(5))
    simulation.others = {"p1": briefly_on_cpu, "p2": briefly_on_cpu}
    world.squatter_mib = lambda time, _: CROWDED_MIB if time else 0
    outcomes = simulation.run(cooldown={"longest_s": 10})
    assert [isinstance(outcomes[name], Trained) for name in ("p0", "p1", "p2", "p3")] == [True, True, True, False]


@dataclass
class Night(World):
    """A world in which nothing is looked at while nothing can happen, for seconds at a time."""

    def sleep(self, seconds: float, readings: Sequence[object] = ()) -> None:
        running = [one for one in self.attempts.values() if one.began is not None and not one.ended]
        begun = [one.began for one in running if one.began is not None]
        trained = [at + one.script.load_s + one.script.train_s for at, one in zip(begun, running, strict=True)]
        due = [*begun, *trained, *(at + one.script.eval_s for at, one in zip(trained, running, strict=True))]
        is_busy = any(self.time - 1 < at <= self.time for at in due)
        left_s = 0.0 if is_busy else min((at - self.time for at in due if at > self.time), default=0.0)
        super().sleep(max(seconds, min(5.0, left_s - 0.1)), readings)

    def idle_share(self) -> float:
        """Return for which share of the time from the first step to the last none of the GPUs' patches made steps."""
        begun = sorted(at for at, what, _ in self.history if what == "begins")
        trained_s = sum(one.script.train_s for one in self.attempts.values())
        last = max(at for at, what, _ in self.history if what == "ends") - self.scripts["p0"][0].eval_s
        return 1 - trained_s / self.num_gpus / (last - begun[0])


@pytest.mark.all
@pytest.mark.parametrize("num_gpus", [1, 4])
def test_in_a_night_of_a_hundred_patches_of_a_minute_gpus_are_idle_for_one_percent_at_most(
    num_gpus: int, simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulated.MOST_S", 10_000)
    simulation.world = night = Night(num_gpus)
    monkeypatch.setattr(gpu, "sample", night.sample)
    simulation.patches(**{f"p{index}": Script(60, eval_s=1.5) for index in range(100)})
    simulation.run()
    print(f"idle {100 * night.idle_share():.2f} %")
    assert 0 <= night.idle_share() <= 0.01
