"""What passes by itself is waited for, in simulated time: it counts in no cap, and gives up nothing beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_batch import FakeBatch
from simulated import Script, Simulation

from splatbatch.config import Retry, TaskId
from splatbatch.failures.causes import CAUSES
from splatbatch.failures.retry import PASSES_WITHIN_S, Failure, GiveUp, RetryAfter, decide_retry, why_stop_batch
from splatbatch.outcome import Diagnosis, Trained
from splatbatch.scheduler import disk_guard

NO_SPACE = "OSError: [Errno 28] No space left on device: 'splat.ply'"


@pytest.fixture
def simulation(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    return Simulation(batch, monkeypatch)


@pytest.fixture
def full_until(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    def full_until(time_s: float) -> None:
        monkeypatch.setattr(disk_guard, "takes_writes", lambda _: simulation.world.time > time_s)

    return full_until


def failed(cause: str, action: str = "retry") -> Failure:
    return Failure(Diagnosis(cause, action, "", phase="train"))  # type: ignore[arg-type]


def test_a_disk_that_two_patches_found_full_is_waited_for(
    simulation: Simulation, full_until: Callable[[float], None]
) -> None:
    full = [Script(log=NO_SPACE, fails_after_s=2), Script(5)]
    world = simulation.patches(p0=full, p1=full, p2=Script(5), p3=Script(5))
    world.num_gpus = 2
    full_until(11)
    outcomes = simulation.run(retry={"max_attempts": 1})
    assert all(isinstance(outcome, Trained) for outcome in outcomes.values())
    assert (simulation.batch.events("gave_up"), world.at("begins", "p2") > 11) == ([], True)


def test_what_failed_for_a_moment_while_the_disk_was_full_is_not_given_up_with_it(
    simulation: Simulation, full_until: Callable[[float], None]
) -> None:
    full = [Script(log=NO_SPACE, fails_after_s=2), Script(5)]
    world = simulation.patches(
        p0=full, p1=full, p2=[Script(log="Connection reset by peer", fails_after_s=3), Script(5)]
    )
    world.num_gpus = 3
    full_until(11)
    assert all(isinstance(outcome, Trained) for outcome in simulation.run().values())


@pytest.mark.parametrize("cause", [name for name, one in CAUSES.items() if one.passes])
def test_each_is_tried_again_beyond_every_cap_until_its_time_is_over(cause: str) -> None:
    history, waited_s = [failed(cause)], 0.0
    while isinstance(again := decide_retry(history, Retry(max_attempts=1)), RetryAfter):
        assert again.wait_s > 0 and not why_stop_batch({TaskId("p0"): history, TaskId("p1"): history})
        history, waited_s = [*history, failed(cause)], waited_s + again.wait_s
    assert PASSES_WITHIN_S <= waited_s < PASSES_WITHIN_S + 600
    assert "still there after 60 minutes of waiting" in again.reason
    stops = why_stop_batch({TaskId("p0"): history, TaskId("p1"): history})
    assert bool(stops) is (CAUSES[cause].stops_batch)


def test_what_passes_counts_in_no_cap_of_other_causes() -> None:
    history = [failed("disk_full"), failed("unknown"), failed("io_error"), failed("disk_full"), failed("lost")]
    assert isinstance(decide_retry(history, Retry(max_attempts=3)), RetryAfter)
    assert isinstance(decide_retry(history, Retry(max_attempts=2)), GiveUp)


def test_a_cause_that_somebody_must_mend_is_not_waited_for() -> None:
    assert isinstance(decide_retry([failed("disk_full", "fail")], Retry()), GiveUp)
