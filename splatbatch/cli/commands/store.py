"""What machines that share no folder do through a store: `pack`, `adopt`, and `work`, `status`, `cancel` of a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from splatbatch import terminal
from splatbatch.cli.commands.output import print_json
from splatbatch.cli.commands.train import show
from splatbatch.errors import ConfigError
from splatbatch.run import travel
from splatbatch.run.store_worker import work_for
from splatbatch.scene.patches import list_names
from splatbatch.tasks.batch import open_batch
from splatbatch.text import plain, plural
from splatbatch.transfer.schemes import anchored


def pack(config: Path | None, names: Sequence[str], url: str, *, verify: bool, as_json: bool) -> None:
    """Put what is to be trained into a store; exit with 1 if some of it could not be put there."""
    terminal.never_block()
    url = anchored(url, Path.cwd())
    batch = open_batch(config, names)
    done = travel.pack(batch, url, verify=verify)
    if as_json:
        print_json(done)
    else:
        told = {"packed": done.packed, "already trained": done.fresh, "refused by the audit": done.refused}
        told["packed later, once the tasks that they need are adopted"] = done.waiting
        for what, which in told.items():
            if which:
                typer.echo(plain(f"{what}: {list_names(which)}"))
        if done.trained:
            typer.echo(
                plain(f"trained in the store: {list_names(done.trained)}; to adopt, run: splatbatch adopt {url}")
            )
        if done.packed:
            typer.echo(plain(f"to train, run on any machine: splatbatch work {url}"))
    raise typer.Exit(1 if done.refused else 0)


def adopt(config: Path | None, url: str, *, watch: bool) -> None:
    """Bring home what a store holds; exit as `train` does."""
    terminal.never_block()
    batch = open_batch(config)
    raise typer.Exit(travel.adopt(batch, anchored(url, Path.cwd()), show, watch=watch).exit_code)


def work(named: Sequence[str], scratch: Path | None, for_s: float | None, idle_s: float, *, only_builtin: bool) -> None:
    """Train what a store holds."""
    if len(named) > 1:
        raise ConfigError(
            f"work {named[0]} {named[1]}: a worker of a store takes no patch names", "Give the store alone."
        )
    terminal.never_block()
    raise typer.Exit(work_for(named[0], scratch, for_s, idle_s, only_builtin=only_builtin))


def status(url: str, *, as_json: bool) -> None:
    """Print how all that a store holds stands."""
    found = travel.status_of(url)
    if as_json:
        return print_json(found)
    for one in found.bundles:
        step = f", step {one.step} of {one.max_steps}" if one.step is not None else ""
        who = f" by {one.worker}{step}" if one.worker else ""
        often = f"; started {plural(one.claims, 'time')}" if one.claims > 1 else ""
        typer.echo(plain(f"{one.task}: {one.state}{who}{often}"))
    at_work = sum(bool(one.bundle) for one in found.workers)
    typer.echo(
        plain(f"{plural(len(found.bundles), 'bundle')}, {plural(len(found.workers), 'worker')}, {at_work} at work")
    )


def cancel(url: str, names: Sequence[str]) -> None:
    """Close bundles of a store; workers leave them."""
    closed = travel.cancel_in(url, names)
    if not closed:
        typer.echo(plain(f"{url}: the store has no patches to train, nothing to cancel"))
        return
    typer.echo(plain(f"cancelled: {list_names(closed)}; workers stop within seconds"))
