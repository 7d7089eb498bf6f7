"""How many patches share a GPU: measured, never slower than one by one, back at once when memory is short."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from fake_batch import FakeBatch
from simulated import CROWDED_MIB, OOM, TOTAL_MIB, Script, Simulation

from splatbatch.machine.protocol import Slot
from splatbatch.monitor.console import in_words
from splatbatch.outcome import Trained
from splatbatch.output.events import event_of
from splatbatch.scheduler.packing import FEWEST_LOOKS, GpuSpeed, choose_seats

PACKED, AUTO = {"patches_per_gpu": 2}, {"patches_per_gpu": "auto"}
NIGHTS = 20


def looks(**paces: float) -> list[GpuSpeed]:
    """Return measurements: `at1=100` means 100 steps per second, one at a time."""
    return [GpuSpeed(int(name[2:]), throughput) for name, throughput in paces.items() for _ in range(FEWEST_LOOKS)]


def again(simulation: Simulation) -> list[str]:
    """Return what the console says of each retry."""
    found = [event_of(event) for event in simulation.batch.events("retry")]
    return [in_words(event) for event in found if event]


@pytest.mark.parametrize(
    ("now", "measured", "then"),
    [
        (1, looks(), 1),
        (1, looks(at1=100), 1),
        (4, looks(at4=130), 3),  # one fewer is tried once
        (3, looks(at3=120, at4=130), 4),
        (3, looks(at3=130, at4=130), 4),
        (4, looks(at3=130, at4=130), 4),
        (4, looks(at3=140, at4=130), 3),
        (3, looks(at3=140, at4=130), 2),
        (2, looks(at2=130, at3=140, at4=130), 3),
        (3, looks(at2=130, at3=140, at4=130), 3),
        (2, looks(at1=100, at2=80), 1),
        (1, looks(at1=100, at2=80), 1),
    ],
)
def test_the_number_follows_the_pace_of_all_together(now: int, measured: list[GpuSpeed], then: int) -> None:
    assert choose_seats(now, measured, most=4) == then


def test_one_look_is_not_enough_to_decide() -> None:
    assert choose_seats(4, looks(at4=100)[1:], most=4) == 4


def test_short_memory_costs_a_seat_whatever_it_gained() -> None:
    assert choose_seats(3, looks(at2=100, at3=200), most=8, is_tight=True) == 2
    assert choose_seats(1, looks(at1=100), most=8, is_tight=True) == 1


@pytest.mark.parametrize(
    ("throughput", "settles"),
    [
        (lambda number: 100 * number, 4),
        (lambda number: 100, 4),
        (lambda number: 100 * min(number, 3) - 10 * number, 3),
        (lambda number: 100 / number, 1),
    ],
)
def test_the_number_settles_and_stays(throughput: Callable[[int], float], settles: int) -> None:
    now, measured, numbers = 4, [], []
    for _ in range(100):
        measured.append(GpuSpeed(now, throughput(now)))
        now = choose_seats(now, measured, most=4)
        numbers.append(now)
    assert set(numbers[-50:]) == {settles}


@pytest.fixture
def simulation(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    return Simulation(batch, monkeypatch)


def test_two_at_once_train_on_one_gpu_and_never_more(simulation: Simulation) -> None:
    world = simulation.patches(**{f"p{number}": Script(10) for number in range(5)})
    simulation.run(executor=PACKED)
    assert world.most_at_once == 2
    assert world.time < 35


def test_what_does_not_fit_together_is_trained_one_by_one(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(10, peak_mib=0.6 * TOTAL_MIB), p1=Script(10, peak_mib=0.6 * TOTAL_MIB))
    simulation.run(executor=PACKED)
    assert world.most_at_once == 1


def test_who_ran_out_of_memory_beside_another_is_tried_alone_and_loses_no_rung(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(30), p1=[Script(log=OOM), Script(10)], p2=Script(10))
    outcomes = simulation.run(executor=PACKED)
    assert all(isinstance(outcome, Trained) for outcome in outcomes.values())
    assert [event["changes"] for event in simulation.batch.events("attempt_started")] == [{}] * 4
    assert simulation.actions() == ["retry"]
    assert again(simulation) == ["p1: retry in 0 s, with the GPU to itself"]
    assert world.at("ends", "p0") <= [at for at, what, who in world.history if (what, who) == ("begins", "p1")][1]


def test_while_a_patch_waits_for_a_gpu_to_itself_the_other_gpus_go_on(simulation: Simulation) -> None:
    """On gpu1, p1 fails beside p3 and p5, and waits for the end of p3; p6 to p9 train beside p0 on gpu0."""
    scripts = {f"p{number}": Script(10) for number in range(10)}
    world = simulation.patches(**{**scripts, "p0": Script(60), "p3": Script(60)})
    world.scripts["p1"], world.num_gpus = [Script(log=OOM, fails_after_s=5), Script(10)], 2
    assert all(isinstance(outcome, Trained) for outcome in simulation.run(executor={"patches_per_gpu": 3}).values())
    ends = [who for at, what, who in world.history if what == "ends" and at < 60]
    assert {"p6", "p7", "p8", "p9"} <= set(ends)
    begins = [(at, who) for at, what, who in world.history if what == "begins"]
    assert [who for at, who in begins if at >= 60] == ["p1"]
    assert world.time < 75


def test_who_finds_the_memory_held_by_a_newcomer_waits_and_loses_no_rung(simulation: Simulation) -> None:
    """CUDA's message has no sizes where the context could not be opened; NVML says who holds the memory."""
    world = simulation.patches(p0=[Script(log="RuntimeError: CUDA error: out of memory", fails_after_s=5), Script(10)])
    world.squatter_mib = lambda time, _: CROWDED_MIB if 3 < time < 60 else 0
    assert isinstance(simulation.run()["p0"], Trained)
    assert [event["changes"] for event in simulation.batch.events("attempt_started")] == [{}] * 2
    assert simulation.actions() == ["retry"]
    assert next(reversed([at for at, what, _ in world.history if what == "begins"])) >= 60


