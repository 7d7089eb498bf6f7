"""The options of the commands: imports nothing that takes time, so that --help is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import typer


def patches_in(ctx: Any, incomplete: str) -> list[str]:
    """Return the patches of the batch that begin so, for a shell that completes them; none where there is no batch."""
    from splatbatch.errors import SplatbatchError
    from splatbatch.tasks.batch import open_batch
    from splatbatch.text import one_line

    try:
        names = open_batch(ctx.params.get("config")).names
    except (SplatbatchError, OSError):
        return []
    return [one_line(name) for name in names if name.startswith(incomplete)]


def named(metavar: str, words: str) -> Any:
    """Return an argument that names patches, or what may stand in their place."""
    return typer.Argument(autocompletion=patches_in, metavar=metavar, help=words, show_default=False)


ConfigOption = Annotated[
    Optional[Path],
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="YAML file or its folder, which can also precede the patches; - reads standard input. "
        "Default: $SPLATBATCH_CONFIG, or splat_config.yml.",
    ),
]
BatchArgument = Annotated[
    Optional[str],
    typer.Argument(metavar="FOLDER", help="Folder of the batch, or its YAML; same as --config.", show_default=False),
]
PatchOption = Annotated[list[str], typer.Option("--patch", "-p", metavar="NAME", help="Same as PATCH; repeatable.")]
PatchArguments = Annotated[Optional[list[str]], named("PATCH", "Only these patches, such as p5 p7.")]
WorkedArguments = Annotated[
    Optional[list[str]],
    named("PATCH|STORE", "Only these patches, such as p5 p7; or a store: ssh://…, s3://… or a folder."),
]
AdoptedArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="[FOLDER] STORE",
        help="Store: a folder, ssh://host/path or s3://bucket/prefix. FOLDER: folder of the batch.",
        show_default=False,
    ),
]
ToStoreOption = Annotated[
    str, typer.Option("--to", metavar="STORE", help="Store: a folder, ssh://host/path or s3://bucket/prefix.")
]
TrainedArguments = Annotated[
    Optional[list[str]],
    named(
        "PATCH|FOLDER",
        "Only these patches, such as p5 p7; or the folder of a scene, whose YAML is written if missing.",
    ),
]
SplatArguments = Annotated[
    Optional[list[str]], named("PATCH|scene", "Only these patches, such as p5 p7; or scene for the merged splat.")
]
OnlyOption = Annotated[
    list[str], typer.Option("--only", metavar="WHAT=NAME", help="Only variant=NAME or patch=NAME; * matches anything.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
SetOption = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as training.init_scale=0.3.")
]
OnePatchArgument = Annotated[Optional[list[str]], named("PATCH", "Name of a patch, such as p5.")]
ExplainedArgument = Annotated[
    Optional[list[str]], named("PATCH|LOGFILE", "Name of a patch, such as p5; or the log file of any training.")
]
ShownPatchArgument = Annotated[Optional[list[str]], named("PATCH", "Show the settings of this patch, such as p5.")]
AcceptedOption = Annotated[
    int, typer.Option("--attempt", "-a", metavar="N", min=1, help="Number of the attempt, as listed by `compare`.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be removed without removing anything.")]
FixOption = Annotated[
    str, typer.Option("--fix", metavar="HOW", help="Write corrected models to --out; HOW is scale or crop.")
]
ColorsOption = Annotated[
    bool, typer.Option("--colors", help="Decode the photographs and list those that differ in brightness or tint.")
]
FixedOption = Annotated[Optional[Path], typer.Option("--out", metavar="DIR", help="Folder for the corrected models.")]
AttemptOption = Annotated[
    int,
    typer.Option(
        "--attempt", "-a", metavar="N", help="Number of the attempt; default: the latest.", show_default=False
    ),
]
ExitCodeOption = Annotated[
    Optional[int], typer.Option("--exit-code", metavar="N", help="Exit code of the program; -9 or 137 means killed.")
]
PortOption = Annotated[
    int,
    typer.Option("--port", metavar="N", min=1, max=65535, help="Port to serve on; if it is taken, the next free port."),
]
PublishedArguments = Annotated[
    Optional[list[str]],
    named("PATCH|scene", "Patches to publish, or scene; default: the merged scene if it exists, else all patches."),
]
ViewedArguments = Annotated[
    Optional[list[str]], named("PATCH|scene", "Patches, such as p5; or scene for the merged splat.")
]
PublishedToOption = Annotated[
    Optional[Path],
    typer.Option(
        "--to",
        metavar="FOLDER|FILE",
        help="Folder to write to, or file for one PLY or film; default: publish.folder of the YAML.",
    ),
]
PublishedAsOption = Annotated[
    str,
    typer.Option(
        "--as",
        metavar="FORMATS",
        show_default=False,
        help="Comma-separated: ply, compressed, sog, streamed, spz, glb, tiles, html; or one of mp4, mkv, webm, gif.",
    ),
]
DegreeOption = Annotated[
    Optional[int],
    typer.Option(
        "--sh-degree", metavar="N", min=0, max=3, help="For a PLY: drop spherical harmonics above this degree."
    ),
]
FrameOption = Annotated[
    Literal["local", "source"],
    typer.Option(help="For a PLY: local coordinates, as trained, or source coordinates, with the offset added."),
]
OpacityOption = Annotated[
    float,
    typer.Option(
        "--min-opacity",
        metavar="X",
        min=0,
        max=0.99,
        show_default=False,
        help="For a PLY: drop Gaussians with an opacity below this.",
    ),
]
PhotographsOption = Annotated[
    Optional[Path], typer.Option("--images", metavar="DIR", help="Folder of the photographs, if not with the source.")
]
PointsOption = Annotated[
    Optional[Path],
    typer.Option("--points", metavar="FILE", help="PLY file with points, in the coordinates of the source."),
]
WithinOption = Annotated[
    float, typer.Option("--within-s", metavar="S", min=1, help="Time limit for triangulating points, in seconds.")
]
ExampleOption = Annotated[
    Optional[Literal["night", "cpu", "sweep", "scenes"]],
    typer.Option("--example", metavar="night|cpu|sweep|scenes", help="Write this example; ignore what DIR contains."),
]
ConfigPathOption = Annotated[
    Optional[Path], typer.Option("--out", metavar="FILE", help="File to write; default: DIR/splat_config.yml.")
]
SourceOption = Annotated[
    Path, typer.Option("--source", metavar="DIR", help="COLMAP model to split, such as sparse/0; binary or text.")
]
PatchesOption = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Folder for the patches: new, or made by an earlier split.")
]
ImagesOption = Annotated[
    Optional[Path], typer.Option("--images", metavar="DIR", help="Photographs; default: images beside the model.")
]
MaxImagesOption = Annotated[
    Optional[int],
    typer.Option("--max-images", metavar="N", min=1, help="Maximum number of photographs in a patch; default: 400."),
]
OverlapOption = Annotated[
    float,
    typer.Option("--overlap", metavar="X", help="Overlap of patches beyond their core, as a fraction of its width."),
]
GridOption = Annotated[
    str,
    typer.Option(
        "--grid", metavar="AxB", show_default=False, help="Split into A rows along the longest side, B patches each."
    ),
]
BoxesOption = Annotated[
    Optional[Path],
    typer.Option("--boxes", metavar="FILE", help="JSON file with the boxes of the patches, or a partition.json."),
]
AxisOption = Annotated[
    str,
    typer.Option(
        "--axis",
        metavar="X,Y,Z",
        show_default=False,
        help="Direction that is not split, such as up; default: where camera positions vary least.",
    ),
]
BlockOption = Annotated[
    float,
    typer.Option(
        "--holdout-block",
        metavar="X",
        show_default=False,
        help="Fraction of the photographs to hold out as one block, for evaluation.holdout: contiguous.",
    ),
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="Random seed for the place of the held-out block.")
]
PictureOption = Annotated[
    Optional[Path], typer.Option("--picture", metavar="FILE", help="Draw the patches as .svg, also in a dry run.")
]
