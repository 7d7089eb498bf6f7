"""What stays on the screen and moves: `status --watch`, `logs -f`. From the files alone; nobody has to be running."""

from __future__ import annotations

import codecs
import contextlib
import sys
import time
from collections.abc import Callable, Sequence

from rich.console import Group
from rich.live import Live
from rich.text import Text

from splatbatch.commands.output import open_console
from splatbatch.files import open_regular
from splatbatch.machine.orphans import has_died
from splatbatch.monitor.table import live_view, status_table
from splatbatch.plain_text import one_line, plain
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.tasks.status import PatchStatus

REDRAW_S = 2.0
LINES_EVERY_S = 60.0
LOOK_S = 0.5
FOLLOW_S = 0.3
CHUNK_BYTES = 1 << 16


def watch(
    read: Callable[[], Sequence[PatchStatus]],
    is_over: Callable[[], bool] | None = None,
    lines: Callable[[], list[str]] = list,
) -> None:
    """Show the patches until it is over, or Ctrl-C: on a terminal a table that moves, else the table once a minute.

    `lines` gives what stands below it.
    """
    console = open_console()
    with contextlib.suppress(KeyboardInterrupt):
        if console.is_terminal:
            with Live(console=console, auto_refresh=False, screen=False) as live:
                while not (is_over and is_over()):
                    below = [Text(one_line(line)) for line in lines()]
                    view = live_view(read(), console.size.width, console.size.height - len(below))
                    live.update(Group(view, *below), refresh=True)
                    time.sleep(REDRAW_S)
            return
        while not (is_over and is_over()):
            console.print(f"{time.strftime('%Y-%m-%d %H:%M:%S')}", status_table(read(), console.width), sep="\n")
            for line in lines():
                console.print(one_line(line), markup=False)
            sys.stdout.flush()
            _pause(is_over)


def _pause(is_over: Callable[[], bool] | None) -> None:
    """Wait until the next lines are due, or it is over."""
    if is_over is None:
        return time.sleep(LINES_EVERY_S)
    end = time.monotonic() + LINES_EVERY_S
    while time.monotonic() < end and not is_over():
        time.sleep(LOOK_S)
    return None


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
