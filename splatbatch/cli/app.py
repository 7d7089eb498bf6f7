"""The command line as a whole: its name, its version, and how patches are named on it."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from splatbatch.errors import ConfigError

app = typer.Typer(
    help="Train one Gaussian splat per patch of a big COLMAP reconstruction, overnight, unattended.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
config_app = typer.Typer(help="Look at the configuration.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(config_app, name="config")


def _print_version(wanted: bool) -> None:
    if wanted:
        from splatbatch import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def before(version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False) -> None:
    """Train one Gaussian splat per patch of a big COLMAP reconstruction, overnight, unattended."""


def all_named(arguments: Optional[list[str]], options: list[str]) -> list[str]:
    """Return the patches that were named, either way."""
    return [*(arguments or []), *options]


def the_one(argument: Optional[str], option: str) -> str:
    """Return the one patch that was named, either way."""
    if not (name := argument or option):
        raise ConfigError("no patch named", "Name one, as p5.")
    return name
