"""The verbs of the whole scene: measured, and made in one go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from splatbatch.cli.app import app, the_batch
from splatbatch.cli.commands import options

SplatOption = Annotated[
    Optional[Path],
    typer.Option("--splat", metavar="FILE", help="3DGS PLY in scene coordinates; default: the merged splat."),
]


@app.command()
def evaluate(
    folder: options.BatchArgument = None,
    config: options.ConfigOption = None,
    splat: SplatOption = None,
    json_: options.JsonOption = False,
) -> None:
    """Measure the merged scene on held-out photographs and at the seams of patches."""
    from splatbatch.cli.commands.scene import evaluate as evaluating

    evaluating.evaluate(the_batch(config, folder), splat, as_json=json_)


@app.command()
def reconstruct(
    photographs: Annotated[Path, typer.Argument(metavar="PHOTOS", help="Folder of the photographs.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for sparse/0 and images/.")] = Path(
        "reconstructed"
    ),
    camera: Annotated[
        str, typer.Option("--camera", metavar="MODEL", help="COLMAP camera model; auto decides by EXIF.")
    ] = "auto",
    rig: Annotated[
        str,
        typer.Option(
            "--rig", metavar="A,B", help="Folders of a rig with the same file names in each; A is the reference."
        ),
    ] = "",
    mapper: Annotated[
        str, typer.Option("--mapper", metavar="HOW", help="COLMAP mapper: incremental, global or auto.")
    ] = "auto",
    pairs: Annotated[
        str, typer.Option("--pairs", metavar="HOW", help="Image pairs to match: gps, sequence, all or auto.")
    ] = "auto",
    features: Annotated[
        int, typer.Option("--features", metavar="N", min=128, max=65536, help="Maximum features per photograph.")
    ] = 4096,
    threads: Annotated[
        Optional[int], typer.Option("--threads", metavar="N", min=1, help="CPU threads; default: all cores.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the stages and their estimated time without running.")
    ] = False,
    json_: options.JsonOption = False,
) -> None:
    """Reconstruct a COLMAP model from photographs; run again to resume, or several times to share the work."""
    from splatbatch.cli.commands import reconstruct as reconstructing
    from splatbatch.run.reconstruct import ReconstructOptions, wanted_of

    wanted = wanted_of(camera, rig, mapper, pairs, features)
    asked = ReconstructOptions(photographs, out, wanted, threads)
    reconstructing.run(asked, dry_run=dry_run, as_json=json_)


@app.command()
def scene(
    source: Annotated[
        Optional[Path],
        typer.Option("--source", metavar="DIR", help="COLMAP model, such as sparse/0; default: reconstruct --images."),
    ] = None,
    images: options.ImagesOption = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for patches, YAML and output.")] = Path(
        "scene"
    ),
    max_images: options.MaxImagesOption = None,
    overlap: options.OverlapOption = 0.15,
    grid: options.GridOption = "",
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Merge even if patches are missing, with holes.")
    ] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Remove invisible, oversized and floating Gaussians.")] = False,
    settings: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="KEY=VALUE", help="Settings of the YAML, after --, such as training.max_steps=7000."),
    ] = None,
) -> None:
    """Split, train, merge and evaluate a COLMAP scene or photographs in one run; run again to resume."""
    from splatbatch.cli.commands.scene import scene as whole
    from splatbatch.cli.commands.scene import split as splitting
    from splatbatch.run.scene import SceneOptions

    cuts = splitting.options_for(max_images, overlap, grid, None, "", 0.0, 0)
    wanted = SceneOptions(source, images, out, cuts, tuple(settings or ()), allow_missing, clean)
    whole.scene(wanted)
