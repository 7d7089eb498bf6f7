"""`train`, `retry` and `work`: the commands that train; they print what is made, and how the batch stands then."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from splatbatch import config as configuration
from splatbatch import terminal
from splatbatch.cli.commands.output import open_console, print_line
from splatbatch.errors import ConfigError
from splatbatch.files import read_tail
from splatbatch.monitor.messages import print_err
from splatbatch.output.records.evaluation import SceneEvaluation
from splatbatch.output.records.frame import Frame
from splatbatch.output.records.merge import MergeOutput
from splatbatch.output.records.publication import Publication
from splatbatch.output.records.run import FollowUpResult, TodoItem
from splatbatch.run.context import RunSummary
from splatbatch.run.decide import TrainOptions
from splatbatch.run.prepare import open_or_begin
from splatbatch.run.retry import check_due, check_savable, failed_only, kept_with_changes, save_kept
from splatbatch.run.train import is_elsewhere
from splatbatch.run.train import train as train_batch
from splatbatch.scene.patches import list_names
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.counts import count_patches
from splatbatch.tasks.shared_decisions.frame import note
from splatbatch.tasks.status import PatchStatus, summary
from splatbatch.text import one_line, plain

MOST_TABLES = 5
MOST_ITEMS, MOST_NAMED = 8, 8
HOW = "`splatbatch status --watch` shows the progress, `splatbatch cancel` stops training"


def changes_of(assignments: Sequence[str]) -> dict[str, Any]:
    """Return the settings that --set changes, by their keys.

    Raises:
        ConfigError: one has no `=`, or no setting.
    """
    return dict(configuration.parse_change(assignment) for assignment in assignments)


def train(
    config: Path | None,
    names: Sequence[str],
    only: Sequence[str],
    *,
    verify: bool,
    assignments: Sequence[str] = (),
) -> None:
    """Train what is not trained, and do what follows; exit with 0 if every patch is trained, with 1 if not."""
    batch = open_or_begin(config, names, changes_of(assignments), only, print_err)
    if is_elsewhere(batch.config.executor) and (only or assignments):
        if only:
            raise ConfigError(
                f"train --only {only[0]}: not supported with workers", "Give names: `splatbatch train p0@base`."
            )
        check_no_workers(assignments)
    terminal.never_block()
    ended = train_batch(batch, TrainOptions(verify=verify), show)
    print_unsaved(batch, kept_with_changes(ended))
    raise typer.Exit(ended.exit_code)


def check_no_workers(assignments: Sequence[str]) -> None:
    """Refuse settings of one run where workers train.

    Raises:
        ConfigError: there are some.
    """
    if assignments:
        raise ConfigError(
            f"train --set {assignments[0]}: workers take settings from the YAML only", "Set it in the YAML."
        )


def retry(
    config: Path | None,
    names: Sequence[str],
    only: Sequence[str],
    assignments: Sequence[str],
    *,
    failed: bool,
    force: bool,
    save: bool,
) -> None:
    """Train named or failed patches again.

    Raises:
        ConfigError: no patch is named, or a named one is trained and fresh, and no setting would change.
    """
    changes = changes_of(assignments)
    batch = open_batch(config, names, changes, only)
    if save:
        check_savable(batch)
    if failed:
        batch = failed_only(batch)
        if not batch.tasks:
            return print_line("no failed patch to retry", err=True)
    elif not names and not only:
        raise ConfigError(
            "retry: no patch given", "Run `splatbatch retry p5`, or `splatbatch retry --failed` for all failed patches."
        )
    if not force:
        check_due(batch)
    terminal.never_block()
    ended = train_batch(batch, TrainOptions(force=force or bool(changes), is_retry=True), show)
    print_retried(ended, save=save)
    raise typer.Exit(ended.exit_code)


def work(config: Path | None, names: Sequence[str], for_s: float | None, *, verify: bool) -> None:
    """Train what nobody else does, until nothing is left, the time is up, or somebody says stop."""
    from splatbatch.run.worker import open_as_worker
    from splatbatch.run.worker import work as work_on

    terminal.never_block()
    batch = open_as_worker(config, names)
    raise typer.Exit(work_on(batch, for_s, TrainOptions(verify=verify), show))


def show(made: MergeOutput | SceneEvaluation | Publication | FollowUpResult | RunSummary) -> None:
    """Print what was made, or how a night has ended."""
    match made:
        case MergeOutput():
            from splatbatch.cli.commands.scene import merge

            merge.show(made)
        case SceneEvaluation():
            from splatbatch.cli.commands.scene import evaluate

            evaluate.show(made)
        case Publication():
            from splatbatch.cli.commands import publish

            publish.show(made)
        case FollowUpResult():
            words = f"{made.words}; to run again: {made.command}" if made.command else made.words
            print_line(words, err=not made.is_done)
        case RunSummary():
            _show_end(made)


def _show_end(ended: RunSummary) -> None:
    """Print how it went, and what of all that follows was left out."""
    batch = ended.batch
    lines = _lines(ended)
    if told := note(Frame.read(batch.output.frame), (task.patch.name for task in batch.every)):
        lines.append(one_line(told))
    for line in (*lines, f"report: {batch.output.report('html')}"):
        typer.echo(plain(line))
    for one in ended.afterwards:
        show(one)


def _lines(ended: RunSummary) -> list[str]:
    requested, done, statuses = ended.requested, ended.done, ended.statuses
    lines = []
    undone = [one for one in requested if one not in done]
    if ended.run.stopped:
        kept = [one.patch for one in undone if one.splat]
        earlier = f"; the earlier splat of {', '.join(kept)} is kept" if kept else ""
        lines.append(f"interrupted ({ended.run.stopped}){earlier}")
    if len(requested) < len(statuses):
        lines.append(f"{_tally(done, requested, 'requested patches')} trained. Whole batch: {summary(statuses)}")
    elif len(done) < sum(one.state == "trained" for one in requested):
        kept = [one.patch for one in undone if one.state == "trained"]
        lines.append(f"{_tally(done, requested, 'patches')} trained; earlier splat kept: {', '.join(kept)}")
    else:
        lines.append(summary(statuses))
    return lines + [line for item in ended.todo[:MOST_ITEMS] for line in _item(item)]


def _item(item: TodoItem) -> list[str]:
    """Return what is to be done, or worth a look, and the command for it."""
    who = f"{list_names(item.patches, MOST_NAMED)}: " if item.patches else ""
    return [one_line(f"{'to do' if item.kind == 'do' else 'worth a look'}: {who}{item.what}"), f"    {item.command}"]


def _tally(done: Sequence[PatchStatus], of: Sequence[PatchStatus], what: str) -> str:
    return count_patches({one.patch: one in done for one in of}, what)


def print_retried(ended: RunSummary, *, save: bool) -> None:
    """Print the attempts at each patch that was retried; write the settings of kept splats into the YAML, or say how.

    Raises:
        ConfigError: the YAML cannot be written.
    """
    from splatbatch.cli.commands.compare import attempt_table
    from splatbatch.tasks.attempt_table import attempts_at

    batch = ended.batch
    tried = [task for task in batch.tasks if task.name in ended.run.outcomes]
    for task in tried[:MOST_TABLES]:
        typer.echo(plain(f"{task.name}:"))
        console = open_console()
        console.print(attempt_table(attempts_at(batch, task), console.width))
    kept = save_kept(ended) if save else kept_with_changes(ended)
    if save:
        whose = f"settings saved in {batch.path} for {', '.join(kept)}"
        typer.echo(
            plain(whose if kept else f"settings not saved in {batch.path}: no splat with these settings was kept")
        )
        return
    print_unsaved(batch, kept)


def print_unsaved(batch: Batch, kept: Sequence[str]) -> None:
    """Print how the settings of --set, under which these patches were trained, come into the YAML."""
    if not kept:
        return
    lines = json.dumps(_tree(batch.changes), default=str).replace('"', "")
    for name in kept[:MOST_TABLES]:
        typer.echo(plain(f"To keep these settings, add to the YAML: patches: {{{name}: {lines}}}"))
    print_line(
        "Or run `splatbatch retry PATCH --set … --save` to write them. Otherwise the next training ignores them."
    )


def _tree(changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    tree: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        section, _, setting = key.partition(".")
        tree.setdefault(section, {})[setting] = value
    return tree


def detach(config: Path | None, names: Sequence[str], only: Sequence[str], *, verify: bool) -> None:
    """Start a worker that goes on without us; where one is at work already, leave it at that.

    Raises:
        ConfigError: it is to train under conditions only.
        OutputError: a `train` holds the folder.
        ExecutorError: the worker ended at once; its words say why.
    """
    from splatbatch.run.cluster_workers import ClusterTraining
    from splatbatch.run.detach import DetachedWorker, start_worker

    if only:
        raise ConfigError(
            f"train --detach --only {only[0]}: not supported with workers", "Give names: `splatbatch train p0@base`."
        )
    batch = open_or_begin(config, names, {}, (), print_err)
    if is_elsewhere(batch.config.executor):
        terminal.never_block()
        said = ClusterTraining(batch, verify=verify).start()
        for words in (said, HOW) if said else ("nothing left to train",):
            print_err(words)
        return
    match start_worker(batch, verify=verify):
        case DetachedWorker(log=log, name=""):
            typer.echo(plain(read_tail(log).strip()))
        case DetachedWorker(log=log, name=name):
            print_line(f"worker {name} started; log: {log}")
            print_line(HOW)
        case worker:
            print_line(f"worker {worker.worker} on {worker.host} is already running: nothing was started")
