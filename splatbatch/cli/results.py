"""The verbs of what came out: how it stands, why, and where it goes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatbatch.cli.app import app, batch_and_patches, the_batch, the_one
from splatbatch.cli.commands import options


@app.command()
def status(
    patches: options.WorkedArguments = None,
    config: options.ConfigOption = None,
    json_: options.JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing the status until training ends.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check contents of splats and photographs, not only size and time.")
    ] = False,
) -> None:
    """Show the state and progress of every patch, also while a batch runs."""
    from splatbatch.transfer.schemes import is_store

    if patches and is_store(patches[0]):
        from splatbatch.cli.commands import store

        return store.status(patches[0], as_json=json_)
    from splatbatch.cli.commands import status as progress

    progress.status(config, patches or [], as_json=json_, watch=watch, verify=verify)


@app.command()
def explain(
    names: options.ExplainedArgument = None,
    config: options.ConfigOption = None,
    json_: options.JsonOption = False,
    log: Annotated[bool, typer.Option("--log", help="Print the log of an attempt instead.")] = False,
    attempt: options.AttemptOption = 0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print the log, and new lines until the attempt ends.")
    ] = False,
    exit_code: options.ExitCodeOption = None,
) -> None:
    """Explain the history of a patch (attempts, evidence, changes, advice), or what went wrong in a log."""
    from splatbatch.cli.commands import explain as explaining

    config, chosen = batch_and_patches(config, names)
    name = the_one(chosen)
    if log or follow or attempt:
        return explaining.print_log(config, name, attempt, is_followed=follow)
    path = Path(name)
    if exit_code is not None or ((os.sep in name or path.exists()) and not path.is_dir()):
        return explaining.print_diagnosis(config, path, exit_code, as_json=json_)
    explaining.print_patch(config, name, as_json=json_)


@app.command()
def compare(
    patch: options.OnePatchArgument = None,
    config: options.ConfigOption = None,
    json_: options.JsonOption = False,
) -> None:
    """Compare the attempts at a patch."""
    from splatbatch.cli.commands.compare import print_attempts
    from splatbatch.tasks.batch import open_batch
    from splatbatch.tasks.task import the_task

    config, chosen = batch_and_patches(config, patch)
    batch = open_batch(config, [name := the_one(chosen)])
    print_attempts(batch, the_task(batch.tasks, name), as_json=json_)


@app.command()
def accept(
    attempt: options.AcceptedOption,
    patch: options.OnePatchArgument = None,
    config: options.ConfigOption = None,
) -> None:
    """Accept the splat of another attempt at a patch; `splatbatch compare` lists the attempts."""
    from splatbatch.cli.commands.compare import print_attempts
    from splatbatch.cli.commands.output import print_line
    from splatbatch.output.records.metrics import spell_figures
    from splatbatch.run.accept import accept as accept_attempt
    from splatbatch.tasks.batch import open_batch
    from splatbatch.tasks.task import the_task

    config, chosen = batch_and_patches(config, patch)
    batch = open_batch(config, [name := the_one(chosen)])
    task = the_task(batch.tasks, name)
    accepted = accept_attempt(batch, name, attempt).metrics.final
    told = ", ".join(filter(None, (f"attempt {attempt} accepted", spell_figures(accepted))))
    print_line(f"{task.name}: {told}; `train` keeps it until settings or inputs change")
    print_attempts(batch, task)


@app.command()
def report(
    folder: options.BatchArgument = None, config: options.ConfigOption = None, json_: options.JsonOption = False
) -> None:
    """Write report.html, report.md and report.json, and print the report as text."""
    from splatbatch.cli.commands.output import print_json
    from splatbatch.report import to_markdown
    from splatbatch.run.api import write_report
    from splatbatch.tasks.batch import open_batch
    from splatbatch.text import plain

    facts = write_report(open_batch(the_batch(config, folder)))
    if json_:
        return print_json(facts)
    typer.echo(plain(to_markdown(facts)), nl=False)
    return None


@app.command()
def serve(
    folder: options.BatchArgument = None, config: options.ConfigOption = None, port: options.PortOption = 8765
) -> None:
    """Serve the live report of a batch to a browser on this machine until Ctrl-C."""
    from splatbatch.cli.commands import live

    live.serve(the_batch(config, folder), port)


@app.command()
def view(
    names: options.ViewedArguments = None,
    config: options.ConfigOption = None,
    port: options.PortOption = 8080,
) -> None:
    """Serve patches or the scene in 3D, with photographs, to a browser on this machine until Ctrl-C."""
    from splatbatch.cli.commands import view as serving

    serving.serve(*batch_and_patches(config, names), port)


@app.command()
def publish(
    names: options.PublishedArguments = None,
    config: options.ConfigOption = None,
    to: options.PublishedToOption = None,
    formats: options.PublishedAsOption = "",
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Measure how much quality compression costs.")
    ] = True,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder with other files, overwriting the same names.")
    ] = False,
    json_: options.JsonOption = False,
    sh_degree: options.DegreeOption = None,
    min_opacity: options.OpacityOption = 0.0,
    frame: options.FrameOption = "local",
    frames: Annotated[
        int, typer.Option("--frames", metavar="N", min=1, max=36_000, help="Number of frames of a film.")
    ] = 240,
    fps: Annotated[int, typer.Option("--fps", metavar="N", min=1, max=120, help="Frames per second of a film.")] = 30,
    size: Annotated[str, typer.Option("--size", metavar="WxH", help="Size of a film in pixels.")] = "960x540",
) -> None:
    """Export accepted splats or the merged scene: splat formats, 3D Tiles, an HTML page or a film."""
    from splatbatch.cli.commands import publish as publishing
    from splatbatch.publish.film import Film
    from splatbatch.splats.export import ExportOptions

    cut = ExportOptions(sh_degree, min_opacity, in_source_frame=frame == "source")
    film = Film(Path(), *publishing.parse_size(size), frames, fps)
    wanted = publishing.PublishOptions(to, formats, force, measure, cut, film)
    publishing.publish(*batch_and_patches(config, names), wanted, as_json=json_)


@app.command()
def merge(
    folder: options.BatchArgument = None,
    config: options.ConfigOption = None,
    out: Annotated[
        Optional[Path], typer.Option("--out", metavar="FILE", help="File to write; default: OUTPUT/scene/splat.ply.")
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Leave holes where patches are missing, stale or failed.")
    ] = False,
    clean: Annotated[
        bool, typer.Option("--clean/--no-clean", help="Remove invisible, oversized and floating Gaussians.")
    ] = False,
    keep_uncleaned: Annotated[
        bool, typer.Option("--keep-uncleaned", help="With --clean: also write the uncleaned scene, to compare.")
    ] = False,
    json_: options.JsonOption = False,
) -> None:
    """Merge the splats of all patches, each cropped to its core, into one; writes only if something changed."""
    from splatbatch.cli.commands.scene import merge as merging

    how = {"allow_missing": allow_missing, "clean": clean, "keep_uncleaned": keep_uncleaned}
    merging.merge(the_batch(config, folder), out, how, as_json=json_)


@app.command()
def clean(
    folder: options.BatchArgument = None,
    config: options.ConfigOption = None,
    dry_run: options.DryRunOption = False,
    json_: options.JsonOption = False,
) -> None:
    """Remove checkpoints, pictures and splats of superseded attempts, but no accepted or previous splat."""
    from splatbatch.cli.commands import clean as cleaning

    cleaning.clean(the_batch(config, folder), dry_run=dry_run, as_json=json_)
