"""How far an external trainer is, read from what it says; in the schema of our own progress.jsonl."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from pathlib import Path

from splatbatch.files import Record, append_line
from splatbatch.store.records.attempt import Progress
from splatbatch.supervisor.external.patterns import TooSlow, time_limit
from splatbatch.supervisor.external.steps_heard import StepsHeard

INTERVAL_S = 1.0
SHARE_OF_RUN = 1 / 200
"""Records of steps come this share of the run so far apart, so that a night's curve has some thousand points."""
MOST_BYTES = 1 << 15
"""What is read of a second's talk: its end."""
LINE_CHARS = 1000
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
        self.steps = self._steps_told = StepsHeard()
        self._news: Record = {}
        self._written_at = float("-inf")

    def hear(self, data: bytes) -> None:
        """Keep the end of what was said; a line that lost its beginning is dropped, since its numbers may have too."""
        self._heard += data
        if len(self._heard) > MOST_BYTES:
            kept = self._heard[-MOST_BYTES:]
            self._heard = kept[min((kept.find(end) for end in (b"\n", b"\r") if end in kept), default=MOST_BYTES) :]
            if "step" in self._patterns:
                self.steps = self.steps.without_knowing_more()

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
        if self.steps != self._steps_told:
            self._write(phase="train", **self._news)
        else:
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
            with time_limit():
                for line in _LINE_ENDS.split(text):
                    found |= self._figures_of(line[:LINE_CHARS])
        except TooSlow:
            self._patterns = {}
            self.steps = self.steps.without_knowing_more()
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
        if (step := figures.get("step")) is not None:
            self.steps = self.steps.then(int(step))
        return {name: value for name, value in figures.items() if value is not None}

    def _write(self, **figures: object) -> None:
        now = {"t": round(time.time(), 2), "seconds": round(time.monotonic() - self._started, 2)}
        figures = {**now, "step": self._step, "max_steps": self._max_steps, **self.steps.to_record(), **figures}
        self._written_at, self._steps_told = time.monotonic(), self.steps
        append_line(self._path, Progress.from_record(figures).to_record(), durable=False)


def _number(text: str | None, *, whole: bool) -> int | float | None:
    try:
        value = float((text or "").replace(",", "").replace("_", ""))
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(value) if whole else value
