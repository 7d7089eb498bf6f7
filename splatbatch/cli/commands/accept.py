"""`accept`: the splat of another attempt becomes the product of its patch."""

from __future__ import annotations

from pathlib import Path

from splatbatch.cli.commands.compare import attempt_table
from splatbatch.cli.commands.output import open_console, print_line
from splatbatch.output.records.metrics import spell_figures
from splatbatch.run.accept import accept as accept_attempt
from splatbatch.run.compare import attempts_at
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.task import the_task


def accept(config: Path | None, name: str, number: int) -> None:
    """Make the splat of an attempt the product, and say so."""
    batch = open_batch(config, [name])
    task = the_task(batch.tasks, name)
    accepted = accept_attempt(batch, name, number).metrics.final
    told = ", ".join(filter(None, (f"attempt {number} accepted", spell_figures(accepted))))
    print_line(f"{task.name}: {told}; `train` keeps it until settings or inputs change")
    console = open_console()
    console.print(attempt_table(attempts_at(batch, task), console.width))
