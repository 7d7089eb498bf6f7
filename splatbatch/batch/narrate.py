"""What people see while a batch runs: a live table on a terminal, timestamped lines anywhere else. Always on stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from splatbatch.batch.folder import OutputFolder
from splatbatch.batch.status import PatchStatus, read_status
from splatbatch.files import Record

HEARTBEAT_S = 60.0
REDRAW_S = 1.0
_COLOURS = {"trained": "green", "running": "cyan", "failed": "red", "refused": "red", "stopped": "yellow"}


class Narrator(Protocol):
    """Tells what happens."""

    def __enter__(self) -> Narrator: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    def tell(self, event: Record) -> None:
        """Show an event of the ledger."""
        ...

    def beat(self) -> None:
        """Show that time passes; called many times a second."""
        ...


def open_narrator(output: OutputFolder, names: Sequence[str]) -> Narrator:
    """Return what fits stderr; a pipe gets lines even if FORCE_COLOR claims that it is a terminal."""
    return LiveNarrator(output, names) if sys.stderr.isatty() else LineNarrator(output, names)


class LineNarrator:
    """One line per event, and a heartbeat a minute: for cron, nohup and CI."""

    def __init__(self, output: OutputFolder, names: Sequence[str]) -> None:
        self._output, self._names = output, names
        self._next_beat = time.monotonic() + HEARTBEAT_S

    def __enter__(self) -> LineNarrator:
        return self

    def __exit__(self, kind: object, error: object, at: object) -> None:
        return None

    def tell(self, event: Record) -> None:
        """Print an event."""
        line = in_words(event)
        # whoever read our lines may have gone (`| head`, a dropped connection): the batch goes on without him
        with contextlib.suppress(OSError):
            if line:
                print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", file=sys.stderr, flush=True)  # noqa: T201

    def beat(self) -> None:
        """Print what runs, once a minute."""
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + HEARTBEAT_S
        for status in read_status(self._output, self._names):
            if status.state == "running":
                figures = f"{status.patch}: {status.phase} {status.step}/{status.max_steps}"
                loss = f", loss {status.loss:.4f}" if status.loss is not None else ""
                self.tell({"event": "heartbeat", "text": figures + loss})


class LiveNarrator:
    """A table of all patches that follows their files; what is worth remembering scrolls by above it."""

    def __init__(self, output: OutputFolder, names: Sequence[str]) -> None:
        self._output, self._names = output, names
        console = Console(stderr=True)
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._next_redraw = 0.0

    def __enter__(self) -> LiveNarrator:
        self._live.start()
        return self

    def __exit__(self, kind: object, error: object, at: object) -> None:
        self._redraw()
        self._live.stop()

    def tell(self, event: Record) -> None:
        """Print failures and decisions above the table."""
        if event["event"] in ("retry", "gave_up", "slot_given_up", "refused") or event.get("outcome") == "failed":
            with contextlib.suppress(OSError):
                self._live.console.print(Text(f"{time.strftime('%H:%M:%S')} {in_words(event)}"))

    def beat(self) -> None:
        """Draw the table anew, once a second."""
        if time.monotonic() >= self._next_redraw:
            self._next_redraw = time.monotonic() + REDRAW_S
            self._redraw()

    def _redraw(self) -> None:
        statuses = read_status(self._output, self._names)
        room = max(4, self._live.console.height - 6)
        with contextlib.suppress(OSError):
            self._live.update(status_table(_most_interesting(statuses, room)), refresh=True)


def _most_interesting(statuses: Sequence[PatchStatus], room: int) -> Sequence[PatchStatus]:
    """Return at most `room` patches, the running ones first, still in their order."""
    if len(statuses) <= room:
        return statuses
    order = ("running", "failed", "refused", "stopped", "waiting", "trained")
    chosen = {status.patch for status in sorted(statuses, key=lambda status: order.index(status.state))[:room]}
    return [status for status in statuses if status.patch in chosen]


def status_table(statuses: Sequence[PatchStatus]) -> Table:
    """Return the patches as a table for a terminal."""
    table = Table(box=None, pad_edge=False)
    for heading in ("patch", "state", "step", "loss", "PSNR dB", "Gaussians", "time", "attempt"):
        table.add_column(heading, justify="left" if heading in ("patch", "state", "attempt") else "right", no_wrap=True)
    for status in statuses:
        # Text, not str: a patch name with [brackets] is no markup
        cells = [status.patch, _state(status), _step(status), _number(status.loss, ".4f"), _number(status.psnr, ".2f")]
        cells += [_number(status.num_gaussians, ",d"), _duration(status.seconds), status.attempt]
        table.add_row(*(Text(cell) for cell in cells), style=_COLOURS.get(status.state, ""))
    return table


def _state(status: PatchStatus) -> str:
    detail = status.phase if status.state == "running" else status.cause
    return f"{status.state} ({detail})" if detail else status.state


def _step(status: PatchStatus) -> str:
    return f"{status.step}/{status.max_steps}" if status.max_steps else str(status.step or "")


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def in_words(event: Record) -> str:
    """Return an event as one line; empty for events that nobody needs to see."""
    words = _WORDS.get(str(event["event"]))
    return words(event) if words else ""


def _attempt_ended(event: Record) -> str:
    who = f"{event['patch']}: attempt {event['attempt']}"
    match event.get("outcome"):
        case "trained":
            return f"{who} trained {event['num_gaussians']:,} Gaussians in {event.get('seconds') or 0:.0f} s"
        case "failed":
            diagnosis: Mapping[str, str] = event["diagnosis"]
            return f"{who} failed: {diagnosis['cause']}: {diagnosis['advice']}"
        case _:
            return f"{who} stopped: {event.get('reason', '')}"


def _changes(event: Record) -> str:
    changes = ", ".join(f"{key}={value}" for key, value in (event.get("changes") or {}).items())
    return f" with {changes}" if changes else ""


_WORDS: dict[str, Callable[[Record], str]] = {
    "batch_started": lambda event: f"{len(event['patches'])} patches to train on {', '.join(event['slots'])}",
    "attempt_started": lambda event: (
        f"{event['patch']}: attempt {event['attempt']} started on {event['slot']}{_changes(event)}"
    ),
    "attempt_ended": _attempt_ended,
    "retry": lambda event: f"{event['patch']}: again in {event['wait_s']:.0f} s{_changes(event)}",
    "gave_up": lambda event: f"{event['patch']}: given up: {event['reason']}",
    "refused": lambda event: f"{event['patch']}: refused: {event['reason']}",
    "slot_given_up": lambda event: f"{event['slot']}: taken out of service: {event['reason']}",
    "twins_stopped": lambda event: f"stopping {len(event['keys'])} attempts of an earlier run",
    "heartbeat": lambda event: str(event["text"]),
}
