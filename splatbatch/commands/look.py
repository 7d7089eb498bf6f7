"""The commands that only look: plan, logs, explain, diagnose, report, config."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from splatbatch import config as configuration
from splatbatch.batch.attempts import LOG_TAIL_BYTES
from splatbatch.batch.batch import Batch, open_batch, refusals
from splatbatch.batch.diagnosis import diagnose_log
from splatbatch.batch.forecast import forecast_s
from splatbatch.batch.needs import needs, tight
from splatbatch.batch.plan import to_train
from splatbatch.batch.story import tell
from splatbatch.batch.table import clock
from splatbatch.batch.units import the_unit
from splatbatch.commands import watching
from splatbatch.commands.output import plain, print_json
from splatbatch.config.schedule import schedule
from splatbatch.errors import ConfigError, OutputError
from splatbatch.report import to_markdown, write_report


def plan(config: Path | None, names: Sequence[str], only: Sequence[str], *, as_json: bool) -> None:
    """Print what `train` would do."""
    print_plan(open_batch(config, names, conditions=only), as_json=as_json)


def logs(config: Path | None, name: str, number: int, *, follow: bool) -> None:
    """Print the log of an attempt; with `follow`, what it says until it ends."""
    batch = open_batch(config, [name])
    attempts = batch.output.patch(the_unit(batch.patches, name)).attempts()
    chosen = [folder for folder in attempts if number in (0, folder.number)]
    if not chosen:
        have = ", ".join(str(folder.number) for folder in attempts) or "none"
        raise ConfigError(f"{name}: no such attempt (there are: {have})", "Leave --attempt out for the latest.")
    if follow:
        watching.follow(chosen[-1])
        return
    try:
        text = chosen[-1].log.read_text(encoding="utf-8", errors="replace")
        sys.stdout.write(plain(text))
        if not text:
            typer.echo(f"{name}: {chosen[-1].path.name} has said nothing; `status` and `explain` tell of it", err=True)
    except OSError as error:
        raise OutputError(f"{chosen[-1].log}: cannot be read ({error.strerror})") from error


def explain(config: Path | None, name: str) -> None:
    """Print the whole story of a patch."""
    batch = open_batch(config, [name])
    for line in tell(batch.output, the_unit(batch.patches, name)):
        typer.echo(plain(line))


def diagnose(log: Path, exit_code: int | None, *, as_json: bool) -> None:
    """Explain any log, also of another trainer.

    Raises:
        ConfigError: the log cannot be read.
    """
    try:
        text = log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{log}: cannot be read ({error.strerror})", "Name the log of a training.") from error
    found = diagnose_log(text, exit_code, None)
    if as_json:
        print_json(asdict(found))
        return
    typer.echo(f"{found.cause} ({found.action}): {found.advice}")
    for line in found.evidence:
        typer.echo(plain(f"  | {line}"))


def report(config: Path | None, *, as_json: bool) -> None:
    """Write the report and print it."""
    batch = open_batch(config)
    batch.output.create()
    names, settings = [patch.name for patch in batch.patches], batch.config
    facts = write_report(batch.output, names, settings.variants.values(), settings.output.previews_mib)
    if as_json:
        print_json(facts)
    else:
        typer.echo(plain(to_markdown(facts)), nl=False)


def config_show(config: Path | None, name: str) -> None:
    """Print the resolved config, or what trains one patch."""
    if name:
        shown: configuration.Config | configuration.Recipe = open_batch(config, [name]).config.recipe(name)
    else:  # nothing has to be there for it
        shown = configuration.load(configuration.find_config(config))
    typer.echo(configuration.to_yaml(shown), nl=False)


def print_plan(batch: Batch, *, as_json: bool) -> None:
    """Print what would be done with each patch and why, and the schedule."""
    decisions = batch.decisions(refusals(batch, batch.audits()))
    recipes = {patch.name: recipe for patch, recipe in zip(batch.patches, batch.recipes({}), strict=True)}
    # programs of somebody else have schedules of their own
    steps = {name: asdict(schedule(recipe)) for name, recipe in recipes.items() if recipe.program is None}
    expected = needs(batch.config, batch.patches, batch.changes)
    if as_json:
        rows = [
            {
                "decision": type(one).__name__.lower(),
                **asdict(one),
                "schedule": steps.get(one.patch),
                "need": asdict(expected[one.patch]) if one.patch in expected else None,
            }
            for one in decisions
        ]
        print_json({"patches": rows, "forecast_s": forecast_s(batch, to_train(decisions))})
        return
    for one in decisions:
        typer.echo(f"{one.patch}: {type(one).__name__.lower()}: {one.reason}")
    for name, need in expected.items():
        typer.echo(f"{name} expected: {need.in_words()}")
    for name, reason in tight(expected, batch.config).items():
        typer.echo(f"{name}: {reason}")
    for text in dict.fromkeys(_schedule_line(one) for one in steps.values()):
        typer.echo(text)
    seconds = forecast_s(batch, to_train(decisions))
    if seconds is not None:
        typer.echo(f"expected to take {clock(seconds)}, by the pace of the patches that are trained")


def _schedule_line(steps: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in steps.items())
