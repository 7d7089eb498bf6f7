"""What the supervisor does besides for an external trainer: its progress, and whether it is done."""

from __future__ import annotations

import math
import re
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from splatbatch.files import MOST_FILES, Record, TooManyFiles, append_line, find_files, open_regular
from splatbatch.hashing import file_fact
from splatbatch.outcome import Cancelled, Exit, NotStarted
from splatbatch.output.records.attempt import RECORDS_PER_RUN, Finish, ProgressLine, WatchSettings
from splatbatch.supervisor.job import Job

if TYPE_CHECKING:
    from splatbatch.output.attempt_folder import AttemptFolder

INTERVAL_S = 1.0
SHARE_OF_RUN = 1 / 200
"""Records of steps come this share of the run so far apart, so that a night's curve has some thousand points."""
MOST_BYTES = 1 << 15
"""What is read of a second's talk: its end."""
LINE_CHARS = 1000
WHOLE = ("step", "num_gaussians")
NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
OF_EVERY_STEP = {"step", "loss", "num_gaussians"}
_LINE_ENDS = re.compile(r"[\r\n]+")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PROOF_SHARE = 1 / 100
"""After a bad end the last step heard may be at most this share of the run before the last one."""
BUDGET_S = 0.5
MOST_DIGITS = 18
LOOKS = 10  # in the time that a program may go on for
LONGEST_LOOK_S = 5.0
HEADER_BYTES = 1 << 14
OF_SPLATS = b" f_dc_0"
TALKATIVE = 10
"""A program that goes on talking may do so this many times as long as a silent one: it may still be evaluating."""


class LogProgress:
    """Hears what a program says; writes a record whenever a second's talk has something new."""

    def __init__(self, path: Path, watch: WatchSettings, now: float) -> None:
        self._path = path
        self._patterns = {name: re.compile(pattern) for name, pattern in watch.progress.items() if pattern}
        self.max_steps = max_steps = watch.max_steps
        self._started = self._now = now
        self._heard = b""
        is_training = watch.phase == WatchSettings.phase
        self._phase = "train" if is_training else watch.phase
        self._step = 0 if is_training else max_steps  # what follows the training begins once all steps are made
        self.steps = self._steps_told = LoggedSteps()
        self._news: Record = {}
        self._next_of_curve = max_steps / RECORDS_PER_RUN
        self._is_finite = True
        self._written_at = float("-inf")

    def enter(self, phase: str) -> None:
        """Note that something else begins."""
        self._write(phase=phase)

    def hear(self, data: bytes) -> None:
        """Keep the end of what was said; a line that lost its beginning is dropped, since its numbers may have too."""
        self._heard += data
        if len(self._heard) > MOST_BYTES:
            kept = self._heard[-MOST_BYTES:]
            self._heard = kept[min((kept.find(end) for end in (b"\n", b"\r") if end in kept), default=MOST_BYTES) :]
            if "step" in self._patterns:
                self.steps = self.steps.without_knowing_more()

    def look(self, now: float) -> None:
        """Read the whole lines heard since; write down what is new, steps alone only now and then."""
        self._now = now
        self._read(max(self._heard.rfind(b"\n"), self._heard.rfind(b"\r")) + 1)
        if not self._news.keys() <= OF_EVERY_STEP or now - self._written_at >= SHARE_OF_RUN * (now - self._started):
            self._tell()

    def close(self, now: float) -> None:
        """Read what is left, also a line without an end."""
        self._now = now
        self._read(len(self._heard))
        self._tell(is_last=self.steps != self._steps_told)

    def _read(self, end: int) -> None:
        lines, self._heard = self._heard[:end], self._heard[end:]
        if not lines or not self._patterns:
            return
        text = _COLOURS.sub("", lines.decode("utf-8", errors="replace"))
        found, curve = Record(), list[Record]()
        try:
            with time_limit():
                for line in _LINE_ENDS.split(text):
                    found |= self._figures_of(line[:LINE_CHARS])
                    if "loss" in found and found.get("step", 0) >= self._next_of_curve:
                        self._next_of_curve = found["step"] + self.max_steps / RECORDS_PER_RUN
                        curve.append(found)
                        found = {}
        except TooSlow:
            self._patterns = {}
            self.steps = self.steps.without_knowing_more()
            self._write(warning="progress: a regular expression took too long and was given up")
        for one in curve[:-1]:  # when each was said is not known: they would make a pace of no time
            self._write(t=None, seconds=None, **one)
        if curve:
            self._news |= curve[-1]
            self._tell()
        self._news |= found

    def _tell(self, *, is_last: bool = False) -> None:
        if self._news or is_last:
            self._step = self._news.pop("step", self._step)
            self._write(**self._news)
            self._news = {}

    def _figures_of(self, line: str) -> Record:
        matches = {name: list(pattern.finditer(line))[-1:] for name, pattern in self._patterns.items()}
        figures: Record = {name: _number(match[0][1], whole=name in WHOLE) for name, match in matches.items() if match}
        if (step := figures.get("step")) is not None:
            self.steps = self.steps.then(int(step))
        if self._is_finite and (told := matches.get("loss")) and NOT_FINITE.fullmatch(told[0][1] or ""):
            self._is_finite = False
            figures["health"] = f"nan_loss: loss {told[0][1]} at step {self.steps.highest}"
        return {name: value for name, value in figures.items() if value is not None}

    def _write(self, **figures: object) -> None:
        now = {"t": round(time.time(), 2), "seconds": round(self._now - self._started, 2)}
        figures = {
            **now,
            "phase": self._phase,
            "step": self._step,
            "max_steps": self.max_steps,
            **self.steps.to_record(),
            **figures,
        }
        self._written_at, self._steps_told = self._now, self.steps
        append_line(self._path, ProgressLine.from_record(figures).to_record(), durable=False)


