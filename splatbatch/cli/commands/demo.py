"""`demo`: a small quarry that comes with the program; `init --example`: a commented YAML that does."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import typer

from splatbatch.cli.commands.output import print_line
from splatbatch.config import DEFAULT_CONFIG
from splatbatch.config.data_files import shipped
from splatbatch.errors import ConfigError, OutputError
from splatbatch.text import plain


def demo(folder: Path, *, trains: bool) -> None:
    """Copy the quarry into a folder and train it.

    Raises:
        ConfigError: something lies in the folder that is not the quarry.
        OutputError: the quarry was not installed, or the folder cannot be written.
    """
    config = folder / DEFAULT_CONFIG
    source = shipped("quarry")
    if source is None:
        raise OutputError("the demo scene is not installed", "Reinstall splatbatch; its wheel contains the demo scene.")
    if folder.exists() and not (folder / "patches" / "p1").is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty", "Give a new or an empty folder.")
    try:
        if not config.exists():
            shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("output"))
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror})") from error
    named = shlex.quote(str(config))
    told = f"demo scene with two patches and {DEFAULT_CONFIG}: {folder}"
    if not trains:
        typer.echo(plain(f"{told}; to train, run: splatbatch train --config {named}"))
        return
    typer.echo(plain(f"{told}; running: splatbatch train --config {named}"))
    try:
        _train(config)
    finally:
        typer.echo(plain(f"next: cd {shlex.quote(str(folder))}; splatbatch status; splatbatch explain p1"))


def _train(config: Path) -> None:
    from splatbatch.cli.commands.train import train

    train(config, [], [], verify=True)


Example = Literal["night", "cpu", "sweep", "scenes"]
FILES: Mapping[Example, str] = {"night": "local.yml", "cpu": "cpu.yml", "sweep": "sweep.yml", "scenes": "scenes.yml"}


def write_example(name: Example, folder: Path, out: Path | None) -> None:
    """Write an example as the configuration of a folder; an existing one is never overwritten.

    Raises:
        ConfigError: there is one.
        OutputError: the examples were not installed, or it cannot be written.
    """
    target = out or folder / DEFAULT_CONFIG
    if target.exists():
        raise ConfigError(f"{target} exists already", "Move the file, or give another name with --out.")
    examples = shipped("examples")
    if examples is None:
        raise OutputError("the examples are not installed", "Reinstall splatbatch; its wheel contains the examples.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((examples / FILES[name]).read_bytes())
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror})") from error
    following = f"splatbatch plan --config {shlex.quote(str(target))}"
    print_line(f"{target}: example {name!r} written. Set the paths in its section scene, then run: {following}")
