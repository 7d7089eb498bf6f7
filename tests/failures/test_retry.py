"""Whether, when and how often a failed patch is tried again; pure, so tables say it all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splatbatch.config import Retry, TaskId, Training
from splatbatch.failures.causes import CAUSES
from splatbatch.failures.retry import Failure, GiveUp, RetryAfter, decide_retry, resolve, why_stop_batch
from splatbatch.outcome import Diagnosis

NO_LADDERS = {name: [] for name in ("gpu_memory", "host_memory", "segfault", "numerics", "pruning")}
CONFIG = Retry(max_attempts=20, ladders=NO_LADDERS)


def failure(cause: str, action: str = "retry", phase: str = "train", **rungs: int) -> Failure:
    return Failure(Diagnosis(cause, action, "", phase=phase), rungs)  # type: ignore[arg-type]


def attempts_until_given_up(cause: str, config: Retry = CONFIG) -> int:
    history = [failure(cause)]
    while isinstance(decide_retry(history, config), RetryAfter):
        history.append(failure(cause))
    return len(history)


def test_what_trying_again_cannot_help_is_given_up_at_once() -> None:
    assert decide_retry([failure("missing_image", "fail")], CONFIG) == GiveUp(
        "a photograph is missing (missing_image): trying again cannot help"
    )


@pytest.mark.parametrize(
    ("cause", "may"),
    [
        ("cuda_oom", False),  # of a patch: other machines would run out of memory as well
        ("cuda_busy_or_unavailable", True),
        ("process_limit", True),
        ("disk_full", True),
        ("cuda_driver_mismatch", True),
        ("dims_mismatch", False),
        ("hang", False),
    ],
)
def test_another_machine_gets_what_lies_in_this_one(cause: str, may: bool) -> None:
    assert CAUSES[cause].may_do_elsewhere is may


def test_memory_that_others_hold_is_waited_for_and_the_patch_keeps_its_settings() -> None:
    crowded_out = [failure("cuda_oom")] * 5
    assert decide_retry(crowded_out, Retry()) == RetryAfter(160.0)
    assert decide_retry([failure("cuda_oom", "degrade")], Retry()) == RetryAfter(
        10.0, "gpu_memory", {"training.images": "host"}, 1
    )


@pytest.mark.parametrize(
    ("cause", "attempts"),
    [
        ("unknown", 2),
        ("host_oom", 2),
        ("nccl", 2),
        ("hang", 2),
        ("lost", 4),
        ("cuda_busy_or_unavailable", 11),
        ("cuda_oom", 12),
    ],
)
def test_a_failure_that_repeats_is_given_up(cause: str, attempts: int) -> None:
    assert attempts_until_given_up(cause) == attempts


def test_the_same_twice_in_the_same_phase_is_deterministic() -> None:
    match decide_retry([failure("nccl"), failure("nccl")], CONFIG):
        case GiveUp(reason=reason):
            assert "(nccl) twice in phase train: an attempt with the same settings" in reason
        case again:
            pytest.fail(f"{again}")


def test_the_same_in_another_phase_is_not_yet_deterministic() -> None:
    history = [failure("nccl", phase="load"), failure("nccl", phase="train")]
    assert isinstance(decide_retry(history, CONFIG), RetryAfter)


def test_different_causes_are_counted_apart_but_capped_together() -> None:
    history = [failure("lost"), failure("unknown"), failure("nccl"), failure("interrupted")]
    assert isinstance(decide_retry(history, CONFIG), RetryAfter)
    assert decide_retry(history, Retry(max_attempts=4)) == GiveUp(
        "4 attempts failed, and retry.max_attempts allows no more"
    )


def test_no_second_attempt_where_one_is_allowed() -> None:
    assert attempts_until_given_up("lost", Retry(max_attempts=1)) == 1


@pytest.mark.parametrize(
    ("cause", "waits"),
    [("lost", [10, 20, 40]), ("cuda_busy_or_unavailable", [30, 60, 120, 240, 480]), ("gpu_hardware_fault", [120])],
)
def test_waits_double_and_suit_the_cause(cause: str, waits: list[float]) -> None:
    for number, wait_s in enumerate(waits, start=1):
        assert decide_retry([failure(cause)] * number, CONFIG) == RetryAfter(wait_s)


def test_no_wait_is_longer_than_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatbatch.failures.retry.LONGEST_WAIT_S", 15.0)
    assert decide_retry([failure("lost")] * 3, Retry()) == RetryAfter(15)


causes = st.sampled_from([name for name, cause in CAUSES.items() if not cause.passes])
failures = st.builds(
    failure, causes, st.sampled_from(["retry", "degrade", "fail"]), st.sampled_from(["", "load", "train"])
)


@given(history=st.lists(failures, min_size=1, max_size=25), most=st.integers(1, 20))
def test_every_history_ends_within_the_caps(history: list[Failure], most: int) -> None:
    config = Retry(max_attempts=most)
    match decide_retry(history, config):
        case RetryAfter(wait_s=wait_s):
            assert len(history) < most
            assert 0 <= wait_s <= 600
            assert history[-1].diagnosis.action != "fail"
        case GiveUp(reason=reason):
            assert reason


def test_a_rung_that_would_change_nothing_is_passed_over() -> None:
    on_host = {"training.images": "host", "training.cap_max": 1000, "training.resolution": "1/8", "slots": 1}
    again = decide_retry([failure("cuda_oom", "degrade")], Retry(), current=on_host)
    assert again == RetryAfter(10, "gpu_memory", {"training.cap_max": "x0.6"}, taken=2)
    spent = failure("cuda_oom", "degrade", gpu_memory=2)
    reason = "GPU memory ran out (cuda_oom): all changes of retry.ladders have been tried"
    assert decide_retry([spent], Retry(), current=on_host) == GiveUp(reason)


def climb(cause: str, action: str, attempts: int) -> list[object]:
    """Return the rungs that are taken when every attempt fails alike."""
    history, rungs, taken = [], dict[str, int](), list[object]()
    for _ in range(attempts):
        history.append(failure(cause, action, "train", **rungs))
        match decide_retry(history, Retry(max_attempts=20)):
            case RetryAfter(ladder=ladder, rung=rung):
                taken.append(rung or "unchanged")
                rungs = {**rungs, ladder: rungs.get(ladder, 0) + 1} if ladder else rungs
            case GiveUp():
                return [*taken, "given up"]
    return taken


def test_an_invalid_configuration_is_tried_unchanged_once_and_then_climbs_its_ladder() -> None:
    rungs = [{"training.init_scale": "x3"}, {"learning_rates.means": "x0.5"}, {"training.strategy": "default"}]
    assert climb("cuda_invalid_configuration", "retry", 9) == ["unchanged", *rungs, "given up"]


def test_a_full_gpu_climbs_at_once() -> None:
    rungs = [{"training.images": "host"}, {"training.cap_max": "x0.6"}, {"training.resolution": "x0.5"}]
    assert climb("cuda_oom", "degrade", 5)[:3] == rungs


def test_a_factor_is_taken_of_the_value_in_force() -> None:
    current = {"training.cap_max": 1_000_000, "training.init_scale": 0.1}
    rung = {"training.cap_max": "x0.6", "training.init_scale": "x3", "training.strategy": "default"}
    changed = {"training.cap_max": 600_000, "training.init_scale": 0.3, "training.strategy": "default"}
    assert resolve(rung, current) == changed


@pytest.mark.parametrize(("cap_max", "lowered"), [("2x", "1.2x"), ("1.5x", "0.9x"), ("10x", "6x"), (500, 300)])
def test_a_cap_is_lowered_in_either_form(cap_max: int | str, lowered: int | str) -> None:
    changes = resolve({"training.cap_max": "x0.6"}, {"training.cap_max": cap_max})
    assert changes == {"training.cap_max": lowered}
    assert Training.model_validate({"cap_max": lowered}).cap_max == lowered


@pytest.mark.parametrize(("before", "after"), [("full", "1/2"), ("auto", "1/2"), ("1/4", "1/8"), ("1/8", "1/8")])
def test_a_resolution_is_halved_never_raised(before: str, after: str) -> None:
    assert resolve({"training.resolution": "x0.5"}, {"training.resolution": before}) == {"training.resolution": after}


def test_what_lies_in_the_machine_stops_the_batch_after_the_second_patch() -> None:
    one, two = [failure("cuda_no_kernel_image", "fail")], [failure("cuda_no_kernel_image", "fail")]
    assert not why_stop_batch({TaskId("p0"): one})
    assert "p0 and on p1" in why_stop_batch({TaskId("p0"): one, TaskId("p1"): two})
    assert not why_stop_batch({TaskId(name): [failure("missing_image", "fail")] for name in ("p0", "p1")})
