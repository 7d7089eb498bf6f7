"""`verify-dims`: the audit of a batch on a terminal, and corrected copies of its models."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

import typer
from rich.table import Table

from splatbatch.cli.commands.output import open_console, print_json, print_line
from splatbatch.errors import ConfigError, SceneError
from splatbatch.monitor.messages import PipeWriter, print_err
from splatbatch.monitor.table import narrowed
from splatbatch.run.prepare import fix_cameras, verified
from splatbatch.scene.audit.audit import Audit
from splatbatch.tasks.audits import audit_for_all
from splatbatch.tasks.batch import Batch, PendingTasks
from splatbatch.tasks.shared_decisions.colors import in_words, look_at_colors
from splatbatch.tasks.shared_decisions.frame import choose_frame, note, spans_of
from splatbatch.text import plain

WORTHS = (9, 3, 4, 2, 7, 5, 8)
"""Of the columns of an audit, where a terminal has no room for all."""


def audit(batch: Batch, *, deep: bool) -> Audit:
    """Audit the patches of a batch, and print how far it is."""
    advance = partial(PipeWriter(print_err).advance, "verify-dims", unit="models")
    return audit_for_all(batch, deep=deep, advance=advance)


def verify(batch: Batch, audit: Audit, *, as_json: bool, strict: bool, colors: bool) -> int:
    """Print what an audit has found; return the exit code: 3 if there are findings that matter."""
    from splatbatch.scene.audit.table import render

    frame = choose_frame(batch, PendingTasks(batch.tasks, lambda: spans_of([audit])))
    tones = look_at_colors(batch) if colors else {}
    if as_json:
        print_json(verified(audit, frame, tones if colors else None))
    else:
        console = open_console()
        for part in render(audit):
            console.print(narrowed(part, WORTHS, console.width) if isinstance(part, Table) else part)
        if told := note(frame, audit.patches):
            print_line(told)
        for name, one in tones.items():
            for line in in_words(one):
                print_line(f"colours{f' of {name}' if name else ''}: {line}")
    is_unlike = strict and any(one.outliers or one.left_alone or one.problem for one in tones.values())
    return SceneError.exit_code if is_unlike else audit.exit_code(strict=strict)


def fix(batch: Batch, audit: Audit, how: str, out: Path | None, *, as_json: bool) -> int:
    """Write a corrected copy of every model and a YAML that trains them; say what changed, and which errors are left.

    Returns:
        The exit code: 3 where the audit of what was written finds errors.

    Raises:
        ConfigError: --fix and --out do not fit together.
    """
    if how not in ("scale", "crop") or out is None:
        raise ConfigError(f"--fix {how}: should be scale or crop, with --out FOLDER for the corrected copies")
    repaired, config, audited = fix_cameras(batch, audit, "scale" if how == "scale" else "crop", out)
    code = 0 if audited is None or audited.is_well else SceneError.exit_code
    if as_json:
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
