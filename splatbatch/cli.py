"""The commands: one thin function per verb. What they mean is decided below."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from splatbatch.commands import options
from splatbatch.errors import OutputError, SplatbatchError

app = typer.Typer(
    help="Train one Gaussian splat per patch of a big COLMAP reconstruction, overnight, unattended.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
config_app = typer.Typer(help="Look at the configuration.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(config_app, name="config")


@app.command()
def train(
    config: options.ConfigOption = None,
    patch: options.PatchOption = [],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be trained, train nothing.")] = False,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not check the photographs first.")] = False,
    only: options.OnlyOption = [],
) -> None:
    """Train every patch that is not trained yet, or whose settings or inputs have changed."""
    from splatbatch.commands import run

    run.train(config, patch, only, verify=not no_verify, dry_run=dry_run)


@app.command()
def retry(
    config: options.ConfigOption = None,
    patch: options.PatchOption = [],
    failed: Annotated[bool, typer.Option("--failed", help="All patches that failed.")] = False,
    set_: options.SetOption = [],
    force: Annotated[bool, typer.Option("--force", help="Train patches again that are trained and fresh.")] = False,
    only: options.OnlyOption = [],
) -> None:
    """Train named patches, or all failed ones, again; with --set under other settings."""
    from splatbatch.commands import run

    run.retry(config, patch, run.RetryOptions(failed=failed, assignments=tuple(set_), force=force, only=tuple(only)))


@app.command("verify-dims")
def verify_dims(
    config: options.ConfigOption = None,
    patch: options.PatchOption = [],
    json_: options.JsonOption = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    fix: options.FixOption = "",
    out: options.FixedOption = None,
) -> None:
    """Check every photograph of every patch against its camera, and the models themselves."""
    from splatbatch.commands import prepare

    prepare.verify_dims(config, patch, prepare.VerifyOptions(as_json=json_, strict=strict, fix=fix, out=out))


@app.command()
def plan(
    config: options.ConfigOption = None,
    patch: options.PatchOption = [],
    only: options.OnlyOption = [],
    json_: options.JsonOption = False,
) -> None:
    """Say which patches would be trained, why, and at which steps things happen."""
    from splatbatch.commands import look

    look.plan(config, patch, only, as_json=json_)


@app.command()
def status(
    config: options.ConfigOption = None,
    patch: options.PatchOption = [],
    json_: options.JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it, until Ctrl-C.")] = False,
) -> None:
    """Say how far every patch is; from the files alone, also while a batch runs."""
    from splatbatch.commands import status as progress

    progress.status(config, patch, as_json=json_, watch=watch)


@app.command()
def logs(
    patch: options.PatchArgument,
    config: options.ConfigOption = None,
    attempt: options.AttemptOption = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what it says, until it ends.")] = False,
) -> None:
    """Print the log of a patch's attempt."""
    from splatbatch.commands import look

    look.logs(config, patch, attempt, follow=follow)


@app.command()
def explain(patch: options.PatchArgument, config: options.ConfigOption = None) -> None:
    """Tell a patch's whole story: attempts, evidence, changes, advice."""
    from splatbatch.commands import look

    look.explain(config, patch)


@app.command()
def diagnose(
    log: Annotated[Path, typer.Argument(help="The log of any training.", metavar="LOGFILE")],
    exit_code: options.ExitCodeOption = None,
    json_: options.JsonOption = False,
) -> None:
    """Explain a log: what went wrong, which lines show it, what to do."""
    from splatbatch.commands import look

    look.diagnose(log, exit_code, as_json=json_)


@app.command()
def report(config: options.ConfigOption = None, json_: options.JsonOption = False) -> None:
    """Write report.html, report.md and report.json, and print the report as text."""
    from splatbatch.commands import look

    look.report(config, as_json=json_)


@app.command()
def view(
    patch: options.PatchArgument,
    config: options.ConfigOption = None,
    port: options.PortOption = 8080,
) -> None:
    """Serve a patch's splat, in full and in 3D, to a browser on this machine, until Ctrl-C (extra `view`)."""
    from splatbatch.commands import view as viewing

    viewing.view(config, patch, port)


@app.command()
def trainers(config: options.ConfigOption = None, json_: options.JsonOption = False) -> None:
    """List the programs that can train, and what is missing on this machine for those that cannot."""
    from splatbatch.commands import trainers as listing

    listing.show(config, as_json=json_)


@app.command()
def export(
    patch: Annotated[Optional[list[str]], typer.Argument(metavar="PATCH", help="None: all that are trained.")] = None,
    config: options.ConfigOption = None,
    to: options.ToOption = None,
    sh_degree: options.DegreeOption = None,
    min_opacity: options.OpacityOption = 0.0,
    json_: options.JsonOption = False,
) -> None:
    """Write accepted splats elsewhere, as PLY files that every viewer reads."""
    from splatbatch.commands import export as exporting
    from splatbatch.splats.export import Cut

    exporting.export(config, patch or [], to, Cut(sh_degree, min_opacity), as_json=json_)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with patches, or a COLMAP scene.")],
    out: options.ConfigPathOption = None,
) -> None:
    """Write a commented splat_config.yml for what lies in a folder."""
    from splatbatch.commands import prepare

    prepare.init(folder, out)


@config_app.command("show")
def config_show(
    config: options.ConfigOption = None,
    patch: Annotated[str, typer.Option("--patch", "-p", metavar="NAME", help="What trains this patch.")] = "",
) -> None:
    """Print the resolved configuration, or what trains one patch."""
    from splatbatch.commands import look

    look.config_show(config, patch)


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON Schema of the YAML, for editors."""
    from splatbatch.config import json_schema

    typer.echo(json.dumps(json_schema(), indent=1))


def _print_version(wanted: bool) -> None:
    if wanted:
        from splatbatch import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def before(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    """Train one Gaussian splat per patch of a big COLMAP reconstruction, overnight, unattended."""


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; whatever stops a command ends in a message, a hint and its exit code."""
    try:
        return app(arguments)
    except SplatbatchError as error:
        typer.echo(f"splatbatch: {error.message}", err=True)
        if error.hint:
            typer.echo(f"  hint: {error.hint}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # whoever read our output has gone (`| head`): not an error of ours
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        from splatbatch.files import is_out_of_space

        if not is_out_of_space(error):
            raise
        typer.echo(f"splatbatch: {error.filename or 'output.folder'}: {error.strerror}", err=True)
        typer.echo("  hint: Free space, then run again: it goes on where it ended.", err=True)
        sys.exit(OutputError.exit_code)


if __name__ == "__main__":
    main()
