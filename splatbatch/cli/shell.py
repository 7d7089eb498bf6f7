"""The verbs for shells, programs and editors: completion, schemas, the configuration as it is."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from splatbatch.cli.app import app, config_app
from splatbatch.commands import options


@app.command()
def schema(
    command: Annotated[str, typer.Argument(metavar="COMMAND", help="As status, or 'config show'.")],
) -> None:
    """Print the JSON Schema of what a command prints with --json."""
    from splatbatch.commands.shapes.schema import schema_of

    typer.echo(json.dumps(schema_of(command), indent=1))


@app.command()
def completion(shell: Annotated[Literal["bash", "zsh"], typer.Argument(metavar="bash|zsh")]) -> None:
    """Print what makes a shell complete commands, options and patches: source it."""
    from splatbatch.cli.completion import script

    typer.echo(script(shell), nl=False)


@app.command(hidden=True)
def names(config: options.ConfigOption = None) -> None:
    """Print the names of all patches, for shells that complete them."""
    from splatbatch.commands.shell.names import print_names

    print_names(config)


@config_app.command("show")
def config_show(
    patch: options.ShownPatchArgument = "",
    config: options.ConfigOption = None,
    named: options.OnePatchOption = "",
    json_: options.JsonOption = False,
) -> None:
    """Print the resolved configuration, or what trains one patch."""
    from splatbatch.commands import look

    look.config_show(config, patch or named, as_json=json_)


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON Schema of the YAML, for editors."""
    from splatbatch.config import json_schema

    typer.echo(json.dumps(json_schema(), indent=1))
