"""The verbs of how good splats are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from splatbatch.cli.app import app, batch_and_patches
from splatbatch.cli.commands import options


@app.command()
def inspect(
    patches: options.SplatArguments = None,
    config: options.ConfigOption = None,
    json_: options.JsonOption = False,
    again: Annotated[
        bool, typer.Option("--again", help="Inspect again splats that have not changed since their inspection.")
    ] = False,
    measure_drop: Annotated[
        bool,
        typer.Option("--measure-drop", help="Train briefly with and without the photographs that hurt."),
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Only check that certificates still match their splats, settings and files."),
    ] = False,
    file: Annotated[
        Optional[Path],
        typer.Option("--file", metavar="FILE", help="With --check: a certificate.json, with splat.ply beside it."),
    ] = None,
) -> None:
    """Measure quality beyond PSNR: haze, floaters, holes, photographs that hurt."""
    from splatbatch.cli.commands import inspect as inspecting
    from splatbatch.run.inspection import InspectOptions

    if check or file:
        return inspecting.verify(*batch_and_patches(config, patches), file, as_json=json_)
    wish = InspectOptions(again, measure_drop)
    inspecting.inspect(*batch_and_patches(config, patches), wish, as_json=json_)


@app.command("plan-capture")
def plan_capture(
    patches: options.PatchArguments = None,
    config: options.ConfigOption = None,
    to: Annotated[
        Optional[Path],
        typer.Option("--to", metavar="FILE", help="Also write the views to this file: *.geojson or *.kml."),
    ] = None,
    json_: options.JsonOption = False,
) -> None:
    """Plan photographs for weakly covered parts of the scene; run `splatbatch inspect` first."""
    from splatbatch.cli.commands import capture

    capture.plan_capture(*batch_and_patches(config, patches), to, as_json=json_)
