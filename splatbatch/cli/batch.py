"""The verbs of a batch: made, checked, planned, trained, ended."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatbatch.cli.app import app, batch_and_patches, the_batch
from splatbatch.cli.commands import options
from splatbatch.errors import ConfigError


@app.command()
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of patches, a COLMAP scene, or its sparse/0.")
    ] = Path(),
    out: options.ConfigPathOption = None,
    example: options.ExampleOption = None,
) -> None:
    """Write a commented splat_config.yml for a folder of patches or a COLMAP scene, or copy an example YAML."""
    if example:
        from splatbatch.cli.commands.demo import write_example

        return write_example(example, folder, out)
    from splatbatch.cli.commands.output import print_line
    from splatbatch.run.prepare import begin

    written, (*notes, told) = begin(folder, out)
    for note in notes:
        print_line(note)
    print_line(f"{told}. Next: splatbatch verify-dims --config {shlex.quote(str(written))}" if written else told)
    return None


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder for the demo scene and its splats.")],
    trains: Annotated[bool, typer.Option("--train/--no-train", help="Train the demo scene, or only copy it.")] = True,
) -> None:
    """Train the included demo scene, two patches of a quarry, in a minute or two; no GPU is needed."""
    from splatbatch.cli.commands import demo as demonstrating

    demonstrating.demo(folder, trains=trains)


def _print_schema(wanted: bool) -> None:
    if wanted:
        from splatbatch.scene.partition.record import json_schema

        typer.echo(json.dumps(json_schema(), indent=1))
        raise typer.Exit


@app.command()
def split(
    source: options.SourceOption,
    out: options.PatchesOption,
    images: options.ImagesOption = None,
    max_images: options.MaxImagesOption = None,
    overlap: options.OverlapOption = 0.15,
    grid: options.GridOption = "",
    boxes: options.BoxesOption = None,
    axis: options.AxisOption = "",
    holdout_block: options.BlockOption = 0.0,
    seed: options.SeedOption = 0,
    picture: options.PictureOption = None,
    drop: Annotated[
        bool, typer.Option("--drop", help="Remove patches that no longer exist in the new split, even trained ones.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the patches without writing anything.")] = False,
    json_: options.JsonOption = False,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema", callback=_print_schema, is_eager=True, help="Print the JSON Schema of partition.json."
        ),
    ] = False,
) -> None:
    """Split a COLMAP scene into patches that share its photographs; run again after adding photographs."""
    from splatbatch.cli.commands.scene import split as splitting
    from splatbatch.run.scene import trained_in
    from splatbatch.scene.partition.split import SplitRequest

    asked = splitting.options_for(max_images, overlap, grid, boxes, axis, holdout_block, seed)
    trained = frozenset[str]() if drop else trained_in(out)
    splitting.run(SplitRequest(source, images, out, asked, trained), picture, dry_run=dry_run, as_json=json_)


@app.command("import")
def import_(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="transforms.json, Metashape XML, COLMAP export, or its folder.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder for the COLMAP model.")],
    images: options.PhotographsOption = None,
    points: options.PointsOption = None,
    chunk: Annotated[str, typer.Option("--chunk", metavar="LABEL", help="Chunk of the Metashape project.")] = "",
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Skip poses whose photograph is missing.")
    ] = False,
    no_triangulation: Annotated[
        bool, typer.Option("--no-triangulation", help="Do not triangulate points if the source has none.")
    ] = False,
    within_s: options.WithinOption = 1800.0,
    json_: options.JsonOption = False,
) -> None:
    """Convert another program's reconstruction to a COLMAP scene; photographs are linked, not copied."""
    from splatbatch.cli.commands.import_ import print_import
    from splatbatch.cli.commands.output import print_json
    from splatbatch.run.prepare import Import, bring_in
    from splatbatch.scene.imports.capture import ImportOptions

    asked = ImportOptions(images, points, chunk, skip_missing, not no_triangulation, within_s)
    done, written, audit = bring_in(source, folder, asked)
    if json_:
        print_json(Import.of(done, written, audit))
    else:
        print_import(folder, done, audit)
    raise typer.Exit(audit.exit_code())


@app.command("verify-dims")
def verify_dims(
    patches: options.PatchArguments = None,
    config: options.ConfigOption = None,
    json_: options.JsonOption = False,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Decode every photograph and mask.")] = False,
    fix: options.FixOption = "",
    out: options.FixedOption = None,
    colors: options.ColorsOption = False,
) -> None:
    """Check that photographs and masks match the cameras of every patch, and check the COLMAP models."""
    from splatbatch.cli.commands import prepare
    from splatbatch.tasks.batch import open_batch

    batch = open_batch(config, patches or [])
    audit = prepare.audit(batch, deep=deep)
    if fix or out:
        raise typer.Exit(prepare.fix(batch, audit, fix, out, as_json=json_))
    raise typer.Exit(prepare.verify(batch, audit, as_json=json_, strict=strict, colors=colors))


@app.command()
def plan(
    patches: options.PatchArguments = None,
    config: options.ConfigOption = None,
    only: options.OnlyOption = [],
    json_: options.JsonOption = False,
) -> None:
    """Show which patches would be trained, why, with which schedule, and how long training would take."""
    from splatbatch.cli.commands.overview import print_plan
    from splatbatch.tasks.batch import open_batch

    print_plan(open_batch(config, patches or [], conditions=only), as_json=json_)


