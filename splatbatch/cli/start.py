"""Commands that make a batch of photographs or a model: `demo`, `init`, `import`, `reconstruct`, `split`, `scene`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

from typer import Argument, Exit, Option

from splatbatch import terminal
from splatbatch.cli.app import app
from splatbatch.cli.options import ImagesOption, JsonOption
from splatbatch.cli.stdout import print_json, print_line, print_table, print_text, print_warnings
from splatbatch.errors import ConfigError, OutputError
from splatbatch.text import one_line, plain_text, plural, spell_place

if TYPE_CHECKING:
    from splatbatch.run.context import RunSummary
    from splatbatch.run.reconstruct import ReconstructedModel
    from splatbatch.scene.audit.audit import Audit
    from splatbatch.scene.imports.run import ImportResult
    from splatbatch.scene.partition.split import SplitFacts

EXAMPLES = {"night": "local.yml", "cpu": "cpu.yml", "sweep": "sweep.yml", "scenes": "scenes.yml"}
SPLIT_STATES = {"new": "", "stays": "unchanged", "changes": "changed"}


@app.command()
def init(
    folder: Annotated[
        Path, Argument(metavar="DIR", help="Folder of patches, a COLMAP scene, or its sparse/0.")
    ] = Path(),
    example: Annotated[
        Optional[Literal["night", "cpu", "sweep", "scenes"]],
        Option(metavar="night|cpu|sweep|scenes", help="Write this example; ignore what DIR contains."),
    ] = None,
) -> None:
    """Write a commented splat_config.yml for a folder of patches or a COLMAP scene, or copy an example YAML."""
    if example:
        return write_example(example, folder)
    from splatbatch.run.prepare import begin

    written, (*notes, last), _ = begin(folder)
    for note in notes:
        print_line(note)
    print_line(f"{last}. Next: splatbatch verify-dims --config {shlex.quote(str(written))}" if written else last)


def write_example(name: str, folder: Path) -> None:
    """Write the example `name` as the YAML of a folder, and print what to do next; an existing YAML stays.

    The folder is made if it is missing.

    Raises:
        ConfigError: the folder has a YAML already.
        OutputError: the examples were not installed.
        OSError: the YAML or its folder cannot be written.
    """
    from splatbatch.config import DEFAULT_CONFIG
    from splatbatch.config.data_files import shipped

    target = folder / DEFAULT_CONFIG
    if target.exists():
        raise ConfigError(f"{target} exists already", "Move or rename that file.")
    examples = shipped("examples")
    if examples is None:
        raise OutputError("the examples are not installed", "Reinstall splatbatch; its wheel contains the examples.")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes((examples / EXAMPLES[name]).read_bytes())
    following = f"splatbatch plan --config {shlex.quote(str(target))}"
    print_line(f"{target}: example {name!r} written. Set the paths in its section scene, then run: {following}")


@app.command()
def demo(
    folder: Annotated[Path, Argument(metavar="DIR", help="New folder for the demo scene and its splats.")],
    no_train: Annotated[bool, Option("--no-train", help="Only copy the demo scene.")] = False,
) -> None:
    """Train the included demo scene, two patches of a quarry, in a minute or two; no GPU is needed."""
    import shutil

    from splatbatch.cli.train import train
    from splatbatch.config import DEFAULT_CONFIG
    from splatbatch.config.data_files import shipped

    config = folder / DEFAULT_CONFIG
    source = shipped("quarry")
    if source is None:
        raise OutputError("the demo scene is not installed", "Reinstall splatbatch; its wheel contains the demo scene.")
    if folder.exists() and not (folder / "patches" / "p1").is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty", "Give a new or an empty folder.")
    if not config.exists():
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("output"))
    following = f"{'to train, run' if no_train else 'running'}: splatbatch train --config {shlex.quote(str(config))}"
    print_text(f"demo scene with two patches and {DEFAULT_CONFIG}: {folder}; {following}")
    if not no_train:
        try:
            train(config=config)
        finally:
            print_text(f"next: cd {shlex.quote(str(folder))}; splatbatch status; splatbatch view")


@app.command("import")
def import_(
    source: Annotated[
        Path, Argument(metavar="SOURCE", help="transforms.json, Metashape XML, COLMAP export, or its folder.")
    ],
    folder: Annotated[Path, Argument(metavar="DIR", help="New folder for the COLMAP model.")],
    images: Annotated[
        Optional[Path], Option(metavar="DIR", help="Folder of the photographs, if not with the source.")
    ] = None,
    points: Annotated[
        Optional[Path],
        Option(metavar="FILE", help="PLY file whose points, in the source's coordinates, replace the source's own."),
    ] = None,
    chunk: Annotated[str, Option(metavar="LABEL", help="Chunk of the Metashape project.")] = "",
    skip_missing: Annotated[bool, Option("--skip-missing", help="Skip poses whose photograph is missing.")] = False,
    no_triangulation: Annotated[
        bool, Option("--no-triangulation", help="Do not triangulate points if the source has none.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Convert another program's reconstruction to a COLMAP scene; photographs are linked, not copied."""
    from splatbatch.run.prepare import Import, import_scene
    from splatbatch.scene.imports.capture import ImportOptions

    options = ImportOptions(images, points, chunk, skip_missing, not no_triangulation)
    done, config, audit = import_scene(source, folder, options)
    if json_:
        print_json(Import.of(done, config, audit))
    else:
        show_import(done, config, audit)
    raise Exit(audit.exit_code())


