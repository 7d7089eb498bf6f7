"""The commands that train, here or through a store: `train`, `retry`, `work`, `cancel`, `pack`, `adopt`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

from typer import Argument, BadParameter, Exit, Option

from splatbatch import terminal
from splatbatch.cli.app import app, is_store, open_folder
from splatbatch.cli.options import (
    ConfigOption,
    JsonOption,
    NoVerifyOption,
    OnlyOption,
    PatchArguments,
    SetOption,
    WorkedArguments,
    named,
)
from splatbatch.cli.stdout import print_facts, print_line, print_text
from splatbatch.errors import ConfigError
from splatbatch.groups import grouped
from splatbatch.text import one_line, seconds_of

if TYPE_CHECKING:
    from splatbatch.run.context import RunSummary
    from splatbatch.run.travel import PackOutput
    from splatbatch.tasks.batch import Batch
    from splatbatch.tasks.status import PatchStatus

TRAINING = "splatbatch.training"
NAMES_ANOTHER = re.compile(rb"\b(trainers?|engine)\b")
MOST_TABLES = 5
MOST_ITEMS, MOST_NAMED = 8, 8
HOW = "`splatbatch status --watch` shows the progress, `splatbatch cancel` stops training"


@app.command()
def train(
    patches: Annotated[
        list[str],
        named(
            "PATCH|FOLDER",
            "Only these patches, such as p5 p7; or the folder of a scene, whose YAML is written if missing.",
        ),
    ] = [],
    config: ConfigOption = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would be trained without training.")] = False,
    no_verify: NoVerifyOption = False,
    only: OnlyOption = [],
    set_: SetOption = [],
    detached: Annotated[bool, Option("--detach", help="Train in the background and return.")] = False,
) -> None:
    """Train every patch that is not trained yet, or whose settings or inputs have changed."""
    if not (dry_run or detached):
        load_training(config)
    from splatbatch.cli.checks import print_plan
    from splatbatch.config import parse_changes
    from splatbatch.monitor.messages import print_err
    from splatbatch.run.decide import TrainOptions
    from splatbatch.run.prepare import open_or_init
    from splatbatch.run.retry import kept_with_changes
    from splatbatch.run.train import is_elsewhere
    from splatbatch.run.train import train as run

    batch = open_or_init(config, patches, parse_changes(set_), only, print_err, writes=not dry_run)
    if dry_run:
        return print_plan(batch)
    if detached or is_elsewhere(batch.config.executor):
        if only:
            raise ConfigError(
                f"train --only {only[0]}: not supported with workers",
                f"Name the patches: splatbatch train {batch.names[0]} …",
            )
        if set_:
            raise ConfigError(
                f"train --set {set_[0]}: workers take settings from the YAML only", "Write the setting into the YAML."
            )
    if detached:
        return detach(batch, verify=not no_verify)
    terminal.never_block()
    ended = run(batch, TrainOptions(verify=not no_verify), show)
    print_unsaved(batch, kept_with_changes(ended))
    raise Exit(ended.exit_code)


def load_training(config: Path | None) -> None:
    """Begin to load splatbatch's own trainer in a background process, while modules are imported and files are read.

    Nothing is loaded if the text of the YAML names a trainer or an engine, or cannot be read. `config` is the value of
    --config; None: the default YAML.
    """
    from splatbatch.files import MIB, read_regular
    from splatbatch.machine import supervisors

    try:
        text = read_regular(config or Path(os.environ.get("SPLATBATCH_CONFIG") or "splat_config.yml"), MIB)
    except OSError:
        return
    if not NAMES_ANOTHER.search(text):
        supervisors.start_ahead(TRAINING)


def detach(batch: Batch, *, verify: bool) -> None:
    """Start a background worker, or request workers if the YAML names an engine; print what was started, and return.

    If workers are already running, none is started.

    Raises:
        ConfigError: the YAML came from standard input.
        OutputError: a `train` holds the folder, or the folder cannot be made.
        ExecutorError: the worker ended at once, with the end of its log, or did not start; or the engine refuses the
            workers.
    """
    from splatbatch.files import read_tail
    from splatbatch.monitor.messages import print_err
    from splatbatch.run.cluster_workers import ClusterTraining
    from splatbatch.run.detach import start_worker
    from splatbatch.run.train import is_elsewhere

    if is_elsewhere(batch.config.executor):
        terminal.never_block()
        said = ClusterTraining(batch, verify=verify).start()
        for words in (said, HOW) if said else ("nothing left to train",):
            print_err(words)
        return
    match start_worker(batch, verify=verify):
        case (log, ""):
            print_text(read_tail(log).strip())
        case (log, name):
            print_line(f"worker {name} started; log: {log}")
            print_line(HOW)
        case worker:
            print_line(f"worker {worker.worker} on {worker.host} is already running: nothing was started")


@app.command()
def retry(
    patches: PatchArguments = [],
    config: ConfigOption = None,
    patch: Annotated[list[str], Option("--patch", "-p", metavar="NAME", help="Same as PATCH; repeatable.")] = [],
    failed: Annotated[bool, Option("--failed", help="Retry all patches that failed.")] = False,
    set_: SetOption = [],
    force: Annotated[bool, Option("--force", help="Train again even patches that are up to date.")] = False,
    save: Annotated[bool, Option("--save", help="Write the --set settings of kept splats into the YAML.")] = False,
) -> None:
    """Train the given patches again, or all failed ones, optionally with --set; the better splat is kept."""
    from splatbatch.config import parse_changes
    from splatbatch.run.context import status
    from splatbatch.run.decide import TrainOptions
    from splatbatch.run.retry import TO_RETRY, check_due, check_savable
    from splatbatch.run.train import train as run
    from splatbatch.tasks.batch import named_batch, open_batch

    config, names = named_batch(config, [*patches, *patch])
    batch = open_batch(config, names, parse_changes(set_))
    if save:
        check_savable(batch)
    if failed:
        batch = batch.only(one.patch for one in status(batch) if one.state in TO_RETRY)
        if not batch.tasks:
            return print_line("no failed patch to retry", err=True)
    elif not names:
        raise ConfigError(
            "retry: no patch given", "Run `splatbatch retry p5`, or `splatbatch retry --failed` for all failed patches."
        )
    if not force:
        check_due(batch)
    terminal.never_block()
    ended = run(batch, TrainOptions(force=force or bool(set_), is_retry=True), show)
    print_retried(ended, save=save)
    raise Exit(ended.exit_code)


def seconds(words: str) -> float | None:
    """Return the seconds of "3h30m", "90m", "45s" or "5400"; None for an empty text, as of an unset variable.

    Raises:
        BadParameter: the text is not a duration.
    """
    if (found := seconds_of(words)) is None and words:
        raise BadParameter(f"{words}: not a duration. Write it as 3h30m, 90m or 45s.")
    return found


@app.command()
def work(
    patches: WorkedArguments = [],
    config: ConfigOption = None,
    for_s: Annotated[
        Optional[float],
        Option(
            "--for", metavar="TIME", parser=seconds, help="Start only patches that finish in this time, such as 3h30m."
        ),
    ] = None,
    no_verify: NoVerifyOption = False,
    idle_s: Annotated[
        Optional[float],
        Option(
            "--idle", metavar="TIME", parser=seconds, help="With a store: wait this long for new patches, such as 10m."
        ),
    ] = None,
    scratch: Annotated[
        Optional[Path], Option(metavar="DIR", help="With a store: train here instead of in /tmp.")
    ] = None,
    only_builtin: Annotated[
        bool, Option("--only-builtin", help="With a store: skip patches that run commands from the store.")
    ] = False,
) -> None:
    """Run one of several workers that share an output folder or a store."""
    from splatbatch.config import near
    from splatbatch.run.decide import TrainOptions
    from splatbatch.run.worker import open_as_worker
    from splatbatch.run.worker import work as run

    terminal.never_block()
    if only_builtin and not patches:
        raise ConfigError("work --only-builtin: no store given", "Run `splatbatch work STORE --only-builtin`.")
    if not patches or not (is_store(patches[0]) or idle_s is not None or scratch or only_builtin):
        raise Exit(run(open_as_worker(config, patches), for_s, TrainOptions(verify=not no_verify), show))
    if patches[1:]:
        raise ConfigError(
            f"work {patches[0]} {patches[1]}: a worker of a store takes no patch names", "Give the store alone."
        )
    if os.sep not in patches[0] and not Path(patches[0]).is_dir():  # a path may be made later, by `pack` or `train`
        raise ConfigError(f"work {patches[0]}: no such store", near(Path(patches[0])))
    from splatbatch.run.store_worker import work_for

    raise Exit(work_for(patches[0], scratch, for_s, idle_s or 0.0, only_builtin=only_builtin))


@app.command()
def cancel(patches: WorkedArguments = [], config: ConfigOption = None) -> None:
    """Stop the running batch, here or on another host, or some of its patches; their state becomes stopped."""
    from splatbatch.run.cancel import cancel as run
    from splatbatch.run.travel import cancel_in
    from splatbatch.scene.patches import list_names
    from splatbatch.tasks.batch import named_batch
    from splatbatch.tasks.status import summary

    if patches and is_store(patches[0]):
        closed = list_names(cancel_in(patches[0], patches[1:]))
        return print_line(
            f"cancelled: {closed}; workers stop within seconds"
            if closed
            else f"{patches[0]}: the store has no patches to train, nothing to cancel"
        )
    done = run(*named_batch(config, patches))
    if not done.was_running:
        return print_line(f"{done.output.path}: no batch is running, nothing to cancel")
    for one in done.statuses if done.patches else ():
        print_line(f"{one.patch}: {one.why}")
    print_line(f"cancelled. {'Given patches' if done.patches else 'Batch'}: {summary(done.statuses)}")


@app.command()
def pack(
    to: Annotated[str, Option(metavar="STORE", help="Store: a folder, ssh://host/path or s3://bucket/prefix.")],
    patches: PatchArguments = [],
    config: ConfigOption = None,
    json_: JsonOption = False,
) -> None:
    """Pack the patches that need training into a store, for workers that do not share the output folder."""
    from functools import partial

    from splatbatch.run import travel
    from splatbatch.tasks.batch import open_batch
    from splatbatch.transfer.schemes import absolute_url

    terminal.never_block()
    url = absolute_url(to, Path.cwd())
    done = travel.pack(open_batch(config, patches), url)
    print_facts(done, partial(show_packed, url=url), as_json=json_)
    raise Exit(1 if done.refused else 0)


def show_packed(done: PackOutput, url: str) -> None:
    """Print what was packed, what was not and why, and what to run next with the store at `url`."""
    from splatbatch.scene.patches import list_names

    lines = {
        "packed": done.packed,
        "already trained": done.fresh,
        "refused by the audit of photographs and cameras": done.refused,
        "packed later, once the splats that they need are adopted": done.waiting,
    }
    for what, names in lines.items():
        if names:
            print_line(f"{what}: {list_names(names)}")
    if done.trained:
        print_line(f"trained in the store: {list_names(done.trained)}; to adopt, run: splatbatch adopt {url}")
    if done.packed:
        print_line(f"to train, run on any machine: splatbatch work {url}")


@app.command()
def adopt(
    names: Annotated[
        list[str],
        Argument(
            metavar="[FOLDER] STORE",
            help="Store: a folder, ssh://host/path or s3://bucket/prefix. FOLDER: folder of the batch.",
            show_default=False,
        ),
    ],
    config: ConfigOption = None,
    watch: Annotated[bool, Option("--watch", "-w", help="Keep running until no worker trains from the store.")] = False,
) -> None:
    """Fetch trained splats from a store; accept each one that matches the current settings and inputs."""
    from splatbatch.run import travel
    from splatbatch.transfer.schemes import absolute_url

    terminal.never_block()
    batch = open_folder(config, names[0] if names[1:] else None)
    if names[2:] or not is_store(names[-1]):
        raise ConfigError(
            f"adopt {' '.join(names)}: {'too many arguments' if names[2:] else 'no such store'}",
            "Run `splatbatch adopt [FOLDER] STORE`.",
        )
    raise Exit(travel.adopt(batch, absolute_url(names[-1], Path.cwd()), show, watch=watch).exit_code)


def show(made: Any) -> None:
    """Print the product of a follow-up, or the summary of a run, by its type; other types print nothing."""
    from splatbatch.output.records.evaluation import SceneEvaluation
    from splatbatch.output.records.merge import MergeOutput
    from splatbatch.output.records.publication import Publication
    from splatbatch.output.records.run import FollowUpResult
    from splatbatch.run.context import RunSummary

    match made:
        case MergeOutput():
            from splatbatch.cli.products import show_merge

            show_merge(made)
        case SceneEvaluation():
            from splatbatch.cli.quality import show_evaluation

            show_evaluation(made)
        case Publication():
            from splatbatch.cli.products import show_publication

            show_publication(made)
        case FollowUpResult():
            words = f"{made.words}; to run again: {made.command}" if made.command else made.words
            print_line(words, err=not made.is_done)
        case RunSummary():
            show_run(made)


def show_run(ended: RunSummary) -> None:
    """Print the summary of a run: how many patches are trained, to-do items, the report, and the follow-ups.

    An interruption is named first, and before the report a note on the offset of the scene, if there is one. Of the
    to-do items the first `MOST_ITEMS` are printed.
    """
    from splatbatch.output.records.frame import Frame
    from splatbatch.scene.patches import list_names
    from splatbatch.tasks.shared_decisions.frame import note

    batch = ended.batch
    print_line(_summary_of(ended))
    for item in ended.todo[:MOST_ITEMS]:
        who = f"{list_names(item.patches, MOST_NAMED)}: " if item.patches else ""
        what = one_line(f"{'to do' if item.kind == 'do' else 'worth a look'}: {who}{item.what}")
        print_text(f"{what}\n    {item.command}")
    if told := note(Frame.read(batch.output.frame), (task.patch.name for task in batch.every)):
        print_line(told)
    print_line(f"report: {batch.output.report('html')}")
    for one in ended.afterwards:
        show(one)


def _summary_of(ended: RunSummary) -> str:
    """Return how many requested patches are trained; after an interruption print which earlier splats are kept."""
    from splatbatch.tasks.status import summary

    requested, done, statuses = ended.requested, ended.done, ended.statuses
    undone = [one for one in requested if one not in done]
    if ended.run.stopped:
        kept = ", ".join(one.patch for one in undone if one.splat)
        print_line(f"interrupted ({ended.run.stopped}){f'; the earlier splat of {kept} is kept' if kept else ''}")
    if len(requested) < len(statuses):
        return f"{_tally(done, requested, 'requested ')} trained. Whole batch: {summary(statuses)}"
    if earlier := ", ".join(one.patch for one in undone if one.state == "trained"):
        return f"{_tally(done, requested)} trained; earlier splat kept: {earlier}"
    return summary(statuses)


def _tally(done: Sequence[PatchStatus], of: Sequence[PatchStatus], which: str = "") -> str:
    from splatbatch.tasks.counts import count_patches, words_for

    is_done = {one.patch: one in done for one in of}
    words = words_for(is_done)
    return count_patches(is_done, f"{which}{words.one}{words.plural}")


def print_retried(ended: RunSummary, *, save: bool) -> None:
    """Print the attempts at retried patches; with `save` write the settings of kept splats into the YAML.

    Only the first `MOST_TABLES` patches are printed. Without `save`, print how to keep these settings.

    Raises:
        ConfigError: the YAML cannot be written.
        LaterFormatError: a later version of splatbatch wrote the record of a splat.
    """
    from splatbatch.cli.status import print_attempts
    from splatbatch.config.yaml.edit import save_settings
    from splatbatch.run.explain import attempts_at
    from splatbatch.run.retry import kept_with_changes

    batch = ended.batch
    for task in [task for task in batch.tasks if task.name in ended.run.outcomes][:MOST_TABLES]:
        print_line(f"{task.name}:")
        print_attempts(attempts_at(task))
    kept = kept_with_changes(ended)
    if not save:
        return print_unsaved(batch, kept)
    for name in kept:
        save_settings(batch.path, batch.changes, name)
    nothing = f"settings not saved in {batch.path}: no splat with these settings was kept"
    print_line(f"settings saved in {batch.path} for {', '.join(kept)}" if kept else nothing)


def print_unsaved(batch: Batch, kept: Sequence[str]) -> None:
    """Print how to write the settings of --set into the YAML, for patches whose new splats were kept.

    Only the first `MOST_TABLES` patches are named. Nothing is printed if `kept` is empty.
    """
    if not kept:
        return
    parts = ((key.partition("."), json.dumps(value, default=str)) for key, value in batch.changes.items())
    sections = grouped((section, f"{setting}: {value}") for (section, _, setting), value in parts)
    lines = ", ".join(f"{name}: {{{', '.join(settings)}}}" for name, settings in sections.items()).replace('"', "")
    for name in kept[:MOST_TABLES]:
        print_text(f"To keep these settings, add to the YAML: patches: {{{name}: {{{lines}}}}}")
    print_line(
        "Or run `splatbatch retry PATCH --set … --save` to write them. Otherwise the next training ignores them."
    )
