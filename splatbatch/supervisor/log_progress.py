"""How far an external trainer is, read from what it says; in the schema of our own progress.jsonl."""

from __future__ import annotations

import math
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from splatbatch.files import Record, append_line
from splatbatch.store.records.attempt import Progress

if TYPE_CHECKING:
    from splatbatch.store.records.attempt import Progress

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


PROOF_SHARE = 1 / 100
"""After a bad end the last step heard may be at most this share of the run before the last one."""


@dataclass(frozen=True)
class StepsHeard:
    """The steps that a program has named in its log so far."""

    highest: int | None = None
    """None: it has named none."""
    gap: int = 0
    """The most between a step and the next higher one, from 0 on: how far apart its words are."""
    is_lost: bool = False
    """Not all that it said since was read: it may have come farther."""

    def then(self, step: int) -> StepsHeard:
        """Return what is known once one more step is named; lower ones are of something else, an evaluation."""
        if step < 0 or (self.highest is not None and step <= self.highest):
            return self
        return StepsHeard(step, self.gap if self.is_lost else max(self.gap, step - (self.highest or 0)))

    def without_knowing_more(self) -> StepsHeard:
        """Return what is known once a part of its talk went unread."""
        return replace(self, is_lost=True)

    def falls_short_of(self, max_steps: int) -> bool:
        """Return whether the program has not come to the end: by its habit it would have named a later step.

        One that names every tenth step, from 0 on, ends a run of 100 with 90; one that names every step, with 99.
        """
        if self.highest is None or self.is_lost:
            return False
        return self.highest + max(self.gap, 1) < max_steps

    def reaches(self, max_steps: int) -> bool:
        """Return whether it has named the last step, or as good as that: what counts as proof after a bad end."""
        if self.highest is None:
            return False
        missing = max_steps - self.highest
        return 0 <= missing <= max(1, min(self.gap, int(PROOF_SHARE * max_steps)))

    def to_record(self) -> Record:
        """Return what progress.jsonl holds of it: nothing as long as there is nothing to tell."""
        steps = {} if self.highest is None else {"highest_step": self.highest, "step_gap": self.gap}
        return steps | ({"steps_unheard": True} if self.is_lost else {})

    @staticmethod
    def of(line: Progress) -> StepsHeard:
        """Return what a line of progress.jsonl tells; what is no number of steps was not heard."""
        if line.highest_step is None or line.highest_step < 0:
            return StepsHeard(is_lost=line.steps_unheard)
        return StepsHeard(line.highest_step, max(line.step_gap or 0, 0), line.steps_unheard)


BUDGET_S = 0.5


class TooSlow(Exception):
    """A regular expression takes longer over a text than anybody wants to wait."""


@contextmanager
def time_limit(seconds: float = BUDGET_S) -> Iterator[None]:
    """Raise `TooSlow` within a block that takes too long; the re module looks for signals while it searches.

    In the main thread only, where Python runs handlers of signals: the parent and the supervisor have no other.
    """

    def ring(_number: int, _frame: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
