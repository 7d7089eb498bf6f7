"""The verbs of the whole scene: measured, and made in one go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from splatbatch.cli.app import app
from splatbatch.commands import options

SplatOption = Annotated[
    Optional[Path],
    typer.Option("--splat", metavar="FILE", help="Any 3DGS PLY in the frame of the scene; else the merged one."),
]


@app.command()
def evaluate(config: options.ConfigOption = None, splat: SplatOption = None, json_: options.JsonOption = False) -> None:
    """Measure the merged scene on held-out photographs, and where its patches meet."""
    from splatbatch.commands.scene import evaluate as evaluating

    evaluating.evaluate(config, splat, as_json=json_)
