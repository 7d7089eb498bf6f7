"""How far a program of somebody else is, read from what it says; in the schema of our own progress.jsonl."""

from __future__ import annotations

import math
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from splatbatch.files import Record, append_line

INTERVAL_S = 1.0
SHARE_OF_RUN = 1 / 200
"""Records of steps come this share of the run so far apart, so that a night's curve has some thousand points."""
MOST_BYTES = 1 << 15
"""What is read of a second's talk: its end."""
LINE_CHARS = 1000
BUDGET_S = 0.5
"""A regular expression that takes longer over a second's talk is given up: it may never end (nested repeats)."""
WHOLE = ("step", "num_gaussians")
OF_EVERY_STEP = {"step", "loss", "num_gaussians"}
_LINE_ENDS = re.compile(r"[\r\n]+")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class LogProgress:
    """Hears what a program says; writes a record whenever a second's talk has something new."""

    def __init__(self, path: Path, patterns: Mapping[str, str], max_steps: int) -> None:
        self._path = path
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items() if pattern}
        self._max_steps = max_steps
        self._started = time.monotonic()
        self._heard = b""
        self._step = 0
        self._news: Record = {}
        self._written_at = float("-inf")

    def hear(self, data: bytes) -> None:
        """Keep the end of what was said; a line that lost its beginning is dropped, since its numbers may have too."""
        self._heard += data
        if len(self._heard) > MOST_BYTES:
            kept = self._heard[-MOST_BYTES:]
            self._heard = kept[min((kept.find(end) for end in (b"\n", b"\r") if end in kept), default=MOST_BYTES) :]

    def look(self) -> None:
        """Read the whole lines heard since; write down what is new, steps alone only now and then."""
        end = max(self._heard.rfind(b"\n"), self._heard.rfind(b"\r")) + 1
        lines, self._heard = self._heard[:end], self._heard[end:]
        self._read(lines)
        now = time.monotonic()
        if not self._news.keys() <= OF_EVERY_STEP or now - self._written_at >= SHARE_OF_RUN * (now - self._started):
            self._tell()

    def close(self) -> None:
        """Read what is left, also a line without an end."""
        lines, self._heard = self._heard, b""
        self._read(lines)
        self._tell()

    def enter(self, phase: str) -> None:
        """Note that something else begins."""
        self._write(phase=phase)

    def _read(self, lines: bytes) -> None:
        if not lines or not self._patterns:
            return
        text = _COLOURS.sub("", lines.decode("utf-8", errors="replace"))
        found: Record = {}
        try:
            with _alarm(BUDGET_S):
                for line in _LINE_ENDS.split(text):
                    found |= self._figures_of(line[:LINE_CHARS])
        except TimeoutError:
            self._patterns = {}
            self._write(phase="train", warning="progress: a regular expression took too long and was given up")
        self._news |= found

    def _tell(self) -> None:
        if self._news:
            self._step = self._news.pop("step", self._step)
            self._write(phase="train", **self._news)
            self._news = {}

    def _figures_of(self, line: str) -> Record:
        matches = ((name, list(pattern.finditer(line))[-1:]) for name, pattern in self._patterns.items())
        figures = {name: _number(match[0][1], whole=name in WHOLE) for name, match in matches if match}
        return {name: value for name, value in figures.items() if value is not None}

    def _write(self, **figures: object) -> None:
        now = {"t": round(time.time(), 2), "seconds": round(time.monotonic() - self._started, 2)}
        record = {**now, "step": self._step, "max_steps": self._max_steps, **figures}
        self._written_at = time.monotonic()
        append_line(self._path, record, durable=False)


def _number(text: str | None, *, whole: bool) -> int | float | None:
    try:
        value = float((text or "").replace(",", "").replace("_", ""))
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(value) if whole else value


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise TimeoutError within a block that takes too long; the re module looks for signals while it searches."""

    def ring(_number: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
