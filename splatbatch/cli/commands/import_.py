"""`import`: what other programs have reconstructed becomes a COLMAP model, a YAML and a report of both."""

from __future__ import annotations

import shlex
from pathlib import Path

from splatbatch import config as configuration
from splatbatch.cli.commands.output import open_console, print_line
from splatbatch.scene.audit.audit import Audit
from splatbatch.scene.imports.run import ImportResult
from splatbatch.scene.imports.write import RECORD
from splatbatch.text import one_line, plain, plural, spell_place


def print_import(folder: Path, done: ImportResult, audit: Audit) -> None:
    """Print what was converted and what was not, and the audit of the model."""
    from splatbatch.scene.audit.table import render

    capture = done.capture
    found = f"{plural(len(capture.shots), 'photograph')} linked, {plural(done.num_points, 'point')}"
    print_line(f"{folder}: {capture.kind}: {found}")
    print_line(f"coordinates: {capture.world}{f'; {capture.crs[:200]}' if capture.crs else ''}")
    if any(done.offset):
        print_line(f"offset {spell_place(done.offset)} is subtracted before training (scene.offset)")
    for words, lines in (("converted", done.notes.converted), ("not converted", done.notes.left_out)):
        if lines:
            print_line("\n  ".join([f"{words}:", *map(one_line, map(plain, lines))]))
    console = open_console()
    for part in render(audit):
        console.print(part)
    config = shlex.quote(str(folder / configuration.DEFAULT_CONFIG))
    next_one = "verify-dims" if audit.errors() else "train"
    print_line(f"Details of the import: {folder / RECORD}. Next: splatbatch {next_one} --config {config}")
