"""`evaluate`: how good the merged scene is, on photographs that nobody was trained on and where patches meet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer
from rich.table import Table

from splatbatch import terminal
from splatbatch.cli.commands.output import open_console, open_table, print_json, print_line
from splatbatch.output.records.evaluation import SceneEvaluation, SceneMeasurement, SeamMeasurement
from splatbatch.run import api
from splatbatch.tasks.batch import open_batch
from splatbatch.text import one_line

NOT_WHOLE = 1
OF_PHOTOS = ("photographs", "number", "covered dB", "PSNR dB", "SSIM", "LPIPS", "patches' own dB", "gain dB")
_ACROSS = ("seam", "across", "covered dB", "PSNR dB")
OF_SEAMS = (*_ACROSS, "views", "between dB", "colour /255", "depth step %", "density", "pixels %", "note")


def evaluate(config: Path | None, splat: Path | None, *, as_json: bool) -> None:
    """Measure a splat of the whole scene; exit with 1 if some patch is missing beside it."""
    terminal.never_block()
    batch = open_batch(config)
    found = api.evaluate(batch, splat)
    if as_json:
        print_json(found)
    else:
        show(found)
    raise typer.Exit(NOT_WHOLE if found.lacking else 0)


def show(found: SceneEvaluation) -> None:
    """Print what was found as tables."""
    console = open_console()
    for part in tables(found):
        console.print(part)
    for name, why in found.lacking.items():
        print_line(f"{name}: {why}: its seams were not measured", err=True)
    for note in found.notes:
        print_line(note, err=True)


def tables(found: SceneEvaluation) -> Iterator[Table]:
    """Yield the tables of an evaluation; LPIPS where it was measured."""
    rows = [("all held-out", found.total), ("across a seam", found.across), ("all others", found.within)]
    rows += [(name, one) for name, one in found.patches.items()]
    table = open_table(OF_PHOTOS, ("photographs",))
    for name, one in rows:
        table.add_row(one_line(name), *_of_photos(one))
    yield table
    if found.seams:
        seams = open_table(OF_SEAMS, ("seam", "note"))
        for seam in found.seams:
            seams.add_row(one_line(seam.name), *_of_seam(seam))
        yield seams


def _of_photos(one: SceneMeasurement) -> list[str]:
    figures = [(one.psnr_covered, ".2f"), (one.psnr, ".2f"), (one.ssim, ".3f"), (one.lpips, ".3f")]
    figures += [(one.own_psnr, ".2f"), (one.gain_db, "+.2f")]
    return [str(one.num_photos), *(figure(value, form) for value, form in figures)]


def _of_seam(seam: SeamMeasurement) -> list[str]:
    figures_across = (figure(value, ".2f") for value in (seam.across.psnr_covered, seam.across.psnr))
    across = [str(seam.across.num_photos), *figures_across, str(seam.num_views)]
    step, share = ((None if one is None else 100 * one) for one in (seam.depth_step, seam.share))
    figures = ((seam.psnr_between, ".2f"), (seam.color_offset, ".2f"), (step, "+.2f"), (seam.density_ratio, ".2f"))
    return [*across, *(figure(value, form) for value, form in (*figures, (share, ".0f"))), one_line(seam.problem)]


def figure(value: float | None, form: str) -> str:
    """Return a figure in words; a dash for one that nobody knows."""
    return "-" if value is None else f"{value:{form}}"