@app.command()
def train(
    patches: options.TrainedArguments = None,
    config: options.ConfigOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be trained without training.")] = False,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Skip the check of the photographs.")] = False,
    only: options.OnlyOption = [],
    set_: options.SetOption = [],
    detached: Annotated[bool, typer.Option("--detach", help="Start a worker in the background and return.")] = False,
) -> None:
    """Train every patch that is not trained yet, or whose settings or inputs have changed."""
    if not (dry_run or detached):
        from splatbatch.cli.commands.preload import load_training

        load_training(config)
    from splatbatch.cli.commands import train

    if dry_run:
        from splatbatch.cli.commands.overview import print_plan
        from splatbatch.tasks.batch import open_batch

        return print_plan(open_batch(config, patches or [], train.changes_of(set_), only), as_json=False)
    if detached:
        train.check_no_workers(set_)
        return train.detach(config, patches or [], only, verify=not no_verify)
    train.train(config, patches or [], only, verify=not no_verify, assignments=set_)


@app.command()
def retry(
    patches: options.PatchArguments = None,
    config: options.ConfigOption = None,
    patch: options.PatchOption = [],
    failed: Annotated[bool, typer.Option("--failed", help="Retry all patches that failed.")] = False,
    set_: options.SetOption = [],
    force: Annotated[bool, typer.Option("--force", help="Train again even patches that are up to date.")] = False,
    only: options.OnlyOption = [],
    save: Annotated[
        bool, typer.Option("--save", help="Write the --set settings of kept splats into the YAML.")
    ] = False,
) -> None:
    """Train the given patches again, or all failed ones, optionally with --set; the better splat is kept."""
    from splatbatch.cli.commands import train

    chosen, names = batch_and_patches(config, [*(patches or []), *patch])
    train.retry(chosen, names, only, set_, failed=failed, force=force, save=save)


@app.command()
def work(
    patches: options.WorkedArguments = None,
    config: options.ConfigOption = None,
    for_: Annotated[
        str, typer.Option("--for", metavar="TIME", help="Start only patches that finish in this time, such as 3h30m.")
    ] = "",
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Skip the check of the photographs.")] = False,
    idle: Annotated[
        str, typer.Option("--idle", metavar="TIME", help="With a store: wait this long for new patches, such as 10m.")
    ] = "",
    scratch: Annotated[
        Optional[Path], typer.Option("--scratch", metavar="DIR", help="With a store: train here instead of in /tmp.")
    ] = None,
    only_builtin: Annotated[
        bool, typer.Option("--only-builtin", help="With a store: skip patches that run commands from the store.")
    ] = False,
) -> None:
    """Run one of several workers that share an output folder or a store; exit code 75: start it again."""
    from splatbatch.cli.commands import train
    from splatbatch.scheduler.work.time_left import parse_duration
    from splatbatch.transfer.schemes import is_store

    for_s = parse_duration(for_) if for_ else None
    if only_builtin and not patches:
        raise ConfigError("work --only-builtin: no store given", "Run `splatbatch work STORE --only-builtin`.")
    if patches and (is_store(patches[0]) or idle or scratch or only_builtin):
        from splatbatch.cli.commands import store

        idle_s = parse_duration(idle) if idle else 0.0
        return store.work(patches, scratch, for_s, idle_s, only_builtin=only_builtin)
    train.work(config, patches or [], for_s, verify=not no_verify)


@app.command()
def pack(
    to: options.ToStoreOption,
    patches: options.PatchArguments = None,
    config: options.ConfigOption = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Skip the check of the photographs.")] = False,
    json_: options.JsonOption = False,
) -> None:
    """Pack the patches that need training into a store, for workers that do not share the output folder."""
    from splatbatch.cli.commands import store

    store.pack(config, patches or [], to, verify=not no_verify, as_json=json_)


@app.command()
def adopt(
    named: options.AdoptedArguments,
    config: options.ConfigOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep running until no worker trains from the store.")
    ] = False,
) -> None:
    """Fetch trained splats from a store; accept each one that matches the current settings and inputs."""
    from splatbatch.cli.commands import store

    if len(named) > 2:
        raise ConfigError(f"adopt {' '.join(named)}: too many arguments", "Run `splatbatch adopt [FOLDER] STORE`.")
    store.adopt(the_batch(config, named[0] if named[1:] else None), named[-1], watch=watch)


@app.command()
def cancel(patches: options.WorkedArguments = None, config: options.ConfigOption = None) -> None:
    """Stop the running batch, here or on another host, or some of its patches; their state becomes stopped."""
    from splatbatch.transfer.schemes import is_store

    if patches and is_store(patches[0]):
        from splatbatch.cli.commands import store

        return store.cancel(patches[0], patches[1:])
    from splatbatch.cli.commands.output import print_line
    from splatbatch.run.cancel import cancel as cancel_batch
    from splatbatch.tasks.status import summary

    done = cancel_batch(*batch_and_patches(config, patches))
    if not done.was_running:
        return print_line(f"{done.output.path}: no batch is running, nothing to cancel")
    for one in done.statuses if done.patches else ():
        print_line(f"{one.patch}: {one.why}")
    return print_line(f"cancelled. {'Given patches' if done.patches else 'Batch'}: {summary(done.statuses)}")


@app.command()
def doctor(
    folder: options.BatchArgument = None,
    config: options.ConfigOption = None,
    json_: options.JsonOption = False,
    warm: Annotated[
        bool, typer.Option("--warm", help="Compile the GPU kernels now instead of with the first patch.")
    ] = False,
    trainers: Annotated[
        bool, typer.Option("--trainers", help="Only list the trainers and what each is missing on this machine.")
    ] = False,
) -> None:
    """Check whether this machine can train, also with the settings of a batch, and say how to fix problems."""
    from splatbatch.cli.commands import doctor as examining

    config = the_batch(config, folder)
    if trainers:
        return examining.list_trainers(config, as_json=json_)
    examining.doctor(config, as_json=json_, build=warm)
