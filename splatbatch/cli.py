"""The commands: one thin function per verb. What they mean is decided below."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn, Optional

import typer

from splatbatch import terminal
from splatbatch.commands import options
from splatbatch.errors import ConfigError, OutputError, SplatbatchError
from splatbatch.plain_text import plain

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
    patches: options.PatchArguments = None,
    config: options.ConfigOption = None,
    patch: options.PatchOption = [],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be trained, train nothing.")] = False,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not check the photographs first.")] = False,
    only: options.OnlyOption = [],
) -> None:
    """Train every patch that is not trained yet, or whose settings or inputs have changed."""
    from splatbatch.commands.train import train

    train.train(config, _named(patches, patch), only, verify=not no_verify, dry_run=dry_run)


@app.command()
def retry(
    patches: options.PatchArguments = None,
    config: options.ConfigOption = None,
    patch: options.PatchOption = [],
    failed: Annotated[bool, typer.Option("--failed", help="All patches that failed.")] = False,
    set_: options.SetOption = [],
    force: Annotated[bool, typer.Option("--force", help="Train patches again that are trained and fresh.")] = False,
    only: options.OnlyOption = [],
    save: Annotated[bool, typer.Option("--save", help="Write the settings of --set into the YAML.")] = False,
) -> None:
    """Train named patches, or all failed ones, again; with --set under other settings. The better splat is kept."""
    from splatbatch.commands.train import train

    wish = train.RetryOptions(failed=failed, assignments=tuple(set_), force=force, only=tuple(only), save=save)
    train.retry(config, _named(patches, patch), wish)


@app.command()
def cancel(config: options.ConfigOption = None, patch: options.PatchOption = []) -> None:
    """End the batch that runs, here or on another host, or some of its patches; what ran is recorded as stopped."""
    from splatbatch.commands import cancel as cancelling

    cancelling.cancel(config, patch)


@app.command("verify-dims")
def verify_dims(
    patches: options.PatchArguments = None,
    config: options.ConfigOption = None,
    patch: options.PatchOption = [],
    json_: options.JsonOption = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    fix: options.FixOption = "",
    out: options.FixedOption = None,
) -> None:
    """Check every photograph of every patch against its camera, and the models themselves."""
    from splatbatch.commands import prepare

    prepare.verify_dims(
        config, _named(patches, patch), prepare.VerifyOptions(as_json=json_, strict=strict, fix=fix, out=out)
    )


@app.command()
def plan(
    patches: options.PatchArguments = None,
    config: options.ConfigOption = None,
    patch: options.PatchOption = [],
    only: options.OnlyOption = [],
    json_: options.JsonOption = False,
) -> None:
    """Say which patches would be trained, why, and at which steps things happen."""
    from splatbatch.commands import look

    look.plan(config, _named(patches, patch), only, as_json=json_)


@app.command()
def status(
    patches: options.PatchArguments = None,
    config: options.ConfigOption = None,
    patch: options.PatchOption = [],
    json_: options.JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it, until Ctrl-C.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Read every splat and photograph, trust no times.")] = False,
) -> None:
    """Say how far every patch is; from the files alone, also while a batch runs."""
    from splatbatch.commands.status import status as progress

    progress.status(config, _named(patches, patch), progress.StatusOptions(json_, watch, verify))


@app.command()
def logs(
    patch: options.OnePatchArgument = None,
    config: options.ConfigOption = None,
    named: options.OnePatchOption = "",
    attempt: options.AttemptOption = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what it says, until it ends.")] = False,
) -> None:
    """Print the log of a patch's attempt."""
    from splatbatch.commands import look

    look.logs(config, _the_one(patch, named), attempt, follow=follow)


@app.command()
def explain(
    patch: options.OnePatchArgument = None, config: options.ConfigOption = None, named: options.OnePatchOption = ""
) -> None:
    """Tell a patch's whole story: attempts, evidence, changes, advice."""
    from splatbatch.commands import look

    look.explain(config, _the_one(patch, named))


