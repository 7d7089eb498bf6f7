"""The last lines of `train` and `retry`: how the requested patches stand, how the batch stands, and the exit code."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import typer

from splatbatch.commands.compare import attempt_table, rows_of
from splatbatch.commands.output import open_console
from splatbatch.config import Config
from splatbatch.config.yaml.edit import save_overrides
from splatbatch.errors import ConfigError, SceneError, SplatbatchError
from splatbatch.failures.causes.words import spelled
from splatbatch.files import write_text
from splatbatch.monitor.sinks import BUDGET_S, End, Sinks
from splatbatch.night.interruption import Budget, Interruption
from splatbatch.outcome import Outcome, Trained
from splatbatch.plain_text import one_line, plain
from splatbatch.reader import Fault, Hang, Refused, answer
from splatbatch.report import write_report
from splatbatch.store.records.afterwards import Afterwards
from splatbatch.store.records.result import Result
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.evidence import Standing
from splatbatch.tasks.frame import note
from splatbatch.tasks.partition.tally import tally
from splatbatch.tasks.status import PatchStatus, read_status, summary


@dataclass(frozen=True)
class Run:
    """What came of a run: patches that were fresh before it, and the outcome of each that was trained."""

    fresh: tuple[str, ...] = ()
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    stopped: str = ""
    """Why it was interrupted, as "SIGTERM"."""
    outdated: tuple[str, ...] = ()
    """What was fresh, and is stale by a backdrop that was accepted meanwhile."""

    def then(self, later: Run) -> Run:
        """Return what came of this run and of another one, which was about what was outdated."""
        fresh = tuple(name for name in self.fresh if name not in self.outdated)
        return Run((*fresh, *later.fresh), {**self.outcomes, **later.outcomes}, later.stopped)

    def has_done(self, patch: str) -> bool:
        """Return whether a patch counts by this run: an older splat hides no failure."""
        return patch in self.fresh or isinstance(self.outcomes.get(patch), Trained)


@dataclass(frozen=True)
class Stand:
    """How a batch stands once nothing trains any more, by one look at the whole of it."""

    statuses: tuple[PatchStatus, ...]
    """Of all patches."""
    requested: tuple[PatchStatus, ...]
    done: tuple[PatchStatus, ...]
    """Of the requested ones those that are trained and fresh."""

    @classmethod
    def of(cls, batch: Batch, run: Run, standing: Standing) -> Stand:
        """Look at a batch."""
        statuses, names = statuses_of(batch.whole(), standing), set(batch.names)
        requested = tuple(one for one in statuses if one.patch in names)
        return cls(
            statuses,
            requested,
            tuple(one for one in requested if one.state == "trained" and run.has_done(one.patch)),
        )

    @property
    def code(self) -> int:
        """Return 0 if every requested patch is trained and fresh, 3 if the audit refused every one of them, else 1."""
        if {one.state for one in self.requested} == {"refused"}:
            return SceneError.exit_code
        return 0 if len(self.done) == len(self.requested) else SplatbatchError.exit_code


def conclude(batch: Batch, run: Run, stand: Stand, standing: Standing, afterwards: Sequence[Afterwards] = ()) -> int:
    """Write the report, print how it went, and what of all that follows was left out; return the exit code."""
    whole = batch.whole()
    write_the_report(whole, standing)
    lines = _lines(stand, run)
    if told := note(batch.output.read_frame(), (task.patch.name for task in whole.tasks)):
        lines.append(one_line(told))
    for line in (*lines, f"report: {batch.output.report('html')}"):
        typer.echo(plain(line))
    for one in afterwards:
        typer.echo(in_words(one), err=not one.is_done)
    return stand.code


def in_words(one: Afterwards) -> str:
    """Return what came of something that follows the training, and what makes it good."""
    return one_line(f"{one.words}; again: {one.command}" if one.command else one.words)


def statuses_of(batch: Batch, standing: Standing | None = None) -> tuple[PatchStatus, ...]:
    """Return how every patch of a batch stands now."""
    return read_status(batch.output, batch.names, standing=standing or batch.standing())


def _lines(stand: Stand, run: Run) -> list[str]:
    requested, done, statuses = stand.requested, stand.done, stand.statuses
    lines = []
    undone = [one for one in requested if one not in done]
    if run.stopped:
        kept = [one.patch for one in undone if one.splat]
        earlier = f"; the earlier splat of {', '.join(kept)} is kept" if kept else ""
        lines.append(f"interrupted ({run.stopped}){earlier}")
    if len(requested) < len(statuses):
        lines.append(f"{_tally(done, requested, 'requested patches')} trained. The batch: {summary(statuses)}")
    elif len(done) < sum(one.state == "trained" for one in requested):
        kept = [one.patch for one in undone if one.state == "trained"]
        lines.append(f"{_tally(done, requested, 'patches')} trained; kept as they were: {', '.join(kept)}")
    else:
        lines.append(summary(statuses))
    for one in statuses:
        if one.state != "trained" and (one.cause or one.advice):
            cause = f": {spelled(one.cause)}" if one.cause else ""
            lines.append(f"  {one_line(f'{one.patch}: {one.state}{cause}. {one.advice}')}")
        lines += [f"  {one_line(f'{one.patch}: warning: {warning}')}" for warning in one.warnings]
    return lines


def _tally(done: Sequence[PatchStatus], of: Sequence[PatchStatus], what: str) -> str:
    return tally({one.patch: one in done for one in of}, what)


def write_the_report(batch: Batch, standing: Standing) -> None:
    """Write the report; that it cannot be must not hide how the batch went, nor keep anybody from being told."""
    names, settings = batch.names, batch.config
    variants = settings.variants.values()

    def write(_: str) -> None:
        write_report(batch.output, names, variants, settings.output.previews_mib, standing=standing)

    match answer(write, ""):
        case Refused(error=error):
            words = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        case Fault(words=words, traceback=found):
            with contextlib.suppress(OSError):
                write_text(batch.output.fault, found)
            words = f"a fault of splatbatch itself: {words}; please report it, with {batch.output.fault}"
        case Hang() as hang:
            words = f"{hang.path or 'a file'} does not answer"
        case _:
            return
    typer.echo(one_line(f"the report could not be written ({words})"), err=True)


def tell_the_end(sinks: Sinks, end: End, interruption: Interruption, config: Config) -> None:
    """Have all sinks write what is left, and tell people; what fails is told in a line each, and harms nothing."""
    budget = Budget(BUDGET_S, interruption, config.limits.grace_s)
    for reason in sinks.finish(end, budget.left_s):
        typer.echo(one_line(f"notification failed: {reason}"), err=True)


MOST_TABLES = 5


def check_savable(batch: Batch) -> None:
    """See that settings can be saved, before anything is trained for them.

    Raises:
        ConfigError: there are none, they are of a variant, or no setting of a patch.
    """
    if not batch.changes:
        raise ConfigError("retry --save: no --set, so there is nothing to save", "Add --set KEY=VALUE.")
    batch.file  # noqa: B018 - for its error
    if variants := [task.name for task in batch.tasks if task.id.variant]:
        raise ConfigError(
            f"retry --save: {variants[0]} is a variant of a sweep", "Write its settings into `sweep` yourself."
        )


def print_retried(batch: Batch, run: Run, *, save: bool) -> None:
    """Print the attempts at each patch that was retried; write the settings of kept splats into the YAML, or say how.

    Raises:
        ConfigError: the YAML cannot be written.
    """
    tried = [task for task in batch.tasks if task.name in run.outcomes]
    for task in tried[:MOST_TABLES]:
        typer.echo(plain(f"{task.name}:"))
        console = open_console()
        console.print(attempt_table(rows_of(batch, task), console.width))
    kept = _kept_with_changes(batch, run)
    if save:
        for name in kept:
            save_overrides(batch.path, name, batch.changes)
        whose = f"saved in {batch.path} for {', '.join(kept)}"
        typer.echo(plain(whose if kept else f"not saved in {batch.path}: no splat under these settings is kept"))
        return
    if not kept:
        return
    lines = json.dumps(_tree(batch.changes), default=str).replace('"', "")
    for name in kept[:MOST_TABLES]:
        typer.echo(plain(f"not in the YAML; to keep these settings, write there: patches: {{{name}: {lines}}}"))
    typer.echo("or retry with --save, which writes it; otherwise `train` leaves them out when it next trains the patch")


def _kept_with_changes(batch: Batch, run: Run) -> list[str]:
    """Return the patches that were trained under the settings of --set, and whose product is that splat."""
    trained = [name for name in batch.names if isinstance(run.outcomes.get(name), Trained)]
    changes = {name: (batch.output.patch(name).read_result() or Result()).changes for name in trained}
    return [name for name in trained if batch.changes and batch.changes.items() <= changes[name].items()]


def _tree(changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    tree: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        section, _, setting = key.partition(".")
        tree.setdefault(section, {})[setting] = value
    return tree
