"""Watching of external trainers by the supervisor: progress from their log, and the notice that they have finished."""

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
"""Seconds between two looks at a trainer's output."""
SHARE_OF_RUN = 1 / 200
"""Least time between two records of a step, as a share of the time so far; a long run has about a thousand records."""
MOST_BYTES = 1 << 15
"""Most bytes read of a second's output: its end."""
LINE_CHARS = 1000
"""Most characters read of a line."""
WHOLE = ("step", "num_gaussians")
"""Figures that are whole numbers."""
NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
"""Text of a loss that is no finite number."""
OF_EVERY_STEP = {"step", "loss", "num_gaussians"}
"""Figures that a trainer prints at every step; they alone are recorded only now and then."""
_LINE_ENDS = re.compile(r"[\r\n]+")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PROOF_SHARE = 1 / 100
"""Largest distance of the last reported step from `max_steps`, as a share, that proves a full run after a bad end."""
BUDGET_S = 0.5
"""Most seconds that regular expressions may take on one piece of output, or on the names in a folder."""
MOST_DIGITS = 18
"""Most digits of a step in a file name."""
LOOKS = 10  # in the time that a program may go on for
"""Looks at the files of a trainer within `finished_after_s`."""
LONGEST_LOOK_S = 5.0
"""Most seconds between two such looks."""
HEADER_BYTES = 1 << 14
"""Bytes at the begin of a PLY in which its header is looked for."""
OF_SPLATS = b" f_dc_0"
"""Property in the header of a PLY by which it is known as a splat."""
TALKATIVE = 10
"""Factor on the wait for a finished program that still prints lines, since it may still be evaluating."""


