"""What `train`, `retry` and `work` print: what was made as soon as it is there, and how the batch stands at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from splatbatch.commands.compare import attempt_table, rows_of
from splatbatch.commands.output import open_console
from splatbatch.commands.publish import publish as publishing
from splatbatch.commands.scene import evaluate as evaluating
from splatbatch.commands.scene import merge as merging
from splatbatch.failures.causes import spelled
from splatbatch.night import retry
from splatbatch.night.night import Ended
from splatbatch.night.products import MergedScene
from splatbatch.plain_text import one_line, plain
from splatbatch.store.records.evaluation import SceneEvaluation
from splatbatch.store.records.publication import Publication
from splatbatch.store.records.run import Afterwards
from splatbatch.tasks.partition.tally import tally
from splatbatch.tasks.settled.frame import FRAME, note
from splatbatch.tasks.status import PatchStatus, summary

MOST_TABLES = 5


def show(made: MergedScene | SceneEvaluation | Publication | Afterwards | Ended) -> None:
    """Print what was made, or how a night has ended."""
    match made:
        case MergedScene():
            merging.show(made)
        case SceneEvaluation():
            evaluating.show(made)
        case Publication():
            publishing.show(made)
        case Afterwards():
            words = f"{made.words}; again: {made.command}" if made.command else made.words
            typer.echo(one_line(words), err=not made.is_done)
        case Ended():
            _show_end(made)


def _show_end(ended: Ended) -> None:
    """Print how it went, and what of all that follows was left out."""
    batch = ended.batch
    lines = _lines(ended)
    if told := note(FRAME.recorded(batch.output), (task.patch.name for task in batch.every)):
        lines.append(one_line(told))
    for line in (*lines, f"report: {batch.output.report('html')}"):
        typer.echo(plain(line))
    for one in ended.afterwards:
        show(one)


def _lines(ended: Ended) -> list[str]:
    requested, done, statuses = ended.requested, ended.done, ended.statuses
    lines = []
    undone = [one for one in requested if one not in done]
    if ended.run.stopped:
        kept = [one.patch for one in undone if one.splat]
        earlier = f"; the earlier splat of {', '.join(kept)} is kept" if kept else ""
        lines.append(f"interrupted ({ended.run.stopped}){earlier}")
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


def print_retried(ended: Ended, *, save: bool) -> None:
    """Print the attempts at each patch that was retried; write the settings of kept splats into the YAML, or say how.

    Raises:
        ConfigError: the YAML cannot be written.
    """
    batch = ended.batch
    tried = [task for task in batch.tasks if task.name in ended.run.outcomes]
    for task in tried[:MOST_TABLES]:
        typer.echo(plain(f"{task.name}:"))
        console = open_console()
        console.print(attempt_table(rows_of(batch, task), console.width))
    kept = retry.save(ended) if save else retry.kept_with_changes(ended)
    if save:
        whose = f"saved in {batch.path} for {', '.join(kept)}"
        typer.echo(plain(whose if kept else f"not saved in {batch.path}: no splat under these settings is kept"))
        return
    if not kept:
        return
    lines = json.dumps(_tree(batch.changes), default=str).replace('"', "")
    for name in kept[:MOST_TABLES]:
        typer.echo(plain(f"not in the YAML; to keep these settings, write there: patches: {{{name}: {lines}}}"))
    typer.echo("or retry with --save, which writes it; otherwise `train` leaves them out when it next trains the patch")


def _tree(changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    tree: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        section, _, setting = key.partition(".")
        tree.setdefault(section, {})[setting] = value
    return tree
