"""The last lines of `train` and `retry`: how the requested patches stand, how the batch stands, and the exit code."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import typer

from splatbatch.errors import SceneError, SplatbatchError
from splatbatch.outcome import Outcome, Trained
from splatbatch.plain_text import one_line, plain
from splatbatch.report import write_report
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.evidence import Standing
from splatbatch.tasks.frame import note
from splatbatch.tasks.status import PatchStatus, read_status, summary


@dataclass(frozen=True)
class Run:
    """What came of a run: patches that were fresh before it, and the outcome of each that was trained."""

    fresh: tuple[str, ...] = ()
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    stopped: str = ""
    """Why it was interrupted, as "SIGTERM"."""

    def has_done(self, patch: str) -> bool:
        """Return whether a patch counts by this run: an older splat hides no failure."""
        return patch in self.fresh or isinstance(self.outcomes.get(patch), Trained)


def conclude(batch: Batch, run: Run, standing: Standing) -> int:
    """Write the report, print how it went, and return the exit code; all of it by one look at the whole batch.

    That is 0 if every requested patch is trained and fresh, 3 if the audit refused every one of them, else 1.
    """
    whole = batch.whole()
    write_the_report(whole, standing)
    statuses = statuses_of(whole, standing)
    requested = [one for one in statuses if one.patch in set(batch.names)]
    done = [one for one in requested if one.state == "trained" and run.has_done(one.patch)]
    _print(_lines(requested, done, statuses, run))
    if told := note(batch.output.read_frame(), (task.patch.name for task in whole.tasks)):
        typer.echo(one_line(told))
    typer.echo(plain(f"report: {batch.output.report('html')}"))
    if {one.state for one in requested} == {"refused"}:
        return SceneError.exit_code
    return 0 if len(done) == len(requested) else SplatbatchError.exit_code


def statuses_of(batch: Batch, standing: Standing | None = None) -> tuple[PatchStatus, ...]:
    """Return how every patch of a batch stands now."""
    return read_status(batch.output, batch.names, standing=standing or batch.standing())


def _lines(
    requested: Sequence[PatchStatus], done: Sequence[PatchStatus], statuses: Sequence[PatchStatus], run: Run
) -> list[str]:
    lines = []
    undone = [one for one in requested if one not in done]
    if run.stopped:
        kept = [one.patch for one in undone if one.splat]
        earlier = f"; the earlier splat of {', '.join(kept)} is kept" if kept else ""
        lines.append(f"interrupted ({run.stopped}){earlier}")
    if len(requested) < len(statuses):
        lines.append(f"{len(done)} of {len(requested)} requested patches trained. The batch: {summary(statuses)}")
    elif len(done) < sum(one.state == "trained" for one in requested):
        kept = [one.patch for one in undone if one.state == "trained"]
        lines.append(f"{len(done)} of {len(requested)} patches trained; kept as they were: {', '.join(kept)}")
    else:
        lines.append(summary(statuses))
    for one in statuses:
        if one.state != "trained" and (one.cause or one.advice):
            cause = f": {one.cause}" if one.cause else ""
            lines.append(f"  {one_line(f'{one.patch}: {one.state}{cause}. {one.advice}')}")
        lines += [f"  {one_line(f'{one.patch}: warning: {warning}')}" for warning in one.warnings]
    return lines


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        typer.echo(plain(line))


def write_the_report(batch: Batch, standing: Standing) -> None:
    """Write the report; that it cannot be must not hide how the batch went, nor keep anybody from being told."""
    names, settings = batch.names, batch.config
    try:
        write_report(batch.output, names, settings.variants.values(), settings.output.previews_mib, standing=standing)
    except OSError as error:
        typer.echo(f"the report could not be written ({error.strerror})", err=True)
    except Exception:  # noqa: BLE001 - a mistake of ours, over files that anybody may have changed
        typer.echo(plain(f"the report could not be written:\n{traceback.format_exc()}"), err=True)
