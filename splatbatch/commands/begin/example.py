"""`init --example`: a complete configuration to begin from, as it came with the program."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import typer

from splatbatch.config import DEFAULT_CONFIG
from splatbatch.config.shipped import shipped
from splatbatch.errors import ConfigError, OutputError
from splatbatch.plain_text import one_line

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
        raise ConfigError(f"{target} exists already", "Move it away, or choose another name with --out.")
    examples = shipped("examples")
    if examples is None:
        raise OutputError("the examples are not installed", "Install the wheel again: it carries them.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((examples / FILES[name]).read_bytes())
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror})") from error
    following = f"splatbatch plan --config {shlex.quote(str(target))}"
    typer.echo(one_line(f"{target}: the example {name!r}. Set scene to where your patches lie, then: {following}"))
