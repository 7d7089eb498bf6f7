"""`init` and `verify-dims`: the commands before a batch."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer
from rich.table import Table

from splatbatch import config as configuration
from splatbatch.commands.output import open_console, print_json
from splatbatch.errors import ConfigError, OutputError, SceneError
from splatbatch.machine.gpu import presence
from splatbatch.monitor.table import narrowed
from splatbatch.plain_text import counted, one_line, plain
from splatbatch.scene.audit.audit import Audit
from splatbatch.scene.patches import find_patches
from splatbatch.scene.template import config_for
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.settled.frame import FRAME, note, spans_of
from splatbatch.tasks.settled.settled import Todo
from splatbatch.tasks.settled.tones import in_words, look_at_colors
from splatbatch.tasks.task import patches_of

WORTHS = (9, 3, 4, 2, 7, 5, 8)
"""Of the columns of an audit, where a terminal has no room for all."""


@dataclass(frozen=True)
class VerifyOptions:
    """What `verify-dims` was asked."""

    as_json: bool
    strict: bool
    fix: str
    out: Path | None
    deep: bool = False
    """Decode every photograph and mask."""
    colors: bool = False
    """Solve the tones of the photographs, too, and say which differ."""


def verify_dims(config: Path | None, names: Sequence[str], options: VerifyOptions) -> None:
    """Audit the patches; exit with 3 if there are findings that matter. With --fix, write corrected models.

    Raises:
        ConfigError: --fix and --out do not fit together.
        SceneError: a model cannot be repaired honestly.
    """
    from splatbatch.scene.audit.table import render

    batch = open_batch(config, names)
    audit = batch.audit(deep=options.deep)
    if options.fix or options.out:
        _fix(batch, audit, options)
        return
    frame = FRAME.settle(batch, Todo(batch.tasks, lambda: spans_of([audit])))
    tones = look_at_colors(batch) if options.colors else {}
    if options.as_json:
        colors = {"colors": {name or "all": one.to_record() for name, one in tones.items()}} if options.colors else {}
        print_json({**audit.to_record(), "frame": frame.to_record(), **colors})
    else:
        console = open_console()
        for part in render(audit):
            console.print(narrowed(part, WORTHS, console.width) if isinstance(part, Table) else part)
        if told := note(frame, audit.patches):
            typer.echo(one_line(told))
        for name, one in tones.items():
            for line in in_words(one):
                typer.echo(one_line(f"colours{f' of {name}' if name else ''}: {line}"))
    is_unlike = options.strict and any(one.outliers or one.left_alone or one.problem for one in tones.values())
    raise typer.Exit(SceneError.exit_code if is_unlike else audit.exit_code(strict=options.strict))


def _fix(batch: Batch, audit: Audit, options: VerifyOptions) -> None:
    """Write a corrected copy of every model and a YAML that trains them; say what changed and what it did."""
    from splatbatch.scene.repair import fix_models

    if options.fix not in ("scale", "crop") or options.out is None:
        raise ConfigError(f"--fix {options.fix}: should be scale or crop, with --out FOLDER for the corrected copies")
    how: Literal["scale", "crop"] = "scale" if options.fix == "scale" else "crop"
    repaired = fix_models(audit, patches_of(batch.tasks), batch.config.scene.source, how, options.out)
    config = _hand_over(batch, options.out) if repaired else None
    if options.as_json:
        print_json({"config": str(config) if config else None, "repaired": [one.to_record() for one in repaired]})
        return
    for one in repaired:
        typer.echo(plain(one.in_words()))
    if config:
        typer.echo(one_line(f"{config}: splatbatch train --config {shlex.quote(str(config))}"))
    else:
        typer.echo("every photograph fits its camera: nothing to repair, nothing written")


def _hand_over(batch: Batch, out: Path) -> Path:
    """Write the YAML of the corrected copies beside them: the batch's own, with their paths."""
    scene, config = batch.config.scene, out / configuration.DEFAULT_CONFIG
    new = {"patches": "."} | ({"source": "source"} if scene.source else {})
    new |= {name: str(path.resolve()) for name in ("images", "masks") if (path := getattr(scene, name))}
    paths = {"output.folder": "output"}
    if batch.config.evaluation.holdout_list:
        paths["evaluation.holdout_list"] = str(batch.config.evaluation.holdout_list.resolve())
    programs = {name: getattr(program, "working_folder", None) for name, program in batch.config.trainers.items()}
    paths |= {f"trainers.{name}.working_folder": str(folder.resolve()) for name, folder in programs.items() if folder}
    configuration.save_moved(batch.path, config, new, paths, [task.patch.name for task in batch.tasks])
    return config


def init(folder: Path, out: Path | None) -> None:
    """Write a commented config for what lies in a folder; an existing one is never overwritten.

    A folder that has to be imported first is named, with the command that does.
    """
    target = out or folder / configuration.DEFAULT_CONFIG
    if not folder.is_dir():
        raise SceneError(f"{folder}: no such folder")
    if told := _to_import(folder):
        typer.echo(one_line(told))
        return
    if target.exists():
        raise ConfigError(f"{target} exists already", "Move it away, or choose another name with --out.")
    try:
        target.write_text(config_for(folder, target.resolve().parent, has_gpu=presence().is_here()), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror})") from error
    patches = find_patches(configuration.load(target).scene)
    next_one = f"splatbatch verify-dims --config {shlex.quote(str(target))}"
    typer.echo(one_line(f"{target}: {counted(len(patches), 'patch', 'es')}. Next: {next_one}"))


def _to_import(folder: Path) -> str:
    """Return what to run where a folder holds no COLMAP scene but something that becomes one; else nothing."""
    from splatbatch.commands.import_ import next_command
    from splatbatch.scene.imports.importing import what_instead

    has_patches = (folder / "patches").is_dir()
    try:
        found = find_patches(configuration.Scene(patches=folder / "patches" if has_patches else folder))
    except SceneError as error:
        if told := next_command(folder):
            return told
        raise SceneError(error.message, what_instead(folder) or error.hint) from error
    # nerfstudio keeps the model that its transforms.json was made of in a folder of that name
    return next_command(folder) if [patch.name for patch in found] == ["colmap"] else ""
