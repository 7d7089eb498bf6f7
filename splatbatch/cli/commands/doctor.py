"""`doctor`: whether this machine can train what a config asks for; each line with its remedy."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.text import Text

from splatbatch import config as configuration
from splatbatch.cli.commands.output import open_console, open_table, print_json
from splatbatch.config.load import has_config
from splatbatch.doctor.checks import CheckResult, DoctorOutput, worst_exit_code
from splatbatch.doctor.examination import examine
from splatbatch.report.viewer.viewer import viewer_gz
from splatbatch.tasks.batch import open_batch
from splatbatch.text import one_line, plain
from splatbatch.trainers.catalog import TrainerList, trainers_here


def doctor(config: Path | None, *, as_json: bool, build: bool) -> None:
    """Print what there is to say, and exit with 5 if the machine has a problem, with 4 if the trainer has one.

    Without a config it is about the usual one if that is there, else about the machine alone.
    """
    batch = open_batch(config) if has_config(config) else None
    findings: list[CheckResult] = []
    for finding in examine(batch, build=build, has_viewer=bool(viewer_gz())):
        findings.append(finding)
        if not as_json:
            remedy = f"\n{'':8}   -> {finding.remedy}" if finding.remedy else ""
            typer.echo(plain(f"{finding.state:8} {finding.check}: {finding.message}{remedy}"))
    code = worst_exit_code(findings)
    if as_json:
        print_json(DoctorOutput(tuple(findings), code))
    raise typer.Exit(code)


def list_trainers(config: Path | None, *, as_json: bool) -> None:
    """Print our own trainer, those of the config, if there is one, and the presets."""
    listed = trainers_here(configuration.find_config(config) if has_config(config) else None)
    if as_json:
        print_json(TrainerList(listed))
        return
    headings = ("trainer", "from", "here")
    table = open_table(headings, headings)
    for one in listed:
        cells = (one.name, one.file or one.origin, "; ".join(one.missing) or "found")
        table.add_row(*(Text(one_line(cell)) for cell in cells))  # Text: a name is no markup
    open_console().print(table)
