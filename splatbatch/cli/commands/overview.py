"""The commands that only look: plan, report, config."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from splatbatch import config as configuration
from splatbatch.cli.commands.output import print_json, print_line
from splatbatch.config.schedule import Schedule
from splatbatch.output.events import UNTIL
from splatbatch.run.plan import BatchPlan, decision_on
from splatbatch.run.plan import plan as plan_of
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.memory_estimates import tight
from splatbatch.tasks.patch_state import GivenUp
from splatbatch.tasks.shared_decisions.decide import decisions_in_words
from splatbatch.text import plain


def plan(config: Path | None, names: Sequence[str], only: Sequence[str], *, as_json: bool) -> None:
    """Print what `train` would do."""
    print_plan(open_batch(config, names, conditions=only), as_json=as_json)


def report(config: Path | None, *, as_json: bool) -> None:
    """Write the report and print it."""
    from splatbatch.report import to_markdown
    from splatbatch.run.api import write_report

    facts = write_report(open_batch(config))
    if as_json:
        print_json(facts)
    else:
        typer.echo(plain(to_markdown(facts)), nl=False)


def config_show(config: Path | None, name: str, *, as_json: bool) -> None:
    """Print the resolved config, or what trains one patch."""
    if name:
        batch = open_batch(config, [name])
        own = [task.recipe for task in batch.tasks if task.name == name]  # none: a patch, whatever the sweep says
        shown: configuration.Config | configuration.Recipe = own[0] if own else batch.config.recipe(name)
    else:  # nothing has to be there for it
        shown = configuration.load(configuration.find_config(config))
    if as_json:
        print_json(shown.model_dump(mode="json"))
    else:
        typer.echo(configuration.to_yaml(shown), nl=False)


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
