"""`explain`: a patch's whole history from its files, the log of an attempt, or what went wrong in any log."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import typer

from splatbatch.commands.compare import attempt_table, rows_of
from splatbatch.commands.output import open_console, print_json
from splatbatch.config import find_config, load
from splatbatch.config.load import has_config
from splatbatch.errors import ConfigError, OutputError
from splatbatch.failures.causes import spelled
from splatbatch.failures.diagnose import diagnose_log
from splatbatch.failures.log import Gap
from splatbatch.failures.own_signatures import own
from splatbatch.failures.settings import in_words
from splatbatch.failures.signatures import Signature
from splatbatch.files import MIB, open_regular, read_regular
from splatbatch.machine.orphans import has_died
from splatbatch.monitor.history import tell_history
from splatbatch.outcome import Action
from splatbatch.plain_text import plain
from splatbatch.report.build import OfAttempt, attempts_of
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.ledger import events
from splatbatch.store.log_ends import read_ends
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.status import read_status
from splatbatch.tasks.task import Task, the_task

OF_ATTEMPTS: tuple[type[OfAttempt], ...] = get_args(OfAttempt)
ACTIONS: Mapping[Action, str] = {
    "ok": "nothing to do",
    "retry": "worth another try as it is",
    "degrade": "worth another try with other settings",
    "fail": "no further try can help",
}
MOST_LOG_BYTES = 256 * MIB
"""A supervisor keeps 16 MiB of what a program says."""
FOLLOW_S = 0.3
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Asked:
    """What is to be explained."""

    name: str
    """A patch, or the file of a log."""
    exit_code: int | None = None
    """With which the program ended that wrote the log."""
    as_json: bool = False

    @property
    def is_log(self) -> bool:
        """Return whether it is a log: a path, or any file that lies here."""
        path = Path(self.name)
        return self.exit_code is not None or ((os.sep in self.name or path.exists()) and not path.is_dir())


def explain(config: Path | None, asked: Asked) -> None:
    """Print the whole history of a patch: attempts, evidence, changes, advice; or explain a log.

    Raises:
        ConfigError: there is no such patch; or the log cannot be read.
    """
    if asked.is_log:
        return _explain_log(Path(asked.name), asked.exit_code, _own(config), as_json=asked.as_json)
    batch = open_batch(config, [asked.name])
    task = the_task(batch.tasks, asked.name)
    if asked.as_json:
        return print_json(_explained(batch, task))
    if own := task.asked.differences:
        typer.echo(plain(f"{task.name}: set otherwise: {in_words(own)}").replace("\n", " "))
    for line in tell_history(batch.output, task.name, batch.standing()):
        typer.echo(plain(line).replace("\n", " "))
    if rows := rows_of(batch, task):
        console = open_console()
        console.print(attempt_table(rows, console.width))
    return None


def _own(config: Path | None) -> Sequence[Signature]:
    """Return the signatures of failures that the YAML names, if there is one."""
    return own(load(find_config(config)).failures) if has_config(config) else ()


def _explain_log(log: Path, exit_code: int | None, signatures: Sequence[Signature], *, as_json: bool) -> None:
    """Explain any log, also of another trainer."""
    try:
        open_regular(log).close()
    except OSError as error:
        raise ConfigError(f"{log}: cannot be read ({error.strerror})", "Name the log of a training.") from error
    ends = read_ends(log)
    found = diagnose_log(ends.text, exit_code, gap=Gap(ends.after, ends.left_out), own=signatures)
    if as_json:
        print_json(asdict(found))
        return
    typer.echo(plain(f"{spelled(found.cause)}, {ACTIONS[found.action]}: {found.advice}"))
    for line in found.evidence:
        typer.echo(plain(f"  | {line}"))


def print_log(config: Path | None, name: str, number: int, *, is_followed: bool) -> None:
    """Print the log of an attempt, the latest for 0; with `is_followed` also what it says until it ends.

    Raises:
        ConfigError: there is no such attempt.
        OutputError: its log cannot be read.
    """
    batch = open_batch(config, [name])
    attempts = batch.output.patch(the_task(batch.tasks, name).name).attempts()
    chosen = [folder for folder in attempts if number in (0, folder.number)]
    if not chosen:
        have = ", ".join(str(folder.number) for folder in attempts) or "none"
        raise ConfigError(f"{name}: no such attempt (there are: {have})", "Leave --attempt out for the latest.")
    if is_followed:
        follow(chosen[-1])
        return
    try:
        text = read_regular(chosen[-1].log, MOST_LOG_BYTES).decode(errors="replace")
        sys.stdout.write(plain(text))
        if not text:
            typer.echo(plain(f"{name}: {chosen[-1].path.name} has an empty log; see `status` and `explain`"), err=True)
    except OSError as error:
        raise OutputError(f"{chosen[-1].log}: cannot be read ({error.strerror})") from error


def follow(folder: AttemptFolder) -> None:
    """Print the log of an attempt as it grows, until the attempt has ended or Ctrl-C."""
    decoder, position, unsaid = codecs.getincrementaldecoder("utf-8")(errors="replace"), 0, ""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            # asked before the last look at the log, not after: nothing that it said stays unread
            is_over = folder.exit.exists() or has_died(folder)
            data, position = _read_on(folder, position)
            if data:
                # whole lines only: what a terminal would obey must not slip through in two halves
                lines, unsaid = _whole_lines(unsaid + decoder.decode(data))
                sys.stdout.write(plain(lines))
                sys.stdout.flush()
            elif is_over:
                sys.stdout.write(plain(unsaid))
                return
            else:
                time.sleep(FOLLOW_S)


def _whole_lines(text: str) -> tuple[str, str]:
    """Split off an unfinished last line; a progress bar's lines end with a carriage return."""
    end = max(text.rfind("\n"), text.rfind("\r", 0, len(text) - 1)) + 1
    return text[:end], text[end:]


def _read_on(folder: AttemptFolder, position: int) -> tuple[bytes, int]:
    """Return what a log holds behind a position, and the next one; the supervisor may have cut its middle out."""
    try:
        with open_regular(folder.log) as file:
            file.seek(min(position, folder.log.stat().st_size))
            return file.read(CHUNK_BYTES), file.tell()
    except OSError:
        return b"", position


def _explained(batch: Batch, task: Task) -> dict[str, Any]:
    """Return the history for programs."""
    statuses = read_status(batch.output, [task.name], standing=batch.standing())
    status = next(one for one in statuses if one.patch == task.name)
    history = [event for event in events(batch.output, *OF_ATTEMPTS) if event.patch == task.name]
    return {
        "patch": task.name,
        "status": asdict(status),
        "cause_in_words": spelled(status.cause),
        "set_otherwise": [{"key": one.key, "value": one.value, "usual": one.usual} for one in task.asked.differences],
        "attempts": attempts_of(batch.output.patch(task.name), history),
    }
