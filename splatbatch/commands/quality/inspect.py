"""`inspect`: how good accepted splats are beyond PSNR, figure by figure, with a grade and advice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import typer

from splatbatch import terminal
from splatbatch.commands.output import open_console, open_table, print_json, print_warnings, tell
from splatbatch.commands.scene.evaluate import renew_report
from splatbatch.commands.train.train import Interruption
from splatbatch.errors import SplatbatchError
from splatbatch.files import write_json
from splatbatch.plain_text import one_line
from splatbatch.scheduler.scene.attempt import Hooks
from splatbatch.scheduler.scene.inspecting import inspect as measure
from splatbatch.scheduler.work.holding import held_alone
from splatbatch.store.records.quality.certificate import read_certificate
from splatbatch.store.records.quality.inspection import Inspection, QualityFigure
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.quality.certificate import certificate_of
from splatbatch.tasks.quality.inspection import accepted, known, order

NOT_ALL = 1
COLUMNS = ("patch", "grade", "figure", "value", "limit", "what", "photographs")
MOST_NAMED = 5
Found = Mapping[str, Inspection]


def inspect(config: Path | None, names: Sequence[str], *, as_json: bool, again: bool) -> None:
    """Inspect accepted splats that nobody has inspected yet; exit with 1 if one cannot be."""
    terminal.never_block()
    batch = open_batch(config, names)
    print_warnings(batch.config.warnings)
    found, failed = inspected(batch, Interruption(), again=again)
    renew_report(batch)
    if as_json:
        print_json({name: one.to_record() for name, one in found.items()})
    else:
        show(found)
    for name, why in failed.items():
        typer.echo(one_line(f"{name}: {why}"), err=True)
    raise typer.Exit(NOT_ALL if failed else 0)


def inspected(batch: Batch, interruption: Interruption, *, again: bool = False) -> tuple[Found, Mapping[str, str]]:
    """Inspect the splats of a batch, and return what was found, and why others were not; the folder is held.

    Raises:
        SplatbatchError: nothing can be run here.
    """
    batch.output.create()
    with held_alone(batch.output, batch.terms, tell) as beat:
        found, failed = inspect_tasks(batch, Hooks(interruption.reason, beat), again=again)
    if interruption.signal:
        raise typer.Exit(interruption.exit_code)
    return found, failed


def inspect_tasks(
    batch: Batch, hooks: Hooks, say: Callable[[str], None] = tell, *, again: bool = False
) -> tuple[Found, Mapping[str, str]]:
    """Inspect splat by splat; the output lock must be held. One that fails does not keep the others from it."""
    found, failed = dict[str, Inspection](), dict[str, str]()
    for task in batch.tasks:
        if task.patch.is_backdrop or hooks.stop():
            continue
        folder = batch.output.patch(task.name)
        try:
            settings = order(batch, task)
            earlier = None if again else known(folder, settings)
            found[task.name] = earlier or measure(batch.config, settings, folder, hooks)
            made = certificate_of(task, accepted(folder), found[task.name]).to_record()
            if read_certificate(folder.certificate) != made:
                write_json(folder.certificate, made)
        except SplatbatchError as error:
            failed[task.name] = f"{error.message} {error.hint}" if error.hint else error.message
            continue
        if earlier is None:
            say(one_line(in_words(task.name, found[task.name])))
    return found, failed


def in_words(name: str, found: Inspection) -> str:
    """Return what was found in a line."""
    over = ", ".join(figure.name for figure in found.found)
    return f"{name}: grade {found.grade or 'unknown'}" + (f": {over}" if over else "")


def show(found: Found) -> None:
    """Print what exceeds its limit, and what to do about it."""
    console, table = open_console(), open_table(COLUMNS, ("patch", "grade", "figure", "what", "photographs"))
    for name, one in found.items():
        for figure in one.found or (QualityFigure("all within their limits"),):
            table.add_row(one_line(name), one.grade, *_row(figure))
    console.print(table)
    advice = {figure.name: figure.advice for one in found.values() for figure in one.found}
    for figure_name, words in advice.items():
        typer.echo(one_line(f"{figure_name}: {words}"))


def _row(figure: QualityFigure) -> list[str]:
    named = ", ".join(figure.subjects[:MOST_NAMED]) + (", …" if len(figure.subjects) > MOST_NAMED else "")
    value, limit = ("" if one is None else f"{one:.3g}" for one in (figure.value, figure.limit))
    return [figure.name, value, limit, f"{figure.unit} {figure.meaning}".strip(), one_line(named)]
