"""`compare`: the attempts at a patch side by side."""

from __future__ import annotations

from rich.table import Table

from splatbatch.cli.commands.output import open_console, open_table, print_json
from splatbatch.failures.causes import in_words
from splatbatch.monitor.table import figure, narrowed
from splatbatch.tasks.attempt_table import AttemptComparison, attempts_at
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.task import Task
from splatbatch.text import assignments, clock, one_line


def print_attempts(batch: Batch, task: Task, *, as_json: bool = False) -> None:
    """Print the attempts at a patch side by side."""
    found = attempts_at(batch, task)
    if as_json:
        return print_json(found)
    console = open_console()
    shown = attempt_table(found, console.width) if found.attempts else f"{found.patch}: no attempt yet"
    console.print(shown, markup=False)
    return None


def attempt_table(found: AttemptComparison, width: int) -> Table:
    """Return attempts as a table for a terminal."""
    headings = ("attempt", "outcome", "changed settings", "covered dB", "PSNR dB", "SSIM", "Gaussians", "time", "")
    table = open_table(headings, ("outcome", "changed settings", ""))
    sets = {row.covered_set for row in found.attempts if row.kept}
    for row in found.attempts:
        outcome = f"{row.outcome}: {in_words(row.cause)}" if row.cause else row.outcome
        note = "kept" if row.kept else "" if row.has_splat or row.outcome != "trained" else "splat removed"
        note += ", different pixels" if row.psnr_covered is not None and sets and row.covered_set not in sets else ""
        figures = (*(figure(one, ".2f") for one in (row.psnr_covered, row.psnr)), figure(row.ssim, ".4f"))
        cells = (*figures, figure(row.num_gaussians, ",d"), clock(row.seconds), note.removeprefix(", "))
        table.add_row(str(row.number), one_line(outcome), one_line(assignments(row.changes)), *cells)
    return narrowed(table, (10, 7, 6, 9, 8, 2, 3, 4, 5), width)
