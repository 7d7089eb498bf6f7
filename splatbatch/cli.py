"""The commands: one thin function per verb. What they mean is decided below."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

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

ConfigOption = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads this at run time
    typer.Option("--config", "-c", help="The YAML; else $SPLATBATCH_CONFIG, else splat_config.yml here."),
]
PatchOption = Annotated[list[str], typer.Option("--patch", "-p", help="Only this patch; may be given several times.")]
OnlyOption = Annotated[list[str], typer.Option("--only", help="Only variant=NAME or patch=NAME; * for anything.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
SetOption = Annotated[list[str], typer.Option("--set", help="Change a setting, as training.init_scale=0.3.")]


@app.command()
def train(
    config: ConfigOption = None,
    patch: PatchOption = [],  # noqa: B006 - typer's way of saying "none given"
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be trained, train nothing.")] = False,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not check the photographs first.")] = False,
    only: OnlyOption = [],  # noqa: B006
) -> None:
    """Train every patch that is not trained yet, or whose settings or inputs have changed."""
    from splatbatch.commands import run

    run.train(config, patch, only, verify=not no_verify, dry_run=dry_run)


@app.command()
def retry(  # noqa: PLR0913, PLR0917 - one parameter per option
    config: ConfigOption = None,
    patch: PatchOption = [],  # noqa: B006
    failed: Annotated[bool, typer.Option("--failed", help="All patches that failed.")] = False,
    set_: SetOption = [],  # noqa: B006
    force: Annotated[bool, typer.Option("--force", help="Train patches again that are trained and fresh.")] = False,
    only: OnlyOption = [],  # noqa: B006
) -> None:
    """Train named patches, or all failed ones, again; with --set under other settings."""
    from splatbatch.commands import run

    run.retry(config, patch, run.RetryOptions(failed=failed, assignments=tuple(set_), force=force, only=tuple(only)))


@app.command("verify-dims")
def verify_dims(  # noqa: PLR0913, PLR0917 - one parameter per option
    config: ConfigOption = None,
    patch: PatchOption = [],  # noqa: B006
    json_: JsonOption = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    fix: Annotated[str, typer.Option("--fix", help="scale or crop: write corrected models to --out.")] = "",
    out: Annotated[Optional[Path], typer.Option("--out", help="Folder for the corrected models.")] = None,  # noqa: UP045
) -> None:
    """Check every photograph of every patch against its camera, and the models themselves."""
    from splatbatch.commands import prepare

    prepare.verify_dims(config, patch, prepare.VerifyOptions(as_json=json_, strict=strict, fix=fix, out=out))


@app.command()
def plan(
    config: ConfigOption = None,
    patch: PatchOption = [],  # noqa: B006
    only: OnlyOption = [],  # noqa: B006
    json_: JsonOption = False,
) -> None:
    """Say which patches would be trained, why, and at which steps things happen."""
    from splatbatch.commands import look

    look.plan(config, patch, only, as_json=json_)


@app.command()
def status(
    config: ConfigOption = None,
    patch: PatchOption = [],  # noqa: B006
    json_: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it, until Ctrl-C.")] = False,
) -> None:
    """Say how far every patch is; from the files alone, also while a batch runs."""
    from splatbatch.commands import look

    look.status(config, patch, as_json=json_, watch=watch)


@app.command()
def logs(
    patch: Annotated[str, typer.Argument(help="The patch.")],
    config: ConfigOption = None,
    attempt: Annotated[int, typer.Option("--attempt", "-a", help="Its number; else the latest.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what it says, until it ends.")] = False,
) -> None:
    """Print the log of a patch's attempt."""
    from splatbatch.commands import look

    look.logs(config, patch, attempt, follow=follow)


@app.command()
def explain(patch: Annotated[str, typer.Argument(help="The patch.")], config: ConfigOption = None) -> None:
    """Tell a patch's whole story: attempts, evidence, changes, advice."""
    from splatbatch.commands import look

    look.explain(config, patch)


@app.command()
def diagnose(
    log: Annotated[Path, typer.Argument(help="The log of any training.", metavar="LOGFILE")],
    exit_code: Annotated[Optional[int], typer.Option("--exit-code", help="How it ended; -9 or 137: killed.")] = None,  # noqa: UP045
    json_: JsonOption = False,
) -> None:
    """Explain a log: what went wrong, which lines show it, what to do."""
    from splatbatch.commands import look

    look.diagnose(log, exit_code, as_json=json_)


@app.command()
def report(config: ConfigOption = None, json_: JsonOption = False) -> None:
    """Write report.html, report.md and report.json, and print the report as text."""
    from splatbatch.commands import look

    look.report(config, as_json=json_)


@app.command()
def view(
    patch: Annotated[str, typer.Argument(help="The patch.")],
    config: ConfigOption = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The next free one from here on.")] = 8080,
) -> None:
    """Serve a patch's splat, in full and in 3D, to a browser on this machine, until Ctrl-C (extra `view`)."""
    from splatbatch.commands import view as viewing

    viewing.view(config, patch, port)


@app.command()
def trainers(config: ConfigOption = None, json_: JsonOption = False) -> None:
    """List the programs that can train, and what is missing on this machine for those that cannot."""
    from splatbatch.commands import trainers as listing

    listing.show(config, as_json=json_)


@app.command()
def export(  # noqa: PLR0913, PLR0917 - one parameter per option
    patch: Annotated[Optional[list[str]], typer.Argument(help="Patches; none: all that are trained.")] = None,  # noqa: UP045
    config: ConfigOption = None,
    to: Annotated[Optional[Path], typer.Option("--to", help="A folder, or a .ply file; else OUTPUT/export.")] = None,  # noqa: UP045
    sh_degree: Annotated[Optional[int], typer.Option(min=0, max=3, help="Leave higher harmonics out.")] = None,  # noqa: UP045
    min_opacity: Annotated[float, typer.Option(min=0, max=0.99, help="Leave fainter Gaussians out.")] = 0.0,
    json_: JsonOption = False,
) -> None:
    """Write accepted splats elsewhere, as PLY files that every viewer reads."""
    from splatbatch.commands import export as exporting
    from splatbatch.splats.export import Cut

    exporting.export(config, patch or [], to, Cut(sh_degree, min_opacity), as_json=json_)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Folder with patches, or a COLMAP scene.")],
    out: Annotated[Optional[Path], typer.Option("--out", help="Where to write; else FOLDER/splat_config.yml.")] = None,  # noqa: UP045
) -> None:
    """Write a commented splat_config.yml for what lies in a folder."""
    from splatbatch.commands import prepare

    prepare.init(folder, out)


@config_app.command("show")
def config_show(config: ConfigOption = None, patch: Annotated[str, typer.Option("--patch", "-p")] = "") -> None:
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
def options(
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
