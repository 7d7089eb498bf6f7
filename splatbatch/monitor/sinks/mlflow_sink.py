"""The sink for MLflow: a process aside writes down the attempts that have ended; the batch never waits for it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from splatbatch.config import Tracking
from splatbatch.errors import MissingPartError
from splatbatch.monitor.sinks.sink import BatchOutcome, Sink
from splatbatch.output.events import AttemptEnded, Event
from splatbatch.output.layout import OutputFolder
from splatbatch.supervisor.hook import Hook
from splatbatch.text import one_line

PROGRAM = (sys.executable, "-m", "splatbatch.monitor.sinks.mlflow_runs")
FILES, DATABASE = "file:", "sqlite:///"
IN_A_FILE = f"{DATABASE}mlflow.db"
TIMEOUT_S = 120.0
"""Longest time for writing what has ended since the last time; more is left for the next. At a batch's end 30 s."""
PAUSES_S = (60.0, 600.0)
"""After a store has failed: at first, and at most."""
SettingsOf = Callable[[], Mapping[str, Mapping[str, Any]]]


def anchored(store: str, base: Path) -> str:
    """Return a tracking store whose file or folder, if it is one, is told from the folder of the YAML."""
    if store.startswith(DATABASE):
        return f"{DATABASE}{base / store.removeprefix(DATABASE)}"
    place = store.removeprefix(FILES)
    return (base / place).as_uri() if store.startswith(FILES) and not place.startswith("/") else store


def artifacts_of(store: str) -> str | None:
    """Return where a new experiment keeps its files: beside a database; None: its server, or folder, knows."""
    if not store.startswith(DATABASE):
        return None
    return str(Path(store.removeprefix(DATABASE).partition("?")[0]).parent / "mlartifacts")


def remedy(store: str) -> str:
    """Return what to look at where a store fails."""
    if store.startswith(FILES):
        return f"newer versions of MLflow keep no store in a folder; write tracking.mlflow: {IN_A_FILE}"
    if store.startswith(DATABASE):
        return f"is {store.removeprefix(DATABASE)} on a disk that can be written?"
    return "is its server up, and MLFLOW_TRACKING_URI right?"


class MlflowSink(Sink):
    """Knows which patches have news; `mlflow_runs` reads what there is in their folders."""

    name = "tracking.mlflow"

    def __init__(self, settings: Tracking, output: OutputFolder, base: Path, settings_of: SettingsOf) -> None:
        """Take the settings, the folder of the YAML, and what tells each task's settings by their full names.

        Raises:
            MissingPartError: MLflow is asked for, and not installed; or what it needs for a database.
        """
        needed = ("mlflow", *(("sqlalchemy", "alembic") if settings.mlflow.startswith("sqlite:") else ()))
        if settings.mlflow and (missing := [name for name in needed if find_spec(name) is None]):
            raise MissingPartError(
                f"tracking.mlflow: {', '.join(missing)} is not installed", "pip install 'splatbatch[mlflow]'"
            )
        self._settings, self._output, self._settings_of = settings, output, settings_of
        self._store = anchored(settings.mlflow, base)
        self._due: dict[str, None] = {}
        self._asked: tuple[str, ...] = ()
        """Patches that the process writes down which runs now."""
        self._hook: Hook | None = None
        self._writes_the_end = False
        self._is_closed = not settings.mlflow
        self._failure, self._pause_s, self._not_before = "", PAUSES_S[0], 0.0
        if settings.mlflow:  # what an earlier night could not write; and a store that is away is told of at once
            self._want(settings_of())

    def tell(self, event: Event) -> None:
        """Note a patch of which an attempt has ended."""
        if isinstance(event, AttemptEnded):
            self._want([event.patch])

    def tick(self) -> Iterator[str]:
        """Look after the process; start one for what has ended meanwhile, and for what could not be written."""
        yield from self._look()
        if self._hook is None and self._due and (self._is_closed or time.monotonic() >= self._not_before):
            yield from self._start()

    def close(self, end: BatchOutcome) -> None:
        """Have all written down that is not there, and how the batch has ended."""
        if self._settings.mlflow:
            self._want(self._settings_of())
            self._is_closed = True

    def is_done(self) -> bool:
        """Return whether all is written, or cannot be."""
        return self._hook is None and not self._due

    def give_up(self) -> Iterator[str]:
        """End the process; the next batch writes what is missing."""
        if self._hook:
            self._hook.end()
        self._hook = None
        earlier = f" (before: {self._failure})" if self._failure else ""
        yield f"{self.name}: not all was written in time{earlier}; the next `train` writes it; {remedy(self._store)}"

    def _want(self, patches: Iterable[str]) -> None:
        if self._settings.mlflow:
            self._due |= dict.fromkeys(patches)

    def _start(self) -> Iterator[str]:
        every = self._settings_of()
        self._asked, self._writes_the_end = tuple(self._due), self._is_closed
        self._due.clear()
        order = {
            "uri": self._store,
            "artifacts": artifacts_of(self._store),
            "experiment": self._settings.experiment,
            "splats": self._settings.splats,
            "output": str(self._output.path),
            "settings": {name: every.get(name, {}) for name in self._asked},
            "has_ended": self._writes_the_end,
        }
        try:
            message = json.dumps(order, default=str).encode()
            self._hook = Hook(PROGRAM, message, TIMEOUT_S, is_heard=True)
        except OSError as error:
            yield from self._failed(f"cannot be started ({error.strerror})")

    def _look(self) -> Iterator[str]:
        verdict = self._hook.verdict() if self._hook else None
        if verdict is None:
            return
        self._hook = None
        if verdict:
            yield from self._failed(one_line(verdict))
        else:
            self._failure, self._pause_s = "", PAUSES_S[0]

    def _failed(self, why: str) -> Iterator[str]:
        """Have what was asked for written later; say why it was not, unless that was said before."""
        if not self._writes_the_end:
            self._due |= dict.fromkeys(self._asked)
        self._not_before = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSES_S[1])
        before, self._failure = self._failure, why
        if why != before or self._writes_the_end:
            yield f"{self.name}: {why}; {remedy(self._store)}"
