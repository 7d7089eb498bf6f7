"""What the supervisor does besides for an external trainer: its progress, and whether it is done."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from splatbatch.files import MOST_FILES, TooManyFiles, find_files, open_regular
from splatbatch.outcome import Cancelled, Exit, NotStarted, TimedOut
from splatbatch.store.records.attempt import Finish, Watch
from splatbatch.supervisor.job import Job
from splatbatch.supervisor.log import BoundedLog
from splatbatch.supervisor.log_progress import INTERVAL_S, LogProgress, TooSlow, time_limit


def what_follows(job: Job, end: Exit) -> Job | None:
    """Return the job of the second command, or None if there is none or nothing for it to work on."""
    watch = job.watch
    if watch is None or watch.then is None or isinstance(end, Cancelled | NotStarted):
        return None
    artifacts = Artifacts.of(watch.finish)
    try:
        return job.then(watch, watch.then) if artifacts and artifacts.all_there() else None
    except (TooSlow, TooManyFiles):  # the parent says so when it looks for the splat
        return None


class ExternalWatch:
    """Reads progress from the log, and notices a program that is done but does not end."""

    def __init__(self, progress: Path, watch: Watch | None) -> None:
        self._progress: LogProgress | None = None
        self._finish: FinishWatch | None = None
        self._max_steps = watch.max_steps if watch else 0
        if watch is None:
            return
        self._progress = LogProgress(progress, watch.progress, watch.max_steps)
        with suppress(OSError):
            self._progress.enter(watch.phase)
        finish = watch.finish
        awaited = Artifacts.of(replace(finish, files=(*finish.files, *finish.awaited)))
        if awaited and watch.finished_after_s > 0:
            self._finish = FinishWatch(awaited, watch.finished_after_s)

    def hear(self, data: bytes) -> None:
        """Take in what the program says."""
        if self._progress:
            self._progress.hear(data)

    def timers(self, log: BoundedLog) -> list[tuple[float, Callable[[], None]]]:
        """Return what to do how often, in seconds."""
        timers: list[tuple[float, Callable[[], None]]] = []
        if self._progress:
            timers.append((INTERVAL_S, self._progress.look))
        if finish := self._finish:
            timers.append((finish.interval_s, lambda: finish.look(log.said)))
        return timers

    def is_over(self) -> TimedOut | None:
        """Return why to end the program if it has done its work and does not end by itself.

        A splat whose name tells no step may be an early one: as long as the log says so, the program is at work.
        """
        finish, progress = self._finish, self._progress
        if finish is None or not finish.is_over():
            return None
        if not finish.is_named and progress:
            progress.look()
            if progress.steps.falls_short_of(self._max_steps):
                return None
        return TimedOut("finished", finish.after_s)

    def close(self) -> None:
        """Read the last words."""
        if self._progress:
            with suppress(OSError):
                self._progress.close()


MOST_DIGITS = 18
LOOKS = 10  # in the time that a program may go on for
LONGEST_LOOK_S = 5.0
HEADER_BYTES = 1 << 14
OF_SPLATS = b" f_dc_0"
TALKATIVE = 10
"""A program that goes on talking may do so this many times as long as a silent one: it may still be evaluating."""


@dataclass(frozen=True)
class Product:
    """A file that may be the splat, and the step it is from; None if neither its name nor that behind a link says."""

    path: Path
    step: int | None


@dataclass(frozen=True)
class Artifacts:
    """What should lie below a folder in the end."""

    folder: Path
    products: tuple[str, ...] = ()
    """Globs of the splat; empty if there is none yet."""
    step: str = ""
    """Regular expression of the step in a product's path; empty: none has one."""
    last_step: int = 0
    """The step that the final product is named after."""
    files: tuple[str, ...] = ()
    """Globs of further files; those from an earlier step do not count."""

    @staticmethod
    def of(finish: Finish) -> Artifacts | None:
        """Return what watch.json says should be left; None if it does not say where and from which step."""
        if not finish.folder or finish.last_step is None:
            return None
        return Artifacts(Path(finish.folder), finish.products, finish.step, finish.last_step, finish.files)

    def newest(self) -> Product | None:
        """Return the product of the highest step; one that names none is the end's. Equal steps: the newest file.

        A PLY that is no splat, such as the sparse points that many programs put beside their output, comes last; of
        two names of one file the one that tells the step comes first.

        Raises:
            TooSlow: the regular expression of the step takes too long.
            TooManyFiles: there are more than `MOST_FILES`.
        """

        def key(one: Product) -> tuple[object, ...]:
            return (_may_be_splat(one.path), self._rank(one), _moved_at(one.path), one.step is not None)

        return max(self._products(self.products), key=key, default=None)

    def real_file(self, product: Product) -> Path:
        """Return the file behind a link that the program left, if it lies in the folder; else the product's own path.

        What lies elsewhere is not the attempt's: whoever takes the product over copies it.
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
        if self.products and (product is None or not self.is_last(product) or not _may_be_splat(product.path)):
            return ()
        others = [self._of_the_end(glob) for glob in self.files]
        if not all(others):
            return ()
        return (*([product.path] if product else ()), *(path for paths in others for path in paths))

    def _of_the_end(self, glob: str) -> list[Path]:
        """Return the files that are not empty and, as far as their names say, not from an earlier step."""
        return [one.path for one in self._products([glob]) if _size(one.path) and self.is_last(one)]

    def is_last(self, product: Product) -> bool:
        """Return whether a product is from the last step."""
        return self._rank(product) >= self.last_step

    def name_last_step(self) -> bool:
        """Return whether the last step stands in the name of the product, or of a file that must lie beside it."""
        product = self.newest()
        others = [one for one in self._products(self.files) if _size(one.path)]
        return any((one.step or 0) >= self.last_step for one in (*others, *([product] if product else [])))

    def _rank(self, product: Product) -> int:
        return self.last_step if product.step is None else product.step

    def _products(self, globs: Iterable[str]) -> list[Product]:
        paths = self._below(globs)
        with time_limit():
            return [Product(path, self._step_of(path)) for path in paths]

    def _step_of(self, path: Path) -> int | None:
        """Return the step in a path or, where it is a link and tells none, in the path of the file behind it."""
        named = self._step_in(path.relative_to(self.folder))
        if named is not None or not path.is_symlink():
            return named
        real, home = path.resolve(), self.folder.resolve()
        return self._step_in(real.relative_to(home) if real.is_relative_to(home) else Path(real.name))

    def _step_in(self, path: Path) -> int | None:
        try:
            steps = re.findall(self.step, path.as_posix()) if self.step else []
        except re.error:  # of a file that somebody has written into: the YAML's was checked
            return None
        digits = steps[-1] if steps and isinstance(steps[-1], str) else ""
        return int(digits) if digits.isdecimal() and len(digits) <= MOST_DIGITS else None

    def _below(self, globs: Iterable[str]) -> list[Path]:
        return find_files(self.folder, globs, MOST_FILES)


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
    _silent_since: float = field(default_factory=time.monotonic)
    _whole_since: float = field(default_factory=time.monotonic)

    @property
    def interval_s(self) -> float:
        """Return how often to look."""
        return min(self.after_s / LOOKS, LONGEST_LOOK_S)

    def look(self, said: int) -> None:
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
        now = time.monotonic()
        traces = tuple((path, _size(path), _moved_at(path)) for path in there)
        if not traces or traces != self._traces:
            self._whole_since = self._silent_since = now
        if said != self._said:
            self._silent_since = now
        self._traces, self._said = traces, said
        self.is_named = bool(traces) and self.artifacts.name_last_step()

    def is_over(self) -> bool:
        """Return whether all is there and unchanged, and nothing was said, for so long; or much longer in any case."""
        now = time.monotonic()
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


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _moved_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
