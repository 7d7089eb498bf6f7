"""When a splat whose name tells no step is from the last: programs log each step, or every tenth, or every 7,000th."""

from __future__ import annotations

import pytest

from splatbatch.output.records.attempt import ProgressLine
from splatbatch.supervisor.external import LoggedSteps

OF_EVERY = range(1, 10_001)


def heard(*steps: int, lost: bool = False) -> LoggedSteps:
    so_far = LoggedSteps()
    for step in steps:
        so_far = so_far.then(step)
    return so_far.without_knowing_more() if lost else so_far


@pytest.mark.parametrize(
    ("steps", "is_short"),
    [
        (range(1, 101), False),
        (range(100), False),  # its first step is 0
        (range(1, 99), True),
        (range(10, 101, 10), False),
        (range(0, 100, 10), False),  # its next word would be step 100
        (range(0, 60, 10), True),
        (range(1, 100, 7), False),
        ([33, 100], False),
        ([50], False),  # one word at half of the way may be all it says
        ([49], True),
        ([100, 1, 2, 3], False),  # it counts photographs while it evaluates
        ([4096, 8192], False),  # it counts something else
        ([], False),
    ],
)
def test_a_program_fell_short_if_it_would_have_said_more_before_the_end(steps: list[int], is_short: bool) -> None:
    assert heard(*steps).falls_short_of(100) is is_short


@pytest.mark.parametrize(
    ("steps", "max_steps", "is_proof"),
    [
        (range(1, 101), 100, True),
        (range(100), 100, True),
        (range(0, 91, 10), 100, False),  # the last tenth is too much to be taken on trust
        (range(0, 30_000, 100), 30_000, True),
        (range(0, 28_001, 7000), 30_000, False),
        ([123_456], 30_000, False),  # no step at all
        ([], 100, False),
    ],
)
def test_after_a_bad_end_the_last_step_itself_must_have_been_said(
    steps: list[int], max_steps: int, is_proof: bool
) -> None:
    assert heard(*steps).reaches(max_steps) is is_proof


def test_where_talk_was_not_read_nothing_is_held_against_a_program_and_nothing_is_proven() -> None:
    assert not heard(1, 2, 3, lost=True).falls_short_of(100)
    assert not heard(1, 2, 3, lost=True).reaches(100)
    assert heard(*range(1, 101), lost=True).reaches(100)


@pytest.mark.parametrize("one", [heard(), heard(0), heard(1, 2, 9), heard(5, lost=True)])
def test_what_was_heard_is_written_down_and_read_back(one: LoggedSteps) -> None:
    assert LoggedSteps.of(ProgressLine.from_record(one.to_record())) == one


@pytest.mark.parametrize("value", [float("inf"), "7", True, None, [], -3])
def test_what_is_no_number_of_steps_was_not_heard(value: object) -> None:
    assert LoggedSteps.of(ProgressLine.from_record({"highest_step": value, "step_gap": value})) == LoggedSteps()
