"""What the supervisor does besides for a program of somebody else, as watch.json says; nothing for our own trainer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from splatbatch.fields import mapping, texts
from splatbatch.files import Record
from splatbatch.outcome import Cancelled, Exit, NotStarted, TimedOut
from splatbatch.supervisor.external.finish import Artifacts, FinishWatch
from splatbatch.supervisor.external.log_progress import INTERVAL_S, LogProgress
from splatbatch.supervisor.external.patterns import TooSlow
from splatbatch.supervisor.log import BoundedLog

GPU_PLACE = "{gpu}"
"""Stands in commands and environments for the UUID of the GPU, which only the supervisor is told."""


def told(job: dict[str, Any], watch: Record | None) -> dict[str, Any]:
    """Return a job with what the trainer says of its program, and the GPU where the program wants its name."""
    if watch is None:
        return job
    card = job.get("gpu") or ""
    env = job["env"] | {name: value.replace(GPU_PLACE, card) for name, value in watch["env"].items()}
    whole = {**job, **watch, "env": env, "argv": [word.replace(GPU_PLACE, card) for word in job["argv"]]}
    if then := watch.get("then"):
        whole["then"] = then | {"argv": [word.replace(GPU_PLACE, card) for word in then["argv"]]}
    return whole


def what_follows(job: dict[str, Any], end: Exit) -> dict[str, Any] | None:
    """Return the job of the second command, or None if there is none or nothing for it to work on."""
    then = job.get("then")
    if then is None or isinstance(end, Cancelled | NotStarted):
        return None
    artifacts = Artifacts.from_record(job["finish"])
    try:
        return {**job, **then} if artifacts and artifacts.all_there() else None
    except TooSlow:  # the parent says so when it looks for the splat
        return None


class ForeignWatch:
    """Reads progress from the log, and notices a program that is done but does not end."""

    def __init__(self, progress: Path, job: dict[str, Any]) -> None:
        self._progress: LogProgress | None = None
        self._finish: FinishWatch | None = None
        self._max_steps = int(job.get("max_steps", 0))
        if "progress" in job:
            self._progress = LogProgress(progress, job["progress"], job["max_steps"])
            with suppress(OSError):
                self._progress.enter(job["phase"])
        finish = mapping(job.get("finish"))
        awaited = Artifacts.from_record(
            {**finish, "files": [*texts(finish.get("files")), *texts(finish.get("awaited"))]}
        )
        if awaited and job["finished_after_s"] > 0:
            self._finish = FinishWatch(awaited, job["finished_after_s"])

    def hear(self, data: bytes) -> None:
        """Take in what the program says."""
        if self._progress:
            self._progress.hear(data)

    def chores(self, log: BoundedLog) -> list[tuple[float, Callable[[], None]]]:
        """Return what to do how often, in seconds."""
        chores: list[tuple[float, Callable[[], None]]] = []
        if self._progress:
            chores.append((INTERVAL_S, self._progress.look))
        if finish := self._finish:
            chores.append((finish.interval_s, lambda: finish.look(log.said)))
        return chores

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