def _number(text: str | None, *, whole: bool) -> int | float | None:
    try:
        value = float((text or "").replace(",", "").replace("_", ""))
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(value) if whole else value


@dataclass(frozen=True)
class LoggedSteps:
    """The steps that a program has named in its log so far."""

    highest: int | None = None
    """None: it has named none."""
    gap: int = 0
    """The most between a step and the next higher one, from 0 on: how far apart its words are."""
    is_lost: bool = False
    """Not all that it said since was read: it may have come farther."""

    def then(self, step: int) -> LoggedSteps:
        """Return what is known once one more step is named; lower ones are of something else, an evaluation."""
        if step < 0 or (self.highest is not None and step <= self.highest):
            return self
        return LoggedSteps(step, self.gap if self.is_lost else max(self.gap, step - (self.highest or 0)))

    def without_knowing_more(self) -> LoggedSteps:
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
    def of(line: ProgressLine) -> LoggedSteps:
        """Return what a line of progress.jsonl tells; what is no number of steps was not heard."""
        if line.highest_step is None or line.highest_step < 0:
            return LoggedSteps(is_lost=line.steps_unheard)
        return LoggedSteps(line.highest_step, max(line.step_gap or 0, 0), line.steps_unheard)


class TooSlow(Exception):
    """A regular expression takes longer over a text than its time limit."""


