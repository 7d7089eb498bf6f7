"""The typer app: its version, its groups of commands, and how a command opens the batch and patches named in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from typer import BadParameter
from typer.core import TyperGroup

from splatbatch.errors import ConfigError

if TYPE_CHECKING:
    from typer._click import Context

    from splatbatch.tasks.batch import Batch
    from splatbatch.tasks.task import Task

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Every day": ("train", "status", "report", "explain", "retry", "view", "serve"),
    "Get started": ("demo", "init", "import", "reconstruct", "split", "scene", "doctor"),
    "Check before training": ("verify-dims", "plan", "config"),
    "Train": ("work", "cancel", "pack", "adopt"),
    "Measure quality": ("evaluate", "inspect", "plan-capture"),
    "Use the splats": ("accept", "merge", "publish", "clean"),
}
"""Groups in which help lists the commands, in this order; commands of no group are listed at the end as "More"."""


class PlainHelp(TyperGroup):
    """A group of commands whose help shows arguments without Python types."""

    def get_command(self, ctx: Context, cmd_name: str) -> Any:
        """Return a command whose help shows arguments by their names, without Python types; None: no such command."""
        command = super().get_command(ctx, cmd_name)
        for one in command.params if command else ():
            if one.param_type_name == "argument":
                one.__dict__["display_type_rich"] = partial(_always, "")
                if "[" in (metavar := one.metavar or ""):  # it says by itself what may be left out
                    one.__dict__["get_usage_pieces"] = partial(_always, [metavar])
        return command


class GroupedCommands(PlainHelp):
    """Group of all commands of the app; help lists them by `GROUPS`."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the command line; --config may precede the command. Returned are the words after the command's name."""
        return super().parse_args(ctx, command_first(args))

    def invoke(self, ctx: Context) -> object:
        """Run the command; a wrong value of an option gets the words for a wrong value in the YAML.

        Raises:
            BadParameter: an option or argument has a wrong value.
        """
        try:
            return super().invoke(ctx)
        except BadParameter as error:
            from pydantic import ValidationError

            from splatbatch.config.yaml.mistakes import WORDS, quoted, words_of

            if isinstance(error.__cause__, ValidationError):
                detail = error.__cause__.errors()[0]
                words = words_of(detail)
                error.message = f"{quoted(detail['input'])} {words}" if detail["type"] in WORDS else words
            raise

    def format_commands(self, ctx: Context, formatter: Any) -> None:
        """Write a section of the help for each group, with one line for each command that is not hidden."""
        shown = {
            name: one for name in self.list_commands(ctx) if (one := self.get_command(ctx, name)) and not one.hidden
        }
        named = {name for names in GROUPS.values() for name in names}
        groups = {**GROUPS, "More": tuple(name for name in shown if name not in named)}
        for title, names in groups.items():
            if rows := [(name, _first_words(shown[name].help or "")) for name in names if name in shown]:
                with formatter.section(title):
                    formatter.write_dl(rows)


def command_first(args: list[str]) -> list[str]:
    """Return the arguments with a leading --config (or -c) and its value moved behind the command.

    Arguments that do not begin with this option are returned unchanged.
    """
    if not args or args[0].partition("=")[0] not in ("-c", "--config"):
        return args
    num = 1 if "=" in args[0] else 2
    words = 2 if args[num : num + 1] == ["config"] else 1  # `config show`
    return [*args[num : num + words], *args[:num], *args[num + words :]]


def _always(value: object, *_: object, **__: object) -> object:
    """Return a value, whatever the other arguments are."""
    return value


def _first_words(text: str) -> str:
    """Return the first clause of a command's help, without brackets, for the list of all commands."""
    plain = re.sub(r"\s*\([^)]*\)", "", text)
    return re.split(r"[.;:](?:\s|$)", plain, maxsplit=1)[0] + "."


app = typer.Typer(
    cls=GroupedCommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train one Gaussian splat per patch of a big COLMAP reconstruction, overnight, unattended.",
    epilog="Start with `splatbatch train FOLDER`. `splatbatch COMMAND -h` shows the options of a command.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
config_app = typer.Typer(
    cls=PlainHelp,
    help="Show the configuration, or the JSON Schema of it and of what commands print.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(config_app, name="config")


def _print_version(wanted: bool) -> None:
    if wanted:
        from splatbatch import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def before(version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False) -> None:
    """Train one Gaussian splat per patch of a big COLMAP reconstruction, overnight, unattended."""


def the_batch(config: Optional[Path], named: Optional[str]) -> Optional[Path]:
    """Return the YAML named by --config or by an argument; None: the default one.

    Args:
        config: the value of --config; None: not given.
        named: the argument, a YAML or the folder of one; None: not given.

    Raises:
        ConfigError: both are given, or the argument is neither a YAML nor the folder of one.
        LaterFormatError: a later version of splatbatch wrote partition.json in a named folder.
    """
    from splatbatch.config import near
    from splatbatch.tasks.batch import named_batch

    chosen, rest = named_batch(config, named or ())
    if rest and config:
        raise ConfigError(f"{rest[0]}: the batch is already given by --config {config}", "Give only one of them.")
    if rest:
        raise ConfigError(f"{rest[0]}: not a batch folder or YAML file", near(Path(rest[0])))
    return chosen


def is_store(name: str) -> bool:
    """Return whether an argument names a store: a URL with a scheme, or a folder that holds bundles."""
    return "://" in name or Path(name, "bundles").is_dir()


def open_folder(config: Optional[Path], named: Optional[str]) -> Batch:
    """Return the batch named by --config or by an argument, with all its patches.

    Raises:
        SplatbatchError: as for `the_batch`, or the batch cannot be opened, see `open_batch`.
    """
    from splatbatch.tasks.batch import open_batch

    return open_batch(the_batch(config, named))


def open_splats(config: Optional[Path], arguments: list[str]) -> tuple[Batch, Sequence[str]]:
    """Return the batch with the named patches, and all names, which may include `scene`; without names, all patches.

    The first argument may name the batch instead of a patch.

    Raises:
        SplatbatchError: the batch cannot be opened, or a patch does not exist; see `open_batch`.
    """
    from splatbatch.tasks.batch import named_batch, open_batch
    from splatbatch.tasks.inspection import SCENE

    config, names = named_batch(config, arguments)
    return open_batch(config, [name for name in names if name != SCENE]), names


def the_one(names: Sequence[str]) -> str:
    """Return the single name that was given to a command which takes one.

    Raises:
        ConfigError: there are several names, or none.
    """
    if len(names) == 1:
        return names[0]
    if names:
        raise ConfigError(f"{', '.join(names)}: several patches given", "Give only one of them.")
    raise ConfigError("no patch given", "Give the name of a patch, such as p5.")


def open_one(config: Optional[Path], arguments: list[str]) -> tuple[Batch, Task]:
    """Return the batch with the single named patch, and the task of the patch.

    Raises:
        ConfigError: no patch was named, or several, or there is no such patch, or it has several variants.
        SplatbatchError: the batch cannot be opened; see `open_batch`.
    """
    from splatbatch.tasks.batch import named_batch, open_batch
    from splatbatch.tasks.task import single_task

    config, names = named_batch(config, arguments)
    batch = open_batch(config, [name := the_one(names)])
    return batch, single_task(batch.tasks, name)