class LogProgress:
    """Reads steps, losses and figures from a trainer's output by regular expressions of the YAML, into progress.jsonl.

    `hear` takes the output as it comes; `look`, called once a second, parses it and writes records. Times are seconds
    by a clock that never goes back. Regular expressions that take too long are given up, with a warning in
    progress.jsonl.
    """

    def __init__(self, path: Path, watch: WatchSettings, now: float) -> None:
        """Begin without a record.

        Args:
            path: path of progress.jsonl.
            watch: watch settings, with the regular expressions and the last step.
            now: start of the process.

        Raises:
            re.error: a regular expression is invalid.
        """
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
        """Write a record that a phase begins.

        Raises:
            OSError: progress.jsonl cannot be written.
        """
        self._write(phase=phase)

    def hear(self, data: bytes) -> None:
        """Take output; of more than `MOST_BYTES` only the end is kept, from its first whole line on."""
        self._heard += data
        if len(self._heard) > MOST_BYTES:
            kept = self._heard[-MOST_BYTES:]
            self._heard = kept[min((kept.find(end) for end in (b"\n", b"\r") if end in kept), default=MOST_BYTES) :]
            if "step" in self._patterns:
                self.steps = self.steps.without_knowing_more()

    def look(self, now: float) -> None:
        """Parse the whole lines taken since the last call, and write new figures.

        Figures of every step (`OF_EVERY_STEP`) alone are written only now and then.

        Raises:
            OSError: progress.jsonl cannot be written.
        """
        self._now = now
        self._read(max(self._heard.rfind(b"\n"), self._heard.rfind(b"\r")) + 1)
        if not self._news.keys() <= OF_EVERY_STEP or now - self._written_at >= SHARE_OF_RUN * (now - self._started):
            self._tell()

    def close(self, now: float) -> None:
        """Parse the rest of the output, also a last line without an end, and write the last step.

        Raises:
            OSError: progress.jsonl cannot be written.
        """
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
            self._write(warning="progress: a regular expression in the YAML took too long, and is not used any more")
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
        figures = {
            "t": round(time.time(), 2),
            "seconds": round(self._now - self._started, 2),
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
    """The steps that a trainer has reported in its log so far; shows whether the trainer came to its end."""

    highest: int | None = None
    """Highest step reported; None: no step was reported."""
    gap: int = 0
    """Largest distance between a reported step and the next higher step, counted from step 0; 0: none is known."""
    is_lost: bool = False
    """Whether part of the log went unread, so that the trainer may have come farther."""

    def then(self, step: int) -> LoggedSteps:
        """Return the record after one more reported step; a step that is not higher is ignored, as from an evaluation.

        A higher step ends `is_lost`; its distance across the unread part does not count.
        """
        if step < 0 or (self.highest is not None and step <= self.highest):
            return self
        return LoggedSteps(step, self.gap if self.is_lost else max(self.gap, step - (self.highest or 0)))

    def without_knowing_more(self) -> LoggedSteps:
        """Return the steps with the note that part of the log went unread."""
        return replace(self, is_lost=True)

    def falls_short_of(self, max_steps: int) -> bool:
        """Return whether the trainer has not come to its end: at its usual distance it would report a later step.

        A trainer that reports every tenth step, from 0 on, ends a run of 100 with 90; a trainer that reports each, with
        99. False if no step was reported, or part of the log went unread.
        """
        return self.highest is not None and not self.is_lost and self.highest + max(self.gap, 1) < max_steps

    def reaches(self, max_steps: int) -> bool:
        """Return whether the last step, or nearly (see `PROOF_SHARE`), was reported, as proof of a full run.

        The proof is needed after a bad end. No more steps than the usual distance may be missing; one always may.

        False if no step was reported, or a step beyond the last.
        """
        if self.highest is None:
            return False
        missing = max_steps - self.highest
        return 0 <= missing <= max(1, min(self.gap, int(PROOF_SHARE * max_steps)))

    def to_record(self) -> Record:
        """Return the fields for progress.jsonl; empty while no step was reported and no part of the log went unread."""
        steps = {} if self.highest is None else {"highest_step": self.highest, "step_gap": self.gap}
        return steps | ({"steps_unheard": True} if self.is_lost else {})

    @staticmethod
    def of(line: ProgressLine) -> LoggedSteps:
        """Return the steps in a line of progress.jsonl; an invalid or missing number counts as not reported."""
        if line.highest_step is None or line.highest_step < 0:
            return LoggedSteps(is_lost=line.steps_unheard)
        return LoggedSteps(line.highest_step, max(line.step_gap or 0, 0), line.steps_unheard)


class TooSlow(Exception):
    """Error: a regular expression took longer on a text than `BUDGET_S`."""


@contextmanager
def time_limit() -> Iterator[None]:
    """Limit a `with` block to `BUDGET_S` seconds, also during a search of the re module.

    SIGALRM is used, so this works in the main thread only; the parent and the supervisor have no other thread.

    Raises:
        TooSlow: the block takes longer.
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
    """Return the job that follows an ended one; None if its files are not complete or no job follows.

    The second command of the trainer follows the first; the measuring of the splat follows the last command. No job
    follows an attempt that was cancelled or did not start, or whose files cannot be found in time (`TooSlow`,
    `TooManyFiles`).
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
    """Return the reader of an external trainer's log, and the watch for its end if `finished_after_s` asks for it.

    No end is watched for if `finish` names no last step.

    Args:
        folder: folder of the attempt.
        watch: watch settings; None: a trainer of splatbatch, for which both results are None.
        now: time by a clock that never goes back, in seconds.

    Raises:
        re.error: a regular expression is invalid.
    """
    if watch is None:
        return None, None
    progress, finish = LogProgress(folder.progress, watch, now), watch.finish
    with suppress(OSError):
        progress.enter(watch.phase)
    awaited = Artifacts.of(folder, replace(finish, files=(*finish.files, *finish.awaited)))
    return progress, FinishWatch(awaited, watch.finished_after_s) if awaited and watch.finished_after_s > 0 else None


@dataclass(frozen=True)
class SplatCandidate:
    """A file that may be the splat, and its step; None if neither its name nor the name behind a link has a step."""

    path: Path
    step: int | None


@dataclass(frozen=True)
class Artifacts:
    """The files that a trainer must leave in a folder by its end; files of an earlier step do not count.

    A glob is a pattern of file names below that folder.
    """

    folder: Path
    finish: Finish

    @staticmethod
    def of(folder: AttemptFolder, finish: Finish) -> Artifacts | None:
        """Return the files that `finish` demands of an attempt; None if `finish` names no last step."""
        return None if finish.last_step is None else Artifacts(folder.output, finish)

    @property
    def last_step(self) -> int:
        """Step by which the trainer names its final product; 0 if `finish` names no last step."""
        return self.finish.last_step or 0

    def newest(self) -> SplatCandidate | None:
        """Return the product of the highest step; of equal steps the newest file. None: there is no product.

        A file without a step in its name counts as from the last step. Any splat comes before an empty or unreadable
        file, and before a PLY that is no splat, as of sparse points. Of two names of one file, the name with the
        step comes first.

        Raises:
            TooSlow: the regular expression of the step takes too long.
            TooManyFiles: the folder holds more than `MOST_FILES`.
        """

        def key(one: SplatCandidate) -> tuple[object, ...]:
            return (_may_be_splat(one.path), self._rank(one), file_fact(one.path).mtime_ns, one.step is not None)

        return max(self._products(self.finish.products), key=key, default=None)

    def real_file(self, product: SplatCandidate) -> Path:
        """Return the file behind a product that is a link, if that file lies in the folder.

        Else the product's own path.

        A file outside the folder does not belong to the attempt; it is copied when the product is accepted.
        """
        real, home = product.path.resolve(), self.folder.resolve()
        return self.folder / real.relative_to(home) if real.is_relative_to(home) else product.path

    def all_there(self) -> tuple[Path, ...]:
        """Return the product and all other files from the last step; empty until each glob has a file with content.

        Raises:
            TooSlow: the regular expression of the step takes too long.
            TooManyFiles: the folder holds more than `MOST_FILES`.
        """
        product = self.newest()
        if self.finish.products and (product is None or not self.is_last(product) or not _may_be_splat(product.path)):
            return ()
        others = [[one.path for one in self._not_empty([glob]) if self.is_last(one)] for glob in self.finish.files]
        if not all(others):
            return ()
        return (*([product.path] if product else ()), *(path for paths in others for path in paths))

    def is_last(self, product: SplatCandidate) -> bool:
        """Return whether a product is from the last step or a later one, as is any without a step in its name."""
        return self._rank(product) >= self.last_step

    def name_last_step(self) -> bool:
        """Return whether the name of the product, or of another demanded file, holds the last step or a later one.

        Raises:
            TooSlow: the regular expression of the step takes too long.
            TooManyFiles: the folder holds more than `MOST_FILES`.
        """
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
        """Return the step in a path or, if it is a link without one, in the path of the file behind it; None: none."""
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
    """Notices that a trainer has written all its files but does not exit, as if its viewer waits for visitors."""

    artifacts: Artifacts
    after_s: float
    """Seconds without output and change after which the trainer counts as finished."""
    is_named: bool = False
    """Whether the last step stands in the name of one of the files."""
    is_given_up: bool = False
    """Whether the watch has stopped, since a regular expression takes too long or there are too many files."""
    _said: int = 0
    _traces: tuple[object, ...] = ()
    _silent_since: float = 0.0
    _whole_since: float = 0.0

    @property
    def interval_s(self) -> float:
        """Seconds between two calls of `look`."""
        return min(self.after_s / LOOKS, LONGEST_LOOK_S)

    def look(self, now: float, said: int) -> None:
        """Note whether the files or the output have changed.

        Args:
            now: time by a clock that never goes back, in seconds.
            said: number of bytes that the process has printed so far.

        Raises:
            TooSlow: the regular expression of the step takes too long only at the second look at the names.
            TooManyFiles: the folder has filled up between these looks.
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
        """Return whether all files are complete, and for `after_s` seconds nothing changed and nothing was printed.

        If lines are still printed, the files must be unchanged for `TALKATIVE` times as long.
        """
        silent = now - self._silent_since > self.after_s
        return bool(self._traces) and (silent or now - self._whole_since > TALKATIVE * self.after_s)


def _may_be_splat(path: Path) -> bool:
    """Return whether a file has content and, if it is a PLY, names the colours of Gaussians in its header."""
    try:
        with open_regular(path) as file:
            start = file.read(HEADER_BYTES)
    except OSError:
        return False
    return OF_SPLATS in start if start.startswith(b"ply") else bool(start)
