"""Options that several commands share; slow modules are imported only when needed, so that --help is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

from typer import Argument, CallbackParam, Option


def patches_in(ctx: Any, incomplete: str) -> list[str]:
    """Return the patches of the batch that begin with `incomplete`, for shell completion.

    []: there is no batch, it cannot be opened, or no name fits. The batch is that of --config in `ctx`.
    """
    from splatbatch.errors import SplatbatchError
    from splatbatch.tasks.batch import open_batch
    from splatbatch.text import one_line

    try:
        names = open_batch(ctx.params.get("config")).names
    except (SplatbatchError, OSError):
        return []
    return [one_line(name) for name in names if name.startswith(incomplete)]


def settings_in(incomplete: str) -> list[str]:
    """Return the settings that begin with `incomplete`, each as "training.seed=", for shell completion of --set."""
    from splatbatch.config import Recipe

    return [f"{key}=" for key in Recipe().as_given() if key.startswith(incomplete)]


def formats_in(incomplete: str) -> list[str]:
    """Return the continuations of `incomplete`, formats with commas between, for shell completion of --as.

    A film format is offered only as the first, since it stands alone.
    """
    from typing import get_args

    from splatbatch.config.sections import PublishedAs
    from splatbatch.publish.film import SUFFIXES

    before, comma, begun = incomplete.rpartition(",")
    known = get_args(PublishedAs) if comma else (*get_args(PublishedAs), *(suffix[1:] for suffix in SUFFIXES))
    return [f"{before}{comma}{kind}" for kind in known if kind.startswith(begun)]


def existing_file(option: CallbackParam, file: Path | None) -> Path | None:
    """Return the file of an option, after checking that it exists; None if the option was not given.

    Raises:
        ConfigError: there is no such file.
    """
    from splatbatch.config import near, no_such
    from splatbatch.errors import ConfigError

    if file and not file.is_file():
        raise ConfigError(f"{option.opts[0]} {file}: {no_such(file, 'file')}", near(file))
    return file


def named(metavar: str, words: str) -> Any:
    """Return a typer argument for names of patches, with shell completion of patches.

    `metavar` is the argument's name in the help, and `words` its description.
    """
    return Argument(autocompletion=patches_in, metavar=metavar, help=words, show_default=False)


ConfigOption = Annotated[
    Optional[Path],
    Option(
        "--config",
        "-c",
        metavar="FILE",
        help="YAML file or its folder; - reads standard input. Default: $SPLATBATCH_CONFIG, or splat_config.yml.",
    ),
]
BatchArgument = Annotated[
    Optional[str],
    Argument(metavar="FOLDER", help="Folder of the batch, or its YAML; same as --config.", show_default=False),
]
PatchArguments = Annotated[
    list[str], named("PATCH", "Only these patches, such as p5 p7; the YAML or its folder can stand before them.")
]
WorkedArguments = Annotated[
    list[str], named("PATCH|STORE", "Only these patches, such as p5 p7; or a store: ssh://…, s3://… or a folder.")
]
OnlyOption = Annotated[
    list[str], Option(metavar="WHAT=NAME", help="Only variant=NAME or patch=NAME; * matches anything.")
]
SetOption = Annotated[
    list[str],
    Option(
        "--set",
        metavar="KEY=VALUE",
        autocompletion=settings_in,
        help="Change a setting, such as training.init_scale=0.3.",
    ),
]
JsonOption = Annotated[bool, Option("--json", help="Print JSON on stdout.")]
NoVerifyOption = Annotated[bool, Option("--no-verify", help="Skip the check of the photographs.")]
PortOption = Annotated[
    int, Option(metavar="N", min=1, max=65535, help="Port to serve on; if it is taken, the next free port.")
]
ImagesOption = Annotated[Optional[Path], Option(metavar="DIR", help="Photographs; default: images beside the model.")]
