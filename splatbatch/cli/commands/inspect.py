"""`inspect`: how good accepted splats are beyond PSNR, with grade and advice; `--check`: whether certificates hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from splatbatch import terminal
from splatbatch.cli.commands.output import open_console, open_table, print_json, print_line
from splatbatch.output.records.quality import GRADES, QualityFigure, grade_in_words
from splatbatch.report.quality import drop_in_words
from splatbatch.run import api
from splatbatch.run.inspection import MOST_NAMED, Found, InspectOptions
from splatbatch.tasks.certificate import CertificateCheck, problems_of_batch, problems_of_file
from splatbatch.tasks.inspection import open_named
from splatbatch.text import one_line

NOT_ALL = 1
COLUMNS = ("patch", "grade", "figure", "value", "limit", "what", "photographs")


def inspect(config: Path | None, names: Sequence[str], how: InspectOptions, *, as_json: bool) -> None:
    """Inspect accepted splats that nobody has inspected yet; exit with 1 if one cannot be."""
    terminal.never_block()
    batch, is_of_scene = open_named(config, names)
    found, failed = api.inspect(batch, replace(how, of_scene=is_of_scene))
    if as_json:
        print_json(dict(found))
    else:
        show(found)
    for name, why in failed.items():
        print_line(f"{name}: {why}", err=True)
    raise typer.Exit(NOT_ALL if failed else 0)


def show(found: Found) -> None:
    """Print what exceeds its limit, and what to do about it."""
    console, table = open_console(), open_table(COLUMNS, ("patch", "grade", "figure", "what", "photographs"))
    for name, one in found.items():
        for figure in one.found or (QualityFigure("all within limits"),):
            table.add_row(one_line(name), one.grade, *_row(figure))
    if found:
        console.print(table)
    for letter in sorted({one.grade for one in found.values()} & GRADES.keys()):
        print_line(grade_in_words(letter))
    for name, one in found.items():
        if told := drop_in_words(one.dropped):
            print_line(f"{name}: {told}")
    advice = {figure.name: figure.advice for one in found.values() for figure in one.found}
    for figure_name, words in advice.items():
        print_line(f"{figure_name}: {words}")


def _row(figure: QualityFigure) -> list[str]:
    named = ", ".join(figure.subjects[:MOST_NAMED]) + (", …" if len(figure.subjects) > MOST_NAMED else "")
    value, limit = ("" if one is None else f"{one:.3g}" for one in (figure.value, figure.limit))
    return [figure.name, value, limit, f"{figure.unit} {figure.meaning}".strip(), one_line(named)]


def verify(config: Path | None, names: Sequence[str], file: Path | None, *, as_json: bool) -> None:
    """Check certificates of a batch, or a single file beside its splat; exit with 1 if one does not hold.

    Raises:
        OutputError: the named file is none.
    """
    found = {str(file): problems_of_file(file)} if file else problems_of_batch(config, names)
    if as_json:
        print_json({name: CertificateCheck(tuple(why)) for name, why in found.items()})
    else:
        for name, why in found.items():
            print_line(f"{name}: {'; '.join(why) or 'the certificate holds'}")
    raise typer.Exit(NOT_ALL if any(found.values()) else 0)
