"""The verbs of how good splats are."""

from __future__ import annotations

from typing import Annotated

import typer

from splatbatch.cli.app import all_named, app
from splatbatch.commands import options


@app.command()
def inspect(
    patches: options.PatchArguments = None,
    config: options.ConfigOption = None,
    patch: options.PatchOption = [],
    json_: options.JsonOption = False,
    again: Annotated[bool, typer.Option("--again", help="Also those that have been inspected as they are.")] = False,
) -> None:
    """Say how good accepted splats are beyond PSNR: haze, floaters, needles, holes, photographs that hurt."""
    from splatbatch.commands.quality import inspect as inspecting

    inspecting.inspect(config, all_named(patches, patch), as_json=json_, again=again)
