"""Commands that use splats: `accept`, `merge`, `publish`, and `clean`, which removes files of replaced attempts."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional

from typer import Option

from splatbatch import terminal
from splatbatch.cli.app import app, open_folder, open_one, open_splats
from splatbatch.cli.options import BatchArgument, ConfigOption, JsonOption, formats_in, named
from splatbatch.cli.stdout import print_facts, print_line, print_table, print_warnings
from splatbatch.errors import ConfigError
from splatbatch.files import MIB
from splatbatch.text import plural

if TYPE_CHECKING:
    from splatbatch.output.records.merge import Hole, MergeOutput
    from splatbatch.output.records.publication import Publication
    from splatbatch.run.clean import CleanOutput

PLY = ".ply"
OTHER_FORMAT = re.compile(r"\.compressed\.ply|\.[a-z][a-z0-9]{1,7}", re.IGNORECASE)
"""Pattern of the suffix of a file name; the suffix begins with a letter, since a folder's may end with a date or
version."""
LARGEST_PX = 8192


@app.command()
def accept(
    attempt: Annotated[
        int, Option("--attempt", "-a", metavar="N", min=1, help="Number of the attempt, as listed by `explain`.")
    ],
    patch: Annotated[list[str], named("[FOLDER] PATCH", "Name of a patch of FOLDER, such as p5.")] = [],
    config: ConfigOption = None,
) -> None:
    """Accept the splat of another attempt at a patch; `splatbatch explain` lists the attempts."""
    from splatbatch.cli.status import print_attempts
    from splatbatch.output.records.metrics import spell_figures
    from splatbatch.run.accept import accept as run
    from splatbatch.run.explain import attempts_at

    batch, task = open_one(config, patch)
    accepted = run(batch, task.name, attempt).metrics.final
    told = ", ".join(filter(None, (f"attempt {attempt} accepted", spell_figures(accepted))))
    print_line(f"{task.name}: {told}; `train` keeps it until settings or inputs change")
    print_attempts(attempts_at(task))


@app.command()
def merge(
    folder: BatchArgument = None,
    config: ConfigOption = None,
    out: Annotated[
        Optional[Path], Option(metavar="FILE", help="File to write; default: OUTPUT/scene/splat.ply.")
    ] = None,
    allow_missing: Annotated[
        bool, Option("--allow-missing", help="Leave holes where patches are missing, out of date or failed.")
    ] = False,
    clean: Annotated[bool, Option("--clean", help="Remove invisible, oversized and floating Gaussians.")] = False,
    json_: JsonOption = False,
) -> None:
    """Merge the splats of all patches into one, each cropped to its own part of the scene; written only if changed."""
    from splatbatch.run import api
    from splatbatch.run.follow_ups import deliver, is_follow_up
    from splatbatch.run.products import merge_here

    batch = open_folder(config, folder)
    if is_follow_up("merge"):
        return deliver(partial(merge_here, batch, out, allow_missing=allow_missing, clean=clean))
    made = api.merge(batch, out, allow_missing=allow_missing, clean=clean)
    print_warnings(_warnings(made))
    print_facts(made, _show_merged, as_json=json_)


def show_merge(made: MergeOutput) -> None:
    """Print the merged splat and its patches on stdout; all warnings go to stderr: on missing patches, on the scene as
    a whole, and of each part."""
    print_warnings(_warnings(made))
    _show_merged(made)


def _show_merged(made: MergeOutput) -> None:
    from splatbatch.tasks.counts import behind_in_words

    rows = []
    for part in made.parts:
        removed = f"{sum(part.removed.values()):,}" if made.cleaned else ""
        inside = 1 - part.num_outside / part.num_read if part.num_read else 0.0
        rows.append((part.patch, f"{part.num_gaussians:,}", f"{inside:.0%}", removed, part.attempt))
    print_table(("patch", "Gaussians", "in the core", "cleaned away", "attempt"), ("patch", "attempt"), rows)
    if behind := behind_in_words(made):
        print_line(behind)
    size = f"{plural(made.num_gaussians, 'Gaussian')}, {(made.bytes or 0) / MIB:,.1f} MiB"
    num = made.parts_written
    what = f"{plural(num, 'part')} written" if num else "nothing has changed: not written again"
    removed = ", ".join(f"{num:,} {rule}" for rule, num in made.cleaned.removed.items() if num) if made.cleaned else ""
    cleaned = f"; cleaned away: {removed or 'nothing'}" if made.cleaned else ""
    holes = f"; {plural(len(made.holes), 'hole')}" if made.holes else ""
    print_line(f"{made.splat}: {size}; {what}{cleaned}{holes}")


def _warnings(made: MergeOutput) -> list[str]:
    of_parts = [f"{part.patch}: {warning}" for part in made.parts for warning in part.warnings]
    return [*made.warnings, *of_parts, *map(_hole, made.holes)]


def _hole(hole: Hole) -> str:
    if not hole.lower:
        return f"{hole.patch}: {hole.reason}: the scene has no backdrop (coarse splat) behind the patches"
    sides = (
        f"{axis} {'-inf' if low is None else f'{low:.6g}'} to {'inf' if high is None else f'{high:.6g}'}"
        for axis, low, high in zip("xyz", hole.lower, hole.upper, strict=True)
    )
    return f"{hole.patch}: {hole.reason}: a hole in the scene, in coordinates of partition.json: {', '.join(sides)}"


@app.command()
def publish(
    names: Annotated[
        list[str],
        named("PATCH|scene", "Patches to publish, or scene; default: the merged scene if it exists, else all patches."),
    ] = [],
    config: ConfigOption = None,
    to: Annotated[
        Optional[Path],
        Option(
            metavar="FOLDER|FILE",
            help="Folder to write to, or file for one PLY or film; default: publish.folder of the YAML.",
        ),
    ] = None,
    formats: Annotated[
        str,
        Option(
            "--as",
            metavar="FORMATS",
            autocompletion=formats_in,
            show_default=False,
            help="Comma-separated: ply, compressed, sog, streamed, spz, glb, tiles, html; "
            "or one of mp4, mkv, webm, gif.",
        ),
    ] = "",
    measure: Annotated[
        bool, Option("--measure/--no-measure", help="Measure how much quality compression costs.")
    ] = True,
    force: Annotated[
        bool, Option("--force", help="Write into a folder with other files, overwriting the same names.")
    ] = False,
    json_: JsonOption = False,
    sh_degree: Annotated[
        Optional[int],
        Option(metavar="N", min=0, max=3, help="For a PLY: drop spherical harmonics above this degree."),
    ] = None,
    min_opacity: Annotated[
        float,
        Option(
            metavar="X",
            min=0,
            max=0.99,
            show_default=False,
            help="For a PLY: drop Gaussians with an opacity below this.",
        ),
    ] = 0.0,
    frame: Annotated[
        Literal["local", "source"],
        Option(help="For a PLY: local coordinates, as trained, or source coordinates, with the offset added."),
    ] = "local",
    frames: Annotated[
        int, Option(metavar="N", min=1, max=36_000, help="Number of frames of a film, shown at 30 a second.")
    ] = 240,
    size: Annotated[str, Option(metavar="WxH", help="Size of a film in pixels.")] = "960x540",
) -> None:
    """Export accepted splats or the merged scene: splat formats, 3D Tiles, an HTML page or a film."""
    from splatbatch.publish.film import SUFFIXES, Film
    from splatbatch.run import api, products
    from splatbatch.run.follow_ups import deliver, is_follow_up
    from splatbatch.splats.export import WHOLE, ExportOptions

    terminal.never_block()
    batch, chosen = open_splats(config, names)
    batch = batch.whole()
    cut = ExportOptions(sh_degree, min_opacity, in_source_frame=frame == "source")
    if is_follow_up("publish"):
        make = partial(products.publish_here, forced=force, measured=measure, cut=cut)
        return deliver(partial(make, batch, chosen, to, formats))
    kinds = formats.lower().replace(" ", "")
    if cut != WHOLE and "ply" not in kinds.split(","):
        raise ConfigError("--sh-degree, --min-opacity and --frame need --as ply", "Add --as ply.")
    if f".{kinds}" in SUFFIXES:
        film = Film(Path(), *_film_size(size), frames, is_forced=force)
        name, file = products.film(batch, chosen, film, kinds, to)
        return print_line(f"{name}: {file}: {file.stat().st_size / 1e6:.1f} MB")
    if to and kinds == "ply" and _is_file(to):
        name, num = products.ply(batch, chosen, to, cut, is_forced=force)
        return print_line(f"{name}: {to}: {num:,} Gaussians, {to.stat().st_size / 1e6:.1f} MB")
    done = api.publish_splats(batch, chosen, to, formats, forced=force, measured=measure, cut=cut)
    print_facts(done, show_publication, as_json=json_)


def _film_size(text: str) -> tuple[int, int]:
    """Return width and height in pixels of "1280x720".

    Raises:
        ConfigError: the text is not a size, or a side is not from 16 to `LARGEST_PX`.
    """
    found = re.fullmatch(r"(\d{2,5})x(\d{2,5})", text.strip().lower())
    width, height = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 16 <= min(width, height) <= max(width, height) <= LARGEST_PX:
        raise ConfigError(
            f"--size {text}: not a film size from 16x16 to {LARGEST_PX}x{LARGEST_PX}", "Example: 1280x720."
        )
    return width, height


def _is_file(to: Path) -> bool:
    """Return whether `to` names a PLY file, not a folder.

    Raises:
        ConfigError: it has the suffix of another format, and no such folder exists.
    """
    other = OTHER_FORMAT.fullmatch("".join(to.suffixes[-2:])) or OTHER_FORMAT.fullmatch(to.suffix)
    if other and not to.is_dir() and other[0].lower() != PLY:
        hint = "To write into a folder of that name, create the folder first."
        raise ConfigError(f"--to {to}: a {other[0]} file cannot be written, only {PLY}", hint)
    return to.suffix.lower() == PLY and not to.is_dir()


def show_publication(done: Publication) -> None:
    """Print the published files as a table, and the name of the file that lists them."""
    from splatbatch.cli.quality import figure
    from splatbatch.output.records.publication import FILE

    rows = []
    for name, one in done.outputs.items():
        share = f"{one.bytes / one.bytes_before:.0%}" if one.bytes_before else ""
        costs = (figure(one.psnr), figure(one.loss_db), f"{one.seconds or 0:.0f}", "; ".join(one.notes))
        rows.append((name, f"{one.bytes / 1e6:,.1f}", share, f"{one.num_gaussians:,}", *costs))
    print_table(("file", "MB", "% of PLY", "Gaussians", "PSNR dB", "loss dB", "s", "note"), ("file", "note"), rows)
    print_line(f"{FILE} lists the same files and their source splats: scene or patches")


@app.command()
def clean(
    folder: BatchArgument = None,
    config: ConfigOption = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would be removed without removing anything.")] = False,
    json_: JsonOption = False,
) -> None:
    """Remove checkpoints, pictures and splats of replaced attempts; accepted and previous splats stay."""
    from splatbatch.run.clean import clean as run

    found = run(open_folder(config, folder), dry_run=dry_run)
    print_facts(found, partial(show_cleaned, dry_run=dry_run), as_json=json_)


def show_cleaned(found: CleanOutput, *, dry_run: bool) -> None:
    """Print the removed files, or for a dry run the files that would be removed, and their size together."""
    for one in found.files:
        print_line(f"{one.path}: {one.what}, {one.bytes / MIB:.1f} MiB")
    removed = f"{'would be ' if dry_run else ''}removed, {found.bytes / MIB:.1f} MiB"
    print_line(f"{plural(len(found.files), 'item')} {removed}" if found.files else "nothing to remove")
