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
    from splatbatch import config as configuration
    from splatbatch.cli.commands.output import print_json
    from splatbatch.tasks.batch import open_batch

    config, chosen = batch_and_patches(config, patch)
    if chosen:
        batch = open_batch(config, [name := the_one(chosen)])
        own = [task.recipe for task in batch.tasks if task.name == name]  # none: a patch, whatever the sweep says
        shown: configuration.Config | configuration.Recipe = own[0] if own else batch.config.recipe(name)
    else:  # nothing has to be there for it
        shown = configuration.load(configuration.find_config(config))
    if json_:
        return print_json(shown.model_dump(mode="json"))
    typer.echo(configuration.to_yaml(shown), nl=False)
    return None