def show_import(done: ImportResult, config: Path, audit: Audit) -> None:
    """Print what an import converted and left out, its coordinates, the audit of the model, and the next command."""
    from splatbatch.cli.checks import print_audit
    from splatbatch.scene.imports.write import RECORD

    capture, folder = done.capture, config.parent
    found = f"{plural(len(capture.shots), 'photograph')} linked, {plural(done.num_points, 'point')}"
    print_line(f"{folder}: {capture.kind}: {found}")
    print_line(f"the model is in {capture.world}{f'; {capture.crs[:200]}' if capture.crs else ''}")
    if any(done.offset):
        print_line(f"offset {spell_place(done.offset)} is subtracted before training (scene.offset)")
    for title, lines in (("converted", done.log.converted), ("not converted", done.log.left_out)):
        if lines:
            print_text("\n  ".join([f"{title}:", *map(one_line, map(plain_text, lines))]))
    print_audit(audit)
    command = f"splatbatch {'verify-dims' if audit.errors() else 'train'} --config {shlex.quote(str(config))}"
    print_line(f"Details of the import: {folder / RECORD}. Next: {command}")


@app.command()
def reconstruct(
    photographs: Annotated[Path, Argument(metavar="PHOTOS", help="Folder of the photographs.")],
    out: Annotated[Path, Option(metavar="DIR", help="Folder for sparse/0 and images/.")] = Path("reconstructed"),
    camera: Annotated[str, Option(metavar="MODEL", help="COLMAP camera model; auto decides by EXIF.")] = "auto",
    rig: Annotated[
        str, Option(metavar="A,B", help="Folders of a rig with the same file names in each; A is the reference.")
    ] = "",
    mapper: Annotated[str, Option(metavar="HOW", help="COLMAP mapper: incremental, global or auto.")] = "auto",
    pairs: Annotated[str, Option(metavar="HOW", help="Image pairs to match: gps, sequence, all or auto.")] = "auto",
    features: Annotated[int, Option(metavar="N", min=128, max=65536, help="Maximum features per photograph.")] = 4096,
    threads: Annotated[Optional[int], Option(metavar="N", min=1, help="CPU threads; default: all cores.")] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show the stages and their estimated time without running.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Reconstruct a COLMAP model from photographs; run again to resume, or several times to share the work."""
    from splatbatch.run.reconstruct import ReconstructOptions, open_reconstruction, options_from, result_of
    from splatbatch.run.reconstruct import reconstruct as run
    from splatbatch.tasks.estimates import forecast

    terminal.never_block()
    options = ReconstructOptions(photographs, out, options_from(camera, rig, mapper, pairs, features), threads)
    if dry_run:
        batch, plan = open_reconstruction(options)
        for line in (*plan.in_words(), forecast(batch, batch.names, {}).in_words()):
            print_line(line)
        return
    code = run(options, show_stages)
    if code or (result := result_of(options)) is None:
        raise Exit(code)
    if json_:
        print_json(result.told)
    else:
        show_model(result)
        print_line("Next: splatbatch scene --source {0}/sparse/0 --images {0}/images".format(shlex.quote(str(out))))
    raise Exit(result.audited.exit_code())


def show_stages(ended: RunSummary | Any) -> None:
    """Print on stderr which stages of a reconstruction failed or were stopped, why, and the path of the report.

    Nothing is printed after a success.
    """
    from splatbatch.outcome import NOT_MADE
    from splatbatch.run.context import RunSummary

    if isinstance(ended, RunSummary) and ended.code:
        for one in ended.statuses:
            if one.state in ("failed", "stopped") and one.cause != NOT_MADE:
                print_line(f"{one.patch}: {one.in_words()}", err=True)
        print_line(f"report: {ended.batch.output.report('html')}", err=True)


def show_model(made: ReconstructedModel) -> None:
    """Print the facts of a reconstructed model, its audit, and the path of its report."""
    from splatbatch.cli.checks import print_audit

    for line in made.told.in_words():
        print_line(line)
    print_audit(made.audited)
    print_line(f"report: {made.report}")


@app.command()
def split(
    source: Annotated[Path, Option(metavar="DIR", help="COLMAP model to split, such as sparse/0; binary or text.")],
    out: Annotated[Path, Option(metavar="DIR", help="Folder for the patches: new, or made by an earlier split.")],
    images: ImagesOption = None,
    max_images: Annotated[
        Optional[int], Option(metavar="N", min=1, help="Maximum number of photographs in a patch; default: 400.")
    ] = None,
    overlap: Annotated[
        float,
        Option(metavar="X", help="Overlap with neighbouring patches, as a fraction of a patch's width without it."),
    ] = 0.15,
    grid: Annotated[
        str,
        Option(metavar="AxB", show_default=False, help="Split into A rows along the longest side, B patches each."),
    ] = "",
    boxes: Annotated[
        Optional[Path],
        Option(metavar="FILE", help="JSON file with the boxes of the patches, or the partition.json of a split."),
    ] = None,
    axis: Annotated[
        str,
        Option(
            metavar="X,Y,Z",
            show_default=False,
            help="Direction that is not split, such as up; unused with --boxes; "
            "default: that of an earlier split, else where camera positions vary least.",
        ),
    ] = "",
    holdout_block: Annotated[
        float,
        Option(
            metavar="X",
            show_default=False,
            help="Fraction of the photographs to hold out as one block, for evaluation.holdout: contiguous.",
        ),
    ] = 0.0,
    drop: Annotated[
        bool, Option("--drop", help="Remove patches that no longer exist in the new split, even trained ones.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the patches without writing anything.")] = False,
    json_: JsonOption = False,
) -> None:
    """Split a COLMAP scene into patches that share its photographs; run again after adding photographs."""
    from functools import partial

    from splatbatch.monitor.messages import PipeWriter
    from splatbatch.run.scene import trained_in
    from splatbatch.scene.partition.plan import SplitOptions, parse_axis, parse_grid, read_boxes
    from splatbatch.scene.partition.split import SplitRequest
    from splatbatch.scene.partition.split import split as run

    drawn = read_boxes(boxes) if boxes else None
    how = SplitOptions(max_images, overlap, parse_grid(grid), drawn, parse_axis(axis), holdout_block)
    request = SplitRequest(source, images, out, how, frozenset() if drop else trained_in(out))
    done = run(request, dry_run=dry_run, advance=partial(PipeWriter().advance, "split", unit="patches"))
    if json_:
        return print_json(done)
    show_split(done)
    print_line("nothing was written" if dry_run else _written(out))


def show_split(facts: SplitFacts) -> None:
    """Print the patches of a split scene, or for a dry run those that it would get, with totals and costs.

    Notes go to stderr.
    """
    total_cost = sum(cut.cost for cut in facts.patches) or 1.0
    headings = ("patch", "photographs", "held out", "points", "in its core", "cost", "")
    rows = []
    for cut in facts.patches:
        figures = (f"{num:,}" for num in (cut.num_images, cut.num_test, cut.num_points, cut.num_core_points))
        rows.append((cut.name, *figures, f"{cut.cost / total_cost:.1%}", SPLIT_STATES[cut.state]))
    print_table(headings, ("patch", ""), rows)
    for name in facts.gone:
        print_line(f"{name}: no longer part of the split")
    print_warnings(facts.notes)
    held = f"{plural(facts.num_test, 'photograph')} held out in every patch"
    block = f", {facts.num_contiguous:,} in one block" if facts.num_contiguous else ""
    total = f"{plural(len(facts.patches), 'patch', 'es')} of {plural(facts.num_photographs, 'photograph')}"
    print_line(f"{total}, {held}{block}")
    if facts.hold_out:
        print_line(facts.hold_out)
    print_line(
        f"training all patches costs {total_cost:.1f} times as much as the scene as one patch; "
        f"the most expensive patch costs {facts.evenness:.2f} times the cheapest"
    )
    if len(facts.patches) == 1:
        num = max(facts.num_photographs // 2, 1)
        print_line(f"one patch only; for more and smaller patches use --max-images {num}")


def _written(out: Path) -> str:
    return f"{out}: partition.json, partition.svg. Next: splatbatch init {shlex.quote(str(out))}"


@app.command()
def scene(
    source: Annotated[
        Optional[Path], Option(metavar="DIR", help="COLMAP model, such as sparse/0; default: reconstruct --images.")
    ] = None,
    images: ImagesOption = None,
    out: Annotated[
        Path, Option(metavar="DIR", help="Folder for patches, YAML and output; DIR/patches may be split already.")
    ] = Path("scene"),
    clean: Annotated[bool, Option("--clean", help="Remove invisible, oversized and floating Gaussians.")] = False,
    settings: Annotated[
        list[str],
        Argument(metavar="KEY=VALUE", help="Settings of the YAML, after --, such as training.max_steps=7000."),
    ] = [],
) -> None:
    """Split, train, merge and evaluate a COLMAP scene or photographs in one run; run again to resume."""
    from splatbatch.cli.train import show
    from splatbatch.config import load, near
    from splatbatch.output.layout import OutputFolder
    from splatbatch.output.records.evaluation import SceneEvaluation
    from splatbatch.run.context import RunSummary
    from splatbatch.run.reconstruct import ReconstructedModel
    from splatbatch.run.scene import SceneOptions, make_scene
    from splatbatch.scene.partition.split import SplitFacts

    if named := next((word for word in settings if "=" not in word), ""):
        hint = f"{near(Path(named))} Name the scene with --source or --images; a setting is KEY=VALUE."
        raise ConfigError(f"scene {named}: neither an option nor a setting", hint)
    options = SceneOptions(source, images, out, tuple(settings), clean)

    def show_step(made: Any) -> None:
        match made:
            case SplitFacts():
                show_split(made)
                print_line(_written(options.patches))
            case ReconstructedModel():
                show_model(made)
            case RunSummary() if made.batch.noun == "stage":
                show_stages(made)
            case _:
                show(made)
        if isinstance(made, SceneEvaluation):
            splat = OutputFolder(load(options.config).output.folder).scene.splat
            config = shlex.quote(str(options.config))
            print_line(f"{splat}; to repeat a step: `train`, `merge` or `evaluate` --config {config}")

    terminal.never_block()
    raise Exit(make_scene(options, show_step))
