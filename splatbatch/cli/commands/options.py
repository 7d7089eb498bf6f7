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
        help="The YAML, or its folder, which may also stand before patches; -: standard input. "
        "Else $SPLATBATCH_CONFIG, else splat_config.yml.",
    ),
]
BatchArgument = Annotated[
    Optional[str],
    typer.Argument(metavar="FOLDER", help="Of the batch, or its YAML; as --config.", show_default=False),
]
PatchOption = Annotated[  # the older way to name patches, taken still
    list[str], typer.Option("--patch", "-p", metavar="NAME", hidden=True)
]
PatchArguments = Annotated[Optional[list[str]], named("PATCH", "Only these patches, as p5 p7.")]
WorkedArguments = Annotated[
    Optional[list[str]],
    named("PATCH|STORE", "Only these patches, as p5 p7; or a store: ssh://…, s3://… or its folder."),
]
AdoptedArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="[FOLDER] STORE",
        help="A folder, ssh://host/path or s3://bucket/prefix; before it the folder of the batch.",
        show_default=False,
    ),
]
ToStoreOption = Annotated[
    str, typer.Option("--to", metavar="STORE", help="A folder, ssh://host/path or s3://bucket/prefix.")
]
TrainedArguments = Annotated[
    Optional[list[str]],
    named(
        "PATCH|FOLDER",
        "Only these patches, as p5 p7; or the folder of a scene, whose YAML is written where it has none.",
    ),
]
SplatArguments = Annotated[Optional[list[str]], named("PATCH|scene", "Only these patches, as p5 p7; or scene.")]
OnlyOption = Annotated[
    list[str], typer.Option("--only", metavar="WHAT=NAME", help="Only variant=NAME or patch=NAME; * for anything.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
SetOption = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as training.init_scale=0.3.")
]
OnePatchArgument = Annotated[Optional[list[str]], named("PATCH", "Its name, as p5.")]
ExplainedArgument = Annotated[
    Optional[list[str]], named("PATCH|LOGFILE", "Its name, as p5; or the log of any training.")
]
OnePatchOption = Annotated[str, typer.Option("--patch", "-p", metavar="NAME", hidden=True, show_default=False)]
ShownPatchArgument = Annotated[Optional[list[str]], named("PATCH", "What trains this patch, as p5.")]
AcceptedOption = Annotated[
    int, typer.Option("--attempt", "-a", metavar="N", min=1, help="Number of the attempt, as `compare` shows it.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, remove nothing.")]
RunArgument = Annotated[
    str,
    typer.Argument(
        autocompletion=patches_in,
        metavar="PATCH|RUN",
        help="A patch, as p5; or the folder of a batch, its YAML or output folder.",
    ),
]
OtherRunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Another run; or a patch of the first.", show_default=False)
]
FixOption = Annotated[str, typer.Option("--fix", metavar="HOW", help="scale or crop: write corrected models to --out.")]
ColorsOption = Annotated[
    bool, typer.Option("--colors", help="Decode the photographs, too, and name those of another brightness or tint.")
]
FixedOption = Annotated[Optional[Path], typer.Option("--out", metavar="DIR", help="Folder for the corrected models.")]
AttemptOption = Annotated[
    int,
    typer.Option(
        "--attempt", "-a", metavar="N", help="Number of the attempt; the latest if left out.", show_default=False
    ),
]
ExitCodeOption = Annotated[
    Optional[int], typer.Option("--exit-code", metavar="N", help="Exit code of the program; -9 or 137: killed.")
]
PortOption = Annotated[
    int,
    typer.Option("--port", metavar="N", min=1, max=65535, help="Port to serve on; the next free one if it is taken."),
]
PublishedArguments = Annotated[
    Optional[list[str]],
    named("PATCH|scene", "By default the merged scene if there is one, else every patch."),
]
ViewedArguments = Annotated[Optional[list[str]], named("PATCH|scene", "Patches, as p5; or scene.")]
PublishedToOption = Annotated[
    Optional[Path],
    typer.Option(
        "--to",
        metavar="FOLDER|FILE",
        help="Folder to write into; by default publish.folder of the YAML. A file: of one PLY, or a film.",
    ),
]
PublishedAsOption = Annotated[
    str,
    typer.Option(
        "--as",
        metavar="FORMATS",
        show_default=False,
        help="Of ply, compressed, sog, streamed, spz, glb, tiles, html, separated by commas; or mp4, mkv, webm, gif.",
    ),
]
FilmOption = Annotated[  # as `film` had it
    Optional[Path], typer.Option("--out", metavar="FILE", hidden=True)
]
DegreeOption = Annotated[
    Optional[int],
    typer.Option(
        "--sh-degree", metavar="N", min=0, max=3, help="Of a PLY: drop spherical harmonics above this degree."
    ),
]
FrameOption = Annotated[
    Literal["local", "source"],
    typer.Option(help="Of a PLY: local, as trained; source, as in the model, with the offset added."),
]
OpacityOption = Annotated[
    float,
    typer.Option(
        "--min-opacity",
        metavar="X",
        min=0,
        max=0.99,
        show_default=False,
        help="Of a PLY: leave out Gaussians with less opacity than this.",
    ),
]
PhotographsOption = Annotated[
    Optional[Path], typer.Option("--images", metavar="DIR", help="Folder of the photographs, if they lie elsewhere.")
]
PointsOption = Annotated[
    Optional[Path],
    typer.Option("--points", metavar="FILE", help="PLY file with points, in the coordinates of the source."),
]
WithinOption = Annotated[
    float, typer.Option("--within-s", metavar="S", min=1, help="Longest time for finding points in photographs.")
]
ExampleOption = Annotated[
    Optional[Literal["night", "cpu", "sweep", "scenes"]],
    typer.Option("--example", metavar="night|cpu|sweep|scenes", help="Write this example, whatever lies there."),
]
ConfigPathOption = Annotated[
    Optional[Path], typer.Option("--out", metavar="FILE", help="Where to write; else FOLDER/splat_config.yml.")
]
SourceOption = Annotated[
    Path, typer.Option("--source", metavar="DIR", help="The COLMAP model to cut, as sparse/0; bin or txt.")
]
PatchesOption = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Folder for the patches: new, or made by an earlier split.")
]
ImagesOption = Annotated[
    Optional[Path], typer.Option("--images", metavar="DIR", help="The photographs; else images beside the model.")
]
MaxImagesOption = Annotated[
    Optional[int],
    typer.Option("--max-images", metavar="N", min=1, help="Most photographs in a patch; 400 if left out."),
]
OverlapOption = Annotated[
    float,
    typer.Option("--overlap", metavar="X", help="How far patches reach over their core, as a share of its width."),
]
GridOption = Annotated[
    str,
    typer.Option(
        "--grid", metavar="AxB", show_default=False, help="Cut into A rows along the longest side, B patches in each."
    ),
]
BoxesOption = Annotated[
    Optional[Path],
    typer.Option("--boxes", metavar="FILE", help="JSON file with the boxes to cut along, or a partition.json."),
]
AxisOption = Annotated[
    str,
    typer.Option(
        "--axis",
        metavar="X,Y,Z",
        show_default=False,
        help="Direction in which nothing is cut, such as up; by default where cameras differ least.",
    ),
]
BlockOption = Annotated[
    float,
    typer.Option(
        "--holdout-block",
        metavar="X",
        show_default=False,
        help="Share of the photographs to hold out as one piece, for evaluation.holdout: contiguous.",
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Decides where the held-out piece lies.")]
PictureOption = Annotated[
    Optional[Path], typer.Option("--picture", metavar="FILE", help="Draw the plan, as .svg; also if --dry-run.")
]