@app.command()
def compare(
    one: options.RunArgument,
    other: options.OtherRunArgument = "",
    config: options.ConfigOption = None,
    json_: options.JsonOption = False,
) -> None:
    """Put the attempts at a patch side by side, or the patches of two runs."""
    from splatbatch.commands import compare as comparing

    comparing.compare(config, one, other, as_json=json_)


@app.command()
def accept(
    attempt: options.AcceptedOption,
    patch: options.OnePatchArgument = None,
    config: options.ConfigOption = None,
    named: options.OnePatchOption = "",
) -> None:
    """Make the splat of another attempt the product of its patch; `compare` shows which there are."""
    from splatbatch.commands import accept as accepting

    accepting.accept(config, _the_one(patch, named), attempt)


@app.command()
def clean(
    config: options.ConfigOption = None, dry_run: options.DryRunOption = False, json_: options.JsonOption = False
) -> None:
    """Remove checkpoints, pictures and splats of superseded attempts; never an accepted splat, nor the one before."""
    from splatbatch.commands import clean as cleaning

    cleaning.clean(config, dry_run=dry_run, as_json=json_)


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
    patch: options.OnePatchArgument = None,
    config: options.ConfigOption = None,
    named: options.OnePatchOption = "",
    port: options.PortOption = 8080,
) -> None:
    """Serve a patch's splat, in full and in 3D, to a browser on this machine, until Ctrl-C (extra `view`)."""
    from splatbatch.commands.view import view as viewing

    viewing.view(config, _the_one(patch, named), port)


@app.command()
def trainers(config: options.ConfigOption = None, json_: options.JsonOption = False) -> None:
    """List the programs that can train, and what is missing on this machine for those that cannot."""
    from splatbatch.commands import trainers as listing

    listing.show(config, as_json=json_)


@app.command()
def doctor(
    config: options.ConfigOption = None,
    json_: options.JsonOption = False,
    warm: Annotated[bool, typer.Option("--warm", help="Build all GPU kernels first, so that no patch has to.")] = False,
) -> None:
    """Say whether this machine can train, and the batch of a config on it, and what to do where it cannot."""
    from splatbatch.commands import doctor as examining

    examining.doctor(config, as_json=json_, build=warm)


@app.command()
def export(
    patches: options.PatchArguments = None,
    config: options.ConfigOption = None,
    patch: options.PatchOption = [],
    to: options.ToOption = None,
    sh_degree: options.DegreeOption = None,
    min_opacity: options.OpacityOption = 0.0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that no export wrote.")] = False,
    json_: options.JsonOption = False,
) -> None:
    """Write accepted splats elsewhere, as PLY files that every viewer reads."""
    from splatbatch.commands import export as exporting
    from splatbatch.splats.export import Cut

    exporting.export(
        config, _named(patches, patch), exporting.To(to, force), Cut(sh_degree, min_opacity), as_json=json_
    )


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


def _named(arguments: Optional[list[str]], options: list[str]) -> list[str]:
    """Return the patches that were named, either way."""
    return [*(arguments or []), *options]


def _the_one(argument: Optional[str], option: str) -> str:
    """Return the one patch that was named, either way."""
    if not (name := argument or option):
        raise ConfigError("no patch named", "Name one, as p5.")
    return name


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
    terminal.open_closed_descriptors()
    try:
        return app(arguments)
    except SplatbatchError as error:
        _end(error)
    except OSError as error:
        if isinstance(error, BrokenPipeError) or terminal.is_of_dead_terminal(error):
            terminal.hush()  # whoever read our output has gone (`| head`): not an error of ours
            sys.exit(0)
        from splatbatch.files import is_out_of_space

        where = error.filename if isinstance(error.filename, str) else "a file of the output folder, or of the scene"
        remedy = "Free space" if is_out_of_space(error) else "See to its permissions, its disk and its share"
        message = f"{where}: {error.strerror or error}"
        _end(OutputError(message, f"{remedy}, then run again: it goes on where it ended."))


def _end(error: SplatbatchError) -> NoReturn:
    terminal.never_block()
    hint = f"\n  hint: {error.hint}" if error.hint else ""
    typer.echo(plain(f"splatbatch: {error.message}{hint}"), err=True)
    sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