@contextmanager
def time_limit() -> Iterator[None]:
    """Raise `TooSlow` within a block that takes too long; the re module looks for signals while it searches.

    In the main thread only, where Python runs handlers of signals: the parent and the supervisor have no other.
    """

    def ring(_number: int, _frame: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, BUDGET_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def next_job(folder: AttemptFolder, job: Job, end: Exit) -> Job | None:
    """Return the job that follows one that has ended with all that it should leave; None if none does.

    It is the second command or, of the last one, that which measures the splat.
    """
    watch = job.watch
    artifacts = Artifacts.of(folder, watch.finish) if watch else None
    if watch is None or artifacts is None or isinstance(end, Cancelled | NotStarted):
        return None
    try:
        is_whole, product = bool(artifacts.all_there()), artifacts.newest()
    except (TooSlow, TooManyFiles):  # the parent says so when it looks for the splat
        return None
    if watch.then:
        return job.then(watch, watch.then) if is_whole else None
    return job.measure(watch, artifacts.real_file(product)) if watch.measure and is_whole and product else None


def watches_of(
    folder: AttemptFolder, watch: WatchSettings | None, now: float
) -> tuple[LogProgress | None, FinishWatch | None]:
    """Return what follows the log of an external trainer, and what notices that it is done, if that is asked for."""
    if watch is None:
        return None, None
    progress, finish = LogProgress(folder.progress, watch, now), watch.finish
    with suppress(OSError):
        progress.enter(watch.phase)
    awaited = Artifacts.of(folder, replace(finish, files=(*finish.files, *finish.awaited)))
    return progress, FinishWatch(awaited, watch.finished_after_s) if awaited and watch.finished_after_s > 0 else None


@dataclass(frozen=True)
class SplatCandidate:
    """A file that may be the splat, and the step it is from; None if neither its name nor that behind a link says."""

    path: Path
    step: int | None


@dataclass(frozen=True)
class Artifacts:
    """What should lie below a folder in the end; further files from an earlier step do not count."""

    folder: Path
    finish: Finish

    @staticmethod
    def of(folder: AttemptFolder, finish: Finish) -> Artifacts | None:
        """Return what watch.json says should be left in an attempt; None if it does not say from which step."""
        return None if finish.last_step is None else Artifacts(folder.output, finish)

    @property
    def last_step(self) -> int:
        """Return the step that the final product is named after."""
        return self.finish.last_step or 0

    def newest(self) -> SplatCandidate | None:
        """Return the product of the highest step; one that names none is the end's. Equal steps: the newest file.

        A PLY that is no splat, such as the sparse points that many programs put beside their output, comes last; of
        two names of one file the one that tells the step comes first.

        Raises:
            TooSlow: the regular expression of the step takes too long.
            TooManyFiles: there are more than `MOST_FILES`.
        """

        def key(one: SplatCandidate) -> tuple[object, ...]:
            return (_may_be_splat(one.path), self._rank(one), file_fact(one.path).mtime_ns, one.step is not None)

        return max(self._products(self.finish.products), key=key, default=None)

    def real_file(self, product: SplatCandidate) -> Path:
        """Return the file behind a link that the program left, if it lies in the folder; else the product's own path.

        What lies elsewhere is not the attempt's: it is copied when the product is taken over.
        """
        real, home = product.path.resolve(), self.folder.resolve()
        return self.folder / real.relative_to(home) if real.is_relative_to(home) else product.path

    def all_there(self) -> tuple[Path, ...]:
        """Return every file that counts, once each glob has one that is not empty; nothing before.

        Raises:
            TooSlow: the regular expression of the step takes too long.
            TooManyFiles: there are more than `MOST_FILES`.
        """
        product = self.newest()
        if self.finish.products and (product is None or not self.is_last(product) or not _may_be_splat(product.path)):
            return ()
        others = [[one.path for one in self._not_empty([glob]) if self.is_last(one)] for glob in self.finish.files]
        if not all(others):
            return ()
        return (*([product.path] if product else ()), *(path for paths in others for path in paths))

    def is_last(self, product: SplatCandidate) -> bool:
        """Return whether a product is from the last step."""
        return self._rank(product) >= self.last_step

    def name_last_step(self) -> bool:
        """Return whether the last step stands in the name of the product, or of a file that must lie beside it."""
        product = self.newest()
        named = (*self._not_empty(self.finish.files), *([product] if product else []))
        return any((one.step or 0) >= self.last_step for one in named)

    def _rank(self, product: SplatCandidate) -> int:
        return self.last_step if product.step is None else product.step

    def _not_empty(self, globs: Iterable[str]) -> list[SplatCandidate]:
        return [one for one in self._products(globs) if file_fact(one.path).num_bytes > 0]

    def _products(self, globs: Iterable[str]) -> list[SplatCandidate]:
        paths = find_files(self.folder, globs, MOST_FILES)
        with time_limit():
            return [SplatCandidate(path, self._step_of(path)) for path in paths]

    def _step_of(self, path: Path) -> int | None:
        """Return the step in a path or, where it is a link and tells none, in the path of the file behind it."""
        named = self._step_in(path.relative_to(self.folder))
        if named is not None or not path.is_symlink():
            return named
        real, home = path.resolve(), self.folder.resolve()
        return self._step_in(real.relative_to(home) if real.is_relative_to(home) else Path(real.name))

    def _step_in(self, path: Path) -> int | None:
        try:
            steps = re.findall(self.finish.step, path.as_posix()) if self.finish.step else []
        except re.error:  # of a file that was edited by hand: the YAML's was checked
            return None
        digits = steps[-1] if steps and isinstance(steps[-1], str) else ""
        return int(digits) if digits.isdecimal() and len(digits) <= MOST_DIGITS else None


@dataclass
class FinishWatch:
    """Notices a program that has left all it should, and goes on in silence: a viewer that waits for visitors."""

    artifacts: Artifacts
    after_s: float
    is_named: bool = False
    """The last step stands in a name of what was left."""
    is_given_up: bool = False
    """Its regular expression takes too long, or there are too many files: whether it is done is not asked any more."""
    _said: int = 0
    _traces: tuple[object, ...] = ()
    _silent_since: float = 0.0
    _whole_since: float = 0.0

    @property
    def interval_s(self) -> float:
        """Return how often to look."""
        return min(self.after_s / LOOKS, LONGEST_LOOK_S)

    def look(self, now: float, said: int) -> None:
        """Note whether anything has changed.

        `said` counts the bytes that the process has said so far.
        """
        if self.is_given_up:
            return
        try:
            there = self.artifacts.all_there()
        except (TooSlow, TooManyFiles):
            self.is_given_up, self._traces = True, ()
            return
        traces = tuple((path, file_fact(path)) for path in there)
        if not traces or traces != self._traces:
            self._whole_since = self._silent_since = now
        if said != self._said:
            self._silent_since = now
        self._traces, self._said = traces, said
        self.is_named = bool(traces) and self.artifacts.name_last_step()

    def is_over(self, now: float) -> bool:
        """Return whether all is there and unchanged, and nothing was said, for so long; or much longer in any case."""
        silent = now - self._silent_since > self.after_s
        return bool(self._traces) and (silent or now - self._whole_since > TALKATIVE * self.after_s)


def _may_be_splat(path: Path) -> bool:
    """Return whether a file holds something and, if it is a PLY, has the colours of Gaussians in its header."""
    try:
        with open_regular(path) as file:
            start = file.read(HEADER_BYTES)
    except OSError:
        return False
    return OF_SPLATS in start if start.startswith(b"ply") else bool(start)
