"""`plan`: what would be done with each patch, on a terminal."""

from __future__ import annotations

from splatbatch.cli.commands.output import print_json, print_line
from splatbatch.config.schedule import Schedule
from splatbatch.output.events import UNTIL
from splatbatch.run.plan import BatchPlan, decision_on
from splatbatch.run.plan import plan as plan_of
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.estimates import tight
from splatbatch.tasks.patch_state import GivenUp
from splatbatch.tasks.shared_decisions.decide import decisions_in_words


def _of_schedule(schedule: Schedule) -> list[str]:
    """Return at which steps things happen, without what never does."""
    words = {"means_gain": "learning rate of means times", "gain": "other learning rates except opacities times"}
    return [
        f"{words.get(key, key)} {value:.3g}" if key in words else f"{key} {value:g}"
        for key, value in vars(schedule).items()
        if value
    ]


def print_plan(batch: Batch, *, as_json: bool) -> None:
    """Print what would be done with each patch and why, the schedule, and how long it will take.

    Raises:
        ExecutorError, TrainerError: `train` could not, or would not, train it here.
    """
    found = plan_of(batch)
    if as_json:
        print_json(found.facts())
    else:
        _print_plan(found)
    found.check_place()


def _print_plan(found: BatchPlan) -> None:
    batch = found.batch
    for name, state in found.states.items():
        print_line(f"{name}: {UNTIL if isinstance(state, GivenUp) else decision_on(state)}: {state.reason}")
    for name, need in found.footprints.items():
        print_line(f"{name}: expected: {need.in_words()}")
    for name, reason in tight(found.footprints, batch.config).items():
        print_line(f"{name}: {reason}")
    schedules = found.schedules.values()
    for text in dict.fromkeys(", ".join(_of_schedule(one)) for one in schedules):
        print_line(text)
    for line in decisions_in_words(batch, found.to_train):
        print_line(line)
    if found.to_train:
        print_line(found.forecast.in_words())
