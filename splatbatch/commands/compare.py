"""`compare`: the attempts at a patch side by side, or the patches of two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from rich.table import Table

from splatbatch import config as configuration
from splatbatch.commands.output import open_console, open_table, print_json
from splatbatch.errors import ConfigError
from splatbatch.failures.causes import in_words
from splatbatch.monitor.table import narrowed
from splatbatch.plain_text import assignments, clock, counted, one_line
from splatbatch.store.layout import OutputFolder
from splatbatch.tasks.attempt_table import AttemptRow, attempt_rows, ends_of
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.fingerprints.fingerprint import settings_of
from splatbatch.tasks.status import PatchStatus, read_status
from splatbatch.tasks.task import Task, the_task


def compare(config: Path | None, one: str, other: str, *, as_json: bool) -> None:
    """Print the attempts at the patch `one` or, with two names, two runs side by side.

    Raises:
        ConfigError: a name is neither a patch nor a run.
    """
    if other:
        _compare_runs(_run(one), _run(other), (one, other), as_json=as_json)
        return
    batch = open_batch(config, [one])
    task = the_task(batch.tasks, one)
    rows = rows_of(batch, task)
    if as_json:
        print_json({"patch": task.name, "attempts": [asdict(row) for row in rows]})
    else:
        console = open_console()
        console.print(attempt_table(rows, console.width) if rows else f"{task.name}: no attempt yet", markup=False)


def rows_of(batch: Batch, task: Task) -> tuple[AttemptRow, ...]:
    """Return a row for each attempt at a task of a batch."""
    ends = ends_of(batch.output, task.name)
    return attempt_rows(batch.output.patch(task.name), ends, settings_of(task.recipe))


def attempt_table(rows: Sequence[AttemptRow], width: int) -> Table:
    """Return attempts as a table for a terminal; what is changed is held against the YAML of today."""
    headings = ("attempt", "outcome", "unlike the YAML", "covered dB", "PSNR dB", "SSIM", "Gaussians", "time", "")
    table = open_table(headings, ("outcome", "unlike the YAML", ""))
    sets = {row.covered_set for row in rows if row.kept}
    for row in rows:
        outcome = f"{row.outcome}: {in_words(row.cause)}" if row.cause else row.outcome
        note = "kept" if row.kept else "" if row.has_splat or row.outcome != "trained" else "splat removed"
        note += ", on other pixels" if row.psnr_covered is not None and sets and row.covered_set not in sets else ""
        figures = (*(_shown(one, ".2f") for one in (row.psnr_covered, row.psnr)), _shown(row.ssim, ".4f"))
        cells = (*figures, _shown(row.num_gaussians, ",d"), clock(row.seconds), note.removeprefix(", "))
        table.add_row(str(row.number), one_line(outcome), one_line(assignments(row.changes)), *cells)
    return narrowed(table, (10, 7, 6, 9, 8, 2, 3, 4, 5), width)


@dataclass(frozen=True)
class PatchPair:
    """A patch in two runs; None where a run has no splat of it."""

    patch: str
    psnr_covered: tuple[float | None, float | None]
    """None also where the covered pixels are others in the two."""
    psnr: tuple[float | None, float | None]
    num_gaussians: tuple[int | None, int | None]
    seconds: tuple[float | None, float | None]

    @property
    def gain_db(self) -> float | None:
        """PSNR of the second less that of the first: on covered pixels where both are of the same."""
        first, second = self.psnr if None in self.psnr_covered else self.psnr_covered
        return None if first is None or second is None else second - first


def _run(name: str) -> OutputFolder:
    path = Path(name)
    if path.is_file():
        return OutputFolder(configuration.load(path).output.folder)
    if (path / "patches").is_dir():
        return OutputFolder(path)
    raise ConfigError(f"compare {name}: neither an output folder nor a YAML", "Name two of them, or one patch.")


def _compare_runs(one: OutputFolder, other: OutputFolder, names: tuple[str, str], *, as_json: bool) -> None:
    first, second = ({each.patch: each for each in read_status(run)} for run in (one, other))
    pairs = [_pair(name, first, second) for name in dict.fromkeys([*first, *second])]
    gains = [pair.gain_db for pair in pairs if pair.gain_db is not None]
    mean = fmean(gains) if gains else None
    if as_json:
        records = [{**asdict(pair), "gain_db": pair.gain_db} for pair in pairs]
        print_json({"runs": list(names), "patches": records, "mean_gain_db": mean})
        return
    headings = ("patch", "covered dB", "", "PSNR dB", "", "gain", "Gaussians", "", "time", "")
    table = open_table(headings, ("patch",))
    for pair in pairs:
        figures = [_shown(value, ".2f") for value in (*pair.psnr_covered, *pair.psnr)]
        figures.append(_shown(pair.gain_db, "+.2f"))
        counts = [_shown(value, ",d") for value in pair.num_gaussians]
        table.add_row(one_line(pair.patch), *figures, *counts, *(clock(value) for value in pair.seconds))
    console = open_console()
    narrowed(table, (9, 6, 6, 5, 5, 8, 3, 3, 1, 1), console.width)
    console.print(f"first: {one_line(names[0])}, second: {one_line(names[1])}", markup=False)
    console.print(table)
    console.print(
        f"mean gain: {_shown(mean, '+.2f') or 'unknown'} dB over {counted(len(gains), 'patch', 'es')}", markup=False
    )


def _pair(name: str, first: Mapping[str, PatchStatus], second: Mapping[str, PatchStatus]) -> PatchPair:
    one, other = first.get(name, PatchStatus(name, "waiting")), second.get(name, PatchStatus(name, "waiting"))
    counts = (one.num_gaussians, other.num_gaussians)
    is_same_set = one.covered_set == other.covered_set
    covered = (one.psnr_covered, other.psnr_covered) if is_same_set else (None, None)
    return PatchPair(name, covered, (one.psnr, other.psnr), counts, (one.seconds, other.seconds))


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
