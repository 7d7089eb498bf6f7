"""`doctor`: whether this machine can train, and the batch of a config on it; each line with its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import typer
from rich.text import Text

from splatbatch import config as configuration
from splatbatch.commands.output import open_console, open_table, print_json
from splatbatch.config.load import has_config
from splatbatch.config.shipped import shipped
from splatbatch.config.trainers.programs import OUR_TRAINER
from splatbatch.doctor import inventory
from splatbatch.doctor.checks import (
    OF_TRAINER,
    Finding,
    Machine,
    extras,
    of_job,
    of_kernels,
    of_machine,
    ok,
    problem,
    worst_exit_code,
)
from splatbatch.doctor.probe import probe, warm
from splatbatch.errors import ExecutorError, TrainerError
from splatbatch.plain_text import one_line, plain
from splatbatch.report.viewer.viewer import viewer_gz
from splatbatch.scene.footprint import Footprint
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.footprints import footprints_of
from splatbatch.tasks.forecast import check_place, forecast
from splatbatch.trainers.usable import missing

NOTHING_TO_BUILD = "there is nothing to build: no NVIDIA GPU is usable here, and the CPU needs no kernels"


def doctor(config: Path | None, *, as_json: bool, build: bool) -> None:
    """Print what there is to say, and exit with 5 if the machine has a problem, with 4 if the trainer has one.

    Without a config it is about the usual one if that is there, else about the machine alone.
    """
    batch = open_batch(config) if has_config(config) else None
    findings: list[Finding] = []
    for finding in _examine(batch, build=build):
        findings.append(finding)
        if not as_json:
            remedy = f"\n{'':8}   -> {finding.remedy}" if finding.remedy else ""
            typer.echo(plain(f"{finding.state:8} {finding.check}: {finding.message}{remedy}"))
    code = worst_exit_code(findings)
    if as_json:
        print_json({"findings": [asdict(one) for one in findings], "exit_code": code})
    raise typer.Exit(code)


def _examine(batch: Batch | None, *, build: bool) -> Iterator[Finding]:
    machine = replace(inventory.machine(), versions=inventory.versions())
    expected = footprints_of(batch.config, batch.tasks) if batch else {}
    recipes = batch.recipes() if batch else {}
    job = inventory.job(batch.config, recipes, expected) if batch else None
    yield from of_machine(machine, on_cpu=bool(job and job.on_cpu))
    if machine.presence.cards and not (job and job.on_cpu):
        yield from _of_gpus(machine, build=build)
    else:
        yield from _without_gpu(machine, build=build)
    if batch and job:
        yield from of_job(job)
        yield _place(batch, expected)
    yield from extras(machine.versions, job.extras if job else frozenset(), has_viewer=bool(viewer_gz()))


def _of_gpus(machine: Machine, *, build: bool) -> Iterator[Finding]:
    seen = probe(machine)
    if build and not seen.error:
        yield from warm(machine, seen.groups)
        seen = probe(machine)
    yield from of_kernels(machine, inventory.toolchain(machine.torch), seen)


def _without_gpu(machine: Machine, *, build: bool) -> Iterator[Finding]:
    """Say whether torch comes up at all; without a usable GPU that is what the CPU needs."""
    if machine.torch:
        error = probe(Machine()).error
        yield (problem("torch", error, "Install it anew.", OF_TRAINER) if error else ok("cpu", "torch starts"))
    if build:
        yield ok("build", NOTHING_TO_BUILD)


def _place(batch: Batch, expected: Mapping[str, Footprint]) -> Finding:
    """Say how long the whole batch takes, and whether `train` would train it here."""
    outlook = forecast(batch, batch.names, expected)
    try:
        check_place(batch, outlook)
    except (ExecutorError, TrainerError) as error:
        return problem("device", error.message, error.hint, error.exit_code)
    return ok("forecast", outlook.in_words())


@dataclass(frozen=True)
class Listed:
    """A trainer, where it is written down, and what it lacks here."""

    name: str
    origin: Literal["ours", "configured", "preset"]
    file: str
    missing: tuple[str, ...]


def list_trainers(config: Path | None, *, as_json: bool) -> None:
    """Print our own trainer, those of the config, if there is one, and the presets."""
    configured = _listed(configuration.find_config(config), "configured") if has_config(config) else ()
    listed = [Listed(OUR_TRAINER, "ours", "", missing(None)), *configured, *_presets()]
    if as_json:
        print_json({"trainers": [{**asdict(one), "found": not one.missing} for one in listed]})
        return
    headings = ("trainer", "from", "here")
    table = open_table(headings, headings)
    for one in listed:
        cells = (one.name, one.file or one.origin, "; ".join(one.missing) or "found")
        table.add_row(*(Text(one_line(cell)) for cell in cells))  # Text: a name is no markup
    open_console().print(table)


def _presets() -> Iterator[Listed]:
    folder = shipped("trainers")
    for path in sorted(folder.glob("*.yml")) if folder else ():
        yield from _listed(path, "preset")


def _listed(path: Path, origin: Literal["configured", "preset"]) -> Iterator[Listed]:
    for name, program in configuration.load(path).trainers.items():
        yield Listed(name, origin, str(path), missing(program))