def test_a_newcomer_that_takes_the_memory_costs_no_seat_once_it_is_gone(simulation: Simulation) -> None:
    world = simulation.patches(**{f"p{number}": Script(20) for number in range(8)})
    world.scripts["p1"] = [Script(log=OOM, fails_after_s=5), Script(20)]
    world.squatter_mib = lambda time, _: CROWDED_MIB if 3 < time < 30 else 0
    simulation.run(executor=AUTO)
    assert [event["patches_per_gpu"] for event in simulation.batch.events("packing")] == [4]


def test_beside_a_newcomer_that_leaves_room_all_seats_are_taken(simulation: Simulation) -> None:
    world = simulation.patches(**{f"p{number}": Script(20) for number in range(8)})
    world.squatter_mib = lambda time, _: TOTAL_MIB / 2 if time > 5 else 0
    simulation.run(executor={"patches_per_gpu": 4})
    assert world.time < 45


@pytest.mark.all
def test_auto_packs_where_all_together_get_faster(simulation: Simulation) -> None:
    world = simulation.patches(**{f"p{number}": Script(60) for number in range(16)})
    simulation.run(executor=AUTO)
    assert world.most_at_once == 4
    assert world.time < 16 * 60 / 3


@pytest.mark.parametrize(
    ("peak_share", "sections", "at_once"),
    [
        (0.01, {}, 4),
        (0.22, {}, 2),  # the forecast is 1.3 times that: 0.6 of the memory holds two
        (0.25, {}, 1),
        (0.01, {"cooldown": {"floor_s": 1}}, 1),
    ],
)
def test_auto_begins_with_as_many_as_a_share_of_the_memory_holds(
    simulation: Simulation, peak_share: float, sections: dict[str, dict[str, float]], at_once: int
) -> None:
    world = simulation.patches(**{f"p{number}": Script(10, peak_mib=peak_share * TOTAL_MIB) for number in range(6)})
    simulation.run(executor=AUTO, **sections)
    begun = [at for at, what, _ in world.history if what == "begins"]
    assert sum(at < 1 for at in begun) == at_once
    assert world.most_at_once == at_once


def test_patches_spread_over_all_gpus_before_they_share_one(simulation: Simulation) -> None:
    world = simulation.patches(**{f"p{number}": Script(10) for number in range(4)})
    world.num_gpus = 2
    simulation.run(executor=AUTO)
    assert world.most_at_once == 2


@pytest.mark.all
@pytest.mark.parametrize("night", range(NIGHTS))
def test_a_tenant_of_the_card_that_comes_and_goes_costs_no_patch(simulation: Simulation, night: int) -> None:
    world = simulation.patches(**{f"p{number}": Script(20, peak_mib=0.1 * TOTAL_MIB) for number in range(8)})
    chance = Random(night)
    begins = [chance.uniform(0, 60) for _ in range(4)]
    spans = [(begin, begin + chance.uniform(1, 30), chance.uniform(0.3, 0.85)) for begin in begins]

    def held(time: float, _: str) -> float:
        return TOTAL_MIB * max((share for begins, ends, share in spans if begins <= time < ends), default=0.0)

    world.squatter_mib, world.runs_out = held, True
    outcomes = simulation.run(executor=AUTO)
    assert [name for name, outcome in outcomes.items() if not isinstance(outcome, Trained)] == []
    retries = simulation.batch.events("retry")
    assert [event["changes"] for event in retries if event["changes"]] == []


def test_on_the_cpu_auto_has_nothing_to_decide(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    world = simulation.patches(p0=Script(60))
    monkeypatch.setattr(type(world), "slots", (Slot("cpu0"),))
    simulation.run(executor=AUTO)
    assert simulation.batch.events("packing") == []


@pytest.mark.all
def test_auto_goes_back_to_one_where_packing_loses(simulation: Simulation) -> None:
    world = simulation.patches(**{f"p{number}": Script(30 + 10 * number, steps=6000) for number in range(9)})
    world.slowdown = lambda at_once: 1.0 * at_once**1.5
    simulation.run(executor=AUTO, training={"max_steps": 6000})
    assert [event["patches_per_gpu"] for event in simulation.batch.events("packing")] == [4, 3, 2, 1]
    assert world.most_at_once == 4
    assert world.time < sum(30 + 10 * number for number in range(9)) * 1.3


def test_an_mps_that_serves_nobody_is_done_without_and_costs_no_attempt(simulation: Simulation) -> None:
    refused = "RuntimeError: CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server"
    world = simulation.patches(p0=[Script(log=refused), Script(10)], p1=Script(10))
    world.shared_mib = 512
    assert all(isinstance(outcome, Trained) for outcome in simulation.run(executor=PACKED).values())
    assert len(simulation.batch.events("mps_off")) == 1
    assert again(simulation) == ["p0: retry in 0 s, without CUDA MPS"]
    job = (simulation.batch.output / "patches/p0/attempt-02/job.json").read_text()
    assert "CUDA_MPS" not in job
