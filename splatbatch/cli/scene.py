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


@app.command()
def scene(
    source: options.SourceOption,
    images: options.ImagesOption = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Patches, YAML and output go there.")] = Path(
        "scene"
    ),
    max_images: options.MaxImagesOption = None,
    overlap: options.OverlapOption = 0.15,
    grid: options.GridOption = "",
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Merge even if patches are missing; there are holes then.")
    ] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Leave out Gaussians that are invisible, oversized or float.")
    ] = False,
    settings: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="KEY=VALUE", help="After --: settings of the YAML, as training.max_steps=7000."),
    ] = None,
) -> None:
    """Split, train, merge and evaluate a COLMAP scene in one go; run it again, and it goes on where it ended."""
    from splatbatch.commands.scene import scene as whole
    from splatbatch.commands.scene import split as splitting
    from splatbatch.night.scene import SceneOptions

    cuts = splitting.options_for(splitting.Cuts(max_images, overlap, grid, None, ""), 0.0, 0)
    wanted = SceneOptions(source, images, out, cuts, tuple(settings or ()), allow_missing, clean)
    whole.scene(wanted)
