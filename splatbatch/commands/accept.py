"""`accept`: the splat of another attempt becomes the product of its patch."""

from __future__ import annotations

from pathlib import Path

import typer

from splatbatch.commands.compare import attempt_table, rows_of
from splatbatch.commands.output import open_console
from splatbatch.commands.train.summary import write_the_report
from splatbatch.errors import ConfigError
from splatbatch.fields import mapping, text
from splatbatch.files import Record, read_json
from splatbatch.store import results
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.best import psnr_of
from splatbatch.store.hashes import sha256_of
from splatbatch.store.layout import PatchFolder
from splatbatch.store.ledger import Ledger
from splatbatch.store.lock import OutputLock
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.fingerprints.fingerprint import fingerprint
from splatbatch.tasks.task import the_unit


def accept(config: Path | None, name: str, number: int) -> None:
    """Make the splat of an attempt the product, for the settings and inputs of today: no `train` undoes it.

    Raises:
        ConfigError: there is no such attempt, or no whole splat of it.
        OutputError: a run holds the output folder.
    """
    batch = open_batch(config, [name])
    unit = the_unit(batch.patches, name)
    folder = batch.output.patch(unit)
    with OutputLock(batch.output.lock):
        attempt = _attempt(folder, unit, number)
        record = _manifest(folder, attempt, unit)
        now = fingerprint(batch.patches[0], batch.config.recipe(unit)).to_record()
        results.accept(folder, attempt, {**record, "pinned": now})
        Ledger(batch.output.ledger).write("accepted", patch=unit, attempt=number)
    whole = batch.whole()
    write_the_report(whole, whole.standing())
    psnr = psnr_of(record)
    figures = f", {psnr:.2f} dB" if psnr is not None else ""
    typer.echo(f"{unit}: attempt {number} accepted{figures}; `train` keeps it until settings or inputs change")
    open_console().print(attempt_table(rows_of(batch, unit)))


def _attempt(folder: PatchFolder, unit: str, number: int) -> AttemptFolder:
    attempts = folder.attempts()
    if found := next((attempt for attempt in attempts if attempt.number == number), None):
        return found
    have = ", ".join(str(attempt.number) for attempt in attempts) or "none"
    raise ConfigError(f"accept {unit}: no attempt {number} (there are: {have})", f"See `splatbatch compare {unit}`.")


def _manifest(folder: PatchFolder, attempt: AttemptFolder, unit: str) -> Record:
    """Return the manifest of an attempt's splat, seen to be that of the file.

    Raises:
        ConfigError: it left no splat, or it is there no more, or no longer as it was.
    """
    product = read_json(folder.result) or {}
    record = read_json(attempt.result)
    if record is None and text(product.get("attempt")) == attempt.path.name:
        raise ConfigError(f"accept {unit}: attempt {attempt.number} is accepted already")  # by 0.1.0
    hint = f"See `splatbatch compare {unit}`, or train it again: splatbatch retry {unit}."
    if record is None or not attempt.splat.exists():
        raise ConfigError(f"accept {unit}: attempt {attempt.number} has no splat that could be accepted", hint)
    written = text(mapping(record.get("splat")).get("sha256"))
    if sha256_of(attempt.splat) != written:
        raise ConfigError(f"accept {unit}: the splat of attempt {attempt.number} has changed on disk", hint)
    return record
