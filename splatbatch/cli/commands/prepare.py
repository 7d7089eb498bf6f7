"""`init` and `verify-dims`: the commands before a batch."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import typer
from rich.table import Table

from splatbatch.cli.commands.output import open_console, print_json, print_line
from splatbatch.errors import ConfigError, SceneError
from splatbatch.monitor.messages import PipeWriter, print_err
from splatbatch.monitor.table import narrowed
from splatbatch.run.prepare import begin, fix_cameras, verified
from splatbatch.scene.audit.audit import Audit
from splatbatch.tasks.audits import audit_for_all
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.shared_decisions.colors import in_words, look_at_colors
from splatbatch.tasks.shared_decisions.frame import choose_frame, note, spans_of
from splatbatch.tasks.shared_decisions.todo import PendingTasks
from splatbatch.text import plain

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
    audit = audit_for_all(
        batch, deep=options.deep, advance=partial(PipeWriter(print_err).advance, "verify-dims", unit="models")
    )
    if options.fix or options.out:
        raise typer.Exit(_fix(batch, audit, options))
    frame = choose_frame(batch, PendingTasks(batch.tasks, lambda: spans_of([audit])))
    tones = look_at_colors(batch) if options.colors else {}
    if options.as_json:
        print_json(verified(audit, frame, tones if options.colors else None))
    else:
        console = open_console()
        for part in render(audit):
            console.print(narrowed(part, WORTHS, console.width) if isinstance(part, Table) else part)
        if told := note(frame, audit.patches):
            print_line(told)
        for name, one in tones.items():
            for line in in_words(one):
                print_line(f"colours{f' of {name}' if name else ''}: {line}")
    is_unlike = options.strict and any(one.outliers or one.left_alone or one.problem for one in tones.values())
    raise typer.Exit(SceneError.exit_code if is_unlike else audit.exit_code(strict=options.strict))


def _fix(batch: Batch, audit: Audit, options: VerifyOptions) -> int:
    """Write a corrected copy of every model and a YAML that trains them; say what changed, and which errors are left.

    Returns:
        The exit code: 3 where the audit of what was written finds errors.

    Raises:
        ConfigError: --fix and --out do not fit together.
    """
    if options.fix not in ("scale", "crop") or options.out is None:
        raise ConfigError(f"--fix {options.fix}: should be scale or crop, with --out FOLDER for the corrected copies")
    how: Literal["scale", "crop"] = "scale" if options.fix == "scale" else "crop"
    repaired, config, audited = fix_cameras(batch, audit, how, options.out)
    code = 0 if audited is None or audited.is_well else SceneError.exit_code
    if options.as_json:
        print_json(
            {
                "config": str(config) if repaired else None,
                "repaired": [one.to_record() for one in repaired],
                "audit": audited and {"exit_code": audited.code, "said": audited.said},
            }
        )
        return code
    for one in repaired:
        typer.echo(plain(one.in_words()))
    if audited is None:
        print_line("All photographs match their cameras: nothing to repair, nothing written.")
    elif code:
        typer.echo(plain(audited.said))
        print_line(f"{config}: corrected copies written, but the errors above remain; fix them before training")
    else:
        print_line(f"{config}: corrected copies written. Next: splatbatch train --config {shlex.quote(str(config))}")
    return code


def init(place: Path, out: Path | None) -> None:
    """Write a commented config for what lies in a place; an existing one is never overwritten.

    What has to be imported first is named, with the command that does.
    """
    begun = begin(place, out)
    if isinstance(begun, str):
        print_line(begun)
        return
    for told in begun.found.notes:
        print_line(told)
    next_one = f"splatbatch verify-dims --config {shlex.quote(str(begun.config))}"
    print_line(f"{begun.in_words()}. Next: {next_one}")
