"""What people see while a batch runs: a live table on a terminal, timestamped lines anywhere else. Always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from splatbatch import terminal
from splatbatch.files import Record
from splatbatch.monitor.table import live_view, num_shown
from splatbatch.plain_text import counted, one_line
from splatbatch.store.layout import OutputFolder
from splatbatch.tasks.evidence import Standing
from splatbatch.tasks.status import read_status

HEARTBEAT_S = 60.0
REDRAW_S = 1.0
LONGEST_LINE = 600
_REMARKABLE = (
    "forecast",
    "retry",
    "gave_up",
    "still_given_up",
    "restored",
    "slot_given_up",
    "refused",
    "tight",
    "paused",
    "resumed",
    "notify_failed",
    "not_shown",
    "unwell",
)


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


def open_narrator(output: OutputFolder, names: Sequence[str], standing: Standing | None = None) -> Narrator:
    """Return what fits stderr; a pipe gets lines even if FORCE_COLOR claims that it is a terminal."""
    kind = LiveNarrator if sys.stderr.isatty() else LineNarrator
    return kind(output, names, standing)


class LineNarrator:
    """One line per event, and a heartbeat a minute: for cron, nohup and CI."""

    def __init__(self, output: OutputFolder, names: Sequence[str], standing: Standing | None = None) -> None:
        self._output, self._names, self._standing = output, names, standing
        self._next_beat = time.monotonic() + HEARTBEAT_S

    def __enter__(self) -> LineNarrator:
        return self

    def __exit__(self, kind: object, error: object, at: object) -> None:
        return None

    def tell(self, event: Record) -> None:
        """Print an event."""
        if line := in_words(event):
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", file=sys.stderr, flush=True)  # noqa: T201

    def beat(self) -> None:
        """Print what runs, once a minute, and how much nobody took."""
        if lost := terminal.take_lost():
            self.tell({"event": "not_shown", "lines": lost})
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + HEARTBEAT_S
        for status in read_status(self._output, self._names, 0, self._standing):
            if status.state == "running":
                figures = f"{status.patch}: {status.phase} {status.step}/{status.max_steps}"
                loss = f", loss {status.loss:.4f}" if status.loss is not None else ""
                self.tell({"event": "heartbeat", "text": figures + loss})


class LiveNarrator:
    """A table of all patches that follows their files; what is worth remembering scrolls by above it."""

    def __init__(self, output: OutputFolder, names: Sequence[str], standing: Standing | None = None) -> None:
        self._output, self._names, self._standing = output, names, standing
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
        if event["event"] in _REMARKABLE or event.get("outcome") == "failed":
            self._live.console.print(Text(f"{time.strftime('%H:%M:%S')} {in_words(event)}"))

    def beat(self) -> None:
        """Draw the table anew, once a second; a terminal that takes nothing is spared."""
        if lost := terminal.take_lost():
            self.tell({"event": "not_shown", "lines": lost})
        if terminal.is_stuck():
            return
        if time.monotonic() >= self._next_redraw:
            self._next_redraw = time.monotonic() + REDRAW_S
            self._redraw()

    def _redraw(self) -> None:
        statuses = read_status(self._output, self._names, num_shown(len(self._names)), self._standing)
        size = self._live.console.size
        self._live.update(live_view(statuses, size.width, size.height), refresh=True)


def in_words(event: Record) -> str:
    """Return an event as one line, whatever it quotes; empty for events that nobody needs to see."""
    words = _WORDS.get(str(event["event"]))
    line = one_line(words(event)) if words else ""
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def _attempt_ended(event: Record) -> str:
    who = f"{event['patch']}: attempt {event['attempt']}"
    match event.get("outcome"):
        case "trained":
            choice = f": {event['choice']}" if event.get("choice") else ""
            return f"{who} trained {event['num_gaussians']:,} Gaussians in {event.get('seconds') or 0:.0f} s{choice}"
        case "failed":
            diagnosis: Mapping[str, str] = event["diagnosis"]
            return f"{who} failed: {diagnosis['cause']}: {diagnosis['advice']}"
        case _:
            return f"{who} stopped: {event.get('reason', '')}"


def _changes(event: Record) -> str:
    changes = ", ".join(f"{key}={value}" for key, value in (event.get("changes") or {}).items())
    return f" with {changes}" if changes else ""


_WORDS: dict[str, Callable[[Record], str]] = {
    "batch_started": lambda event: (
        f"{counted(len(event['patches']), 'patch', 'es')} to train on {', '.join(event['slots'])}"
    ),
    "forecast": lambda event: str(event["text"]),
    "unwell": lambda event: f"{event['check']}: {event['message']}",
    "attempt_started": lambda event: (
        f"{event['patch']}: attempt {event['attempt']} started on {event['slot']}{_changes(event)}"
    ),
    "attempt_ended": _attempt_ended,
    "retry": lambda event: f"{event['patch']}: again in {event['wait_s']:.0f} s{_changes(event)}",
    "gave_up": lambda event: f"{event['patch']}: given up: {event['reason']}",
    "refused": lambda event: f"{event['patch']}: refused: {event['reason']}",
    "tight": lambda event: f"{event['patch']}: {event['reason']}",
    "slot_given_up": lambda event: f"{event['slot']}: taken out of service: {event['reason']}",
    "packing": lambda event: f"{counted(event['patches_per_gpu'], 'patch', 'es')} per GPU from now on",
    "mps_off": lambda event: f"going on without CUDA MPS: {event['reason']}",
    "twins_stopped": lambda event: f"stopping {counted(len(event['keys']), 'attempt')} of an earlier run",
    "paused": lambda event: f"paused, nothing new is started: {event['reason']}",
    "resumed": lambda event: f"there is room again after {event['waited_s']:.0f} s: going on",
    "notify_failed": lambda event: f"not told: {event['reason']}",
    "still_given_up": lambda event: f"{event['patch']}: left alone, given up before: {event['reason']}",
    "restored": lambda event: f"{event['patch']}: splat.ply restored from {event['attempt']}",
    "not_shown": lambda event: f"{counted(event['lines'], 'line')} not shown: nobody took them",
    "cancel_requested": lambda event: f"cancelled by {event['by']}: {', '.join(event['patches']) or 'the whole batch'}",
    "heartbeat": lambda event: str(event["text"]),
}
