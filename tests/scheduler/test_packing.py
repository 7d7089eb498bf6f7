"""How many patches share a GPU: measured, never slower than one by one, back at once when memory is short."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_batch import FakeBatch
from simulated import TOTAL_MIB, Script, Simulation

from splatbatch.machine.protocol import Slot
from splatbatch.outcome import Trained
from splatbatch.scheduler.packing import FEWEST_LOOKS, SeatThroughput, how_many

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free"
PACKED = {"patches_per_gpu": 2}


def looks(**paces: float) -> list[SeatThroughput]:
    """Return measurements: `at1=100` means 100 steps per second, one at a time."""
    return [
        SeatThroughput(int(name[2:]), throughput) for name, throughput in paces.items() for _ in range(FEWEST_LOOKS)
    ]


@pytest.mark.parametrize(
    ("now", "measured", "then"),
    [
        (1, looks(), 1),
        (1, looks(at1=100), 2),
        (2, looks(at1=100, at2=150), 3),
        (2, looks(at1=100, at2=101), 1),
        (2, looks(at1=100, at2=80), 1),
        (1, looks(at1=100, at2=101), 1),
        (2, looks(at1=100, at2=103, at3=104), 2),
        (3, looks(at2=150, at3=140), 2),
        (2, looks(at2=150, at3=140), 2),
        (8, looks(at8=900), 8),
    ],
)
def test_the_number_follows_the_pace_of_all_together(now: int, measured: list[SeatThroughput], then: int) -> None:
    assert how_many(now, measured, most=8) == then


def test_one_look_is_not_enough_to_decide() -> None:
    assert how_many(1, looks(at1=100)[1:], most=8) == 1


def test_short_memory_costs_a_seat_whatever_it_gained() -> None:
    assert how_many(3, looks(at2=100, at3=200), most=8, is_tight=True) == 2
    assert how_many(1, looks(at1=100), most=8, is_tight=True) == 1


@pytest.mark.parametrize(
    ("throughput", "settles"),
    [
        (lambda number: 100 * number, 8),
        (lambda number: 100, 1),
        (lambda number: 100 * min(number, 3) - 5 * number, 3),
        (lambda number: 100 / number, 1),
    ],
)
def test_the_number_settles_and_stays(throughput: Callable[[int], float], settles: int) -> None:
    now, measured, numbers = 1, [], []
    for _ in range(100):
        measured.append(SeatThroughput(now, throughput(now)))
        now = how_many(now, measured, most=8)
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
    assert world.at("ends", "p0") <= [at for at, what, who in world.history if (what, who) == ("begins", "p1")][1]


@pytest.mark.all
def test_auto_packs_while_all_together_get_faster(simulation: Simulation) -> None:
    world = simulation.patches(**{f"p{number}": Script(60) for number in range(8)})
    simulation.run(executor={"patches_per_gpu": "auto"})
    assert world.most_at_once > 2
    assert world.time < 8 * 60 / 2


def test_on_the_cpu_auto_has_nothing_to_decide(simulation: Simulation) -> None:
    world = simulation.patches(p0=Script(60))
    world.slots = lambda: (Slot("cpu0"),)  # type: ignore[method-assign]
    simulation.run(executor={"patches_per_gpu": "auto"})
    assert simulation.batch.events("packing") == []


@pytest.mark.all
def test_auto_goes_back_to_one_where_packing_gains_nothing(simulation: Simulation) -> None:
    world = simulation.patches(**{f"p{number}": Script(60) for number in range(5)})
    world.slowdown = lambda at_once: 1.0 * at_once
    simulation.run(executor={"patches_per_gpu": "auto"})
    assert simulation.batch.events("packing")[-1]["patches_per_gpu"] == 1
    assert world.most_at_once == 2
    assert world.time < 5 * 60 * 1.05


def test_an_mps_that_serves_nobody_is_done_without_and_costs_no_attempt(simulation: Simulation) -> None:
    refused = "RuntimeError: CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server"
    world = simulation.patches(p0=[Script(log=refused), Script(10)], p1=Script(10))
    world.shared_mib = 512
    assert all(isinstance(outcome, Trained) for outcome in simulation.run(executor=PACKED).values())
    assert len(simulation.batch.events("mps_off")) == 1
    job = (simulation.batch.output / "patches/p0/attempt-02/job.json").read_text()
    assert "CUDA_MPS" not in job
