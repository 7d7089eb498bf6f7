"""What the supervisor does besides for an external trainer, as watch.json says; nothing for our own trainer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from splatbatch.files import TooManyFiles
from splatbatch.outcome import Cancelled, Exit, NotStarted, TimedOut
from splatbatch.store.records.attempt import Watch
from splatbatch.supervisor.external.finish import Artifacts, FinishWatch
from splatbatch.supervisor.external.log_progress import INTERVAL_S, LogProgress
from splatbatch.supervisor.external.patterns import TooSlow
from splatbatch.supervisor.job import Job
from splatbatch.supervisor.log import BoundedLog


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
