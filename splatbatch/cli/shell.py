"""The verbs for programs and editors: schemas, the configuration as it is."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from splatbatch.cli.app import app, batch_and_patches, config_app, the_one
from splatbatch.cli.commands import options


@app.command()
def schema(
    command: Annotated[
        str, typer.Argument(metavar="COMMAND", help="Command, such as status or 'config show'.", show_default=False)
    ] = "",
) -> None:
    """Print the JSON Schema of the YAML, or of the --json output of a command."""
    from splatbatch.cli.commands.schema import schema_of

    typer.echo(json.dumps(schema_of(command or "config show"), indent=1))


@config_app.command("show")
def config_show(
    patch: options.ShownPatchArgument = None,
    config: options.ConfigOption = None,
    json_: options.JsonOption = False,
) -> None:
    """Print the resolved configuration, or the settings of one patch."""
    from splatbatch.cli.commands import overview

    config, chosen = batch_and_patches(config, patch)
    overview.config_show(config, the_one(chosen) if chosen else "", as_json=json_)
