"""What the supervisor does besides for a program of somebody else, as watch.json says; nothing for our own trainer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from splatbatch.files import Record
from splatbatch.outcome import Cancelled, Exit, NotStarted, TimedOut
from splatbatch.supervisor.finish import FinishWatch, Leavings
from splatbatch.supervisor.log import BoundedLog
from splatbatch.supervisor.log_progress import INTERVAL_S, LogProgress

GPU_PLACE = "{gpu}"
"""Stands in commands and environments for the UUID of the GPU, which only the supervisor is told."""


def told(job: dict[str, Any], watch: Record | None) -> dict[str, Any]:
    """Return a job with what the trainer says of its program, and the GPU where the program wants its name."""
    if watch is None:
        return job
    card = job.get("gpu") or ""
    env = job.get("env", {}) | {name: value.replace(GPU_PLACE, card) for name, value in watch["env"].items()}
    whole = {**job, **watch, "env": env, "argv": [word.replace(GPU_PLACE, card) for word in job["argv"]]}
    if then := watch.get("then"):
        whole["then"] = then | {"argv": [word.replace(GPU_PLACE, card) for word in then["argv"]]}
    return whole


def what_follows(job: dict[str, Any], end: Exit) -> dict[str, Any] | None:
    """Return the job of the second command, or None if there is none or nothing for it to work on."""
    then = job.get("then")
    if then is None or isinstance(end, Cancelled | NotStarted):
        return None
    return {**job, **then} if Leavings.from_record(job["finish"]).all_there() else None


class ForeignWatch:
    """Reads progress from the log, and notices a program that is done but does not end."""

    def __init__(self, progress: Path, job: dict[str, Any]) -> None:
        self._progress: LogProgress | None = None
        self._finish: FinishWatch | None = None
        if "progress" in job:
            self._progress = LogProgress(progress, job["progress"], job["max_steps"])
            with suppress(OSError):
                self._progress.enter(job["phase"])
        if job.get("finish") and job["finished_after_s"] > 0:
            awaited = job["finish"] | {"files": [*job["finish"]["files"], *job["finish"]["awaited"]]}
            self._finish = FinishWatch(Leavings.from_record(awaited), job["finished_after_s"])

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
        """Return why to end the program if it has done its work and does not end by itself."""
        if self._finish and self._finish.is_over():
            return TimedOut("finished", self._finish.after_s)
        return None

    def close(self) -> None:
        """Read the last words."""
        if self._progress:
            with suppress(OSError):
                self._progress.close()
