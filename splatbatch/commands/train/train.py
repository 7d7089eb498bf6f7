"""`train`, `retry` and `work`: the commands that train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from splatbatch import config as configuration
from splatbatch import terminal
from splatbatch.commands.look import print_plan
from splatbatch.commands.output import print_warnings
from splatbatch.commands.train.summary import print_retried, show
from splatbatch.errors import ConfigError
from splatbatch.night.afterwards import After, publish_as_asked
from splatbatch.night.decided import Wish
from splatbatch.night.elsewhere import is_elsewhere
from splatbatch.night.retry import check_savable, failed_only, see_due
from splatbatch.night.training import train as train_batch
from splatbatch.night.work import open_as_worker
from splatbatch.night.work import work as work_on
from splatbatch.tasks.batch import open_batch


def dry_run(config: Path | None, names: Sequence[str], only: Sequence[str]) -> None:
    """Say what would be trained."""
    print_plan(open_batch(config, names, conditions=only), as_json=False)


def train(
    config: Path | None, names: Sequence[str], only: Sequence[str], *, verify: bool, after: After = publish_as_asked
) -> None:
    """Train what is not trained, and do what follows; exit with 0 if every patch is trained, with 1 if not."""
    batch = open_batch(config, names, conditions=only)
    if only and is_elsewhere(batch.config.executor):
        raise ConfigError(f"train --only {only[0]}: workers take patches by name", "Name them: p0@base …")
    terminal.never_block()
    print_warnings(batch.config.warnings)
    raise typer.Exit(train_batch(batch, Wish(verify=verify), show, after).exit_code)


@dataclass(frozen=True)
class RetryOptions:
    """What `retry` was asked."""

    failed: bool
    assignments: tuple[str, ...]
    force: bool
    only: tuple[str, ...] = ()
    save: bool = False
    """Write the settings into the YAML."""


def retry(config: Path | None, names: Sequence[str], options: RetryOptions) -> None:
    """Train named or failed patches again.

    Raises:
        ConfigError: no patch is named, or a named one is trained and fresh, and no setting would change.
    """
    changes = dict(configuration.parse_change(assignment) for assignment in options.assignments)
    batch = open_batch(config, names, changes, options.only)
    if options.save:
        check_savable(batch)
    if options.failed:
        batch = failed_only(batch)
        if not batch.tasks:
            typer.echo("no failed patch to retry", err=True)
            return
    elif not names and not options.only:
        raise ConfigError("retry: no patch named", "Name one, as retry p5, or take all failed ones with --failed.")
    if not options.force:
        see_due(batch)
    terminal.never_block()
    print_warnings(batch.config.warnings)
    ended = train_batch(batch, Wish(force=options.force or bool(changes), is_retry=True), show)
    print_retried(ended, save=options.save)
    raise typer.Exit(ended.exit_code)


def work(config: Path | None, names: Sequence[str], for_s: float | None, *, verify: bool) -> None:
    """Train what nobody else does, until nothing is left, the time is up, or somebody says stop."""
    terminal.never_block()
    batch = open_as_worker(config, names)
    print_warnings(batch.config.warnings)
    raise typer.Exit(work_on(batch, for_s, Wish(verify=verify), show))
