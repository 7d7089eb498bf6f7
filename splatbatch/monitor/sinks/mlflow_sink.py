"""The sink for MLflow: a process aside writes down the attempts that have ended; the batch never waits for it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from splatbatch.config import Tracking
from splatbatch.errors import MissingPartError
from splatbatch.store.events import AttemptEnded, Event
from splatbatch.store.layout import OutputFolder
from splatbatch.supervisor.hook import Hook

PROGRAM = (sys.executable, "-m", "splatbatch.monitor.sinks.mlflow_runs")
LOOK_S = 0.05
FILES = "file:"
SettingsOf = Callable[[], Mapping[str, Mapping[str, Any]]]


def _anchored(store: str, base: Path) -> str:
    """Return a tracking store whose folder, if it is one, is told from the folder of the YAML."""
    place = store.removeprefix(FILES)
    return (base / place).as_uri() if store.startswith(FILES) and not place.startswith("/") else store


class MlflowSink:
    """Knows which patches have news; `mlflow_runs` reads what there is in their folders."""

    name = "tracking.mlflow"

    def __init__(self, settings: Tracking, output: OutputFolder, base: Path, settings_of: SettingsOf) -> None:
        """Take the settings, the folder of the YAML, and what tells each task's settings by their full names.

        Raises:
            MissingPartError: MLflow is asked for, and not installed.
        """
        if settings.mlflow and find_spec("mlflow") is None:
            raise MissingPartError("tracking.mlflow: MLflow is not installed", "pip install 'splatbatch[mlflow]'")
        self._settings, self._output, self._settings_of = settings, output, settings_of
        self._store = _anchored(settings.mlflow, base)
        self._due: dict[str, None] = {}
        self._hook: Hook | None = None

    def tell(self, event: Event) -> None:
        """Note a patch of which an attempt has ended."""
        if self._settings.mlflow and isinstance(event, AttemptEnded):
            self._due[event.patch] = None

    def beat(self) -> Iterator[str]:
        """Look after the process; start one for what has ended meanwhile."""
        yield from self._look()
        if self._due and self._hook is None:
            yield from self._start(has_ended=False)

    def finish(self) -> Iterator[str]:
        """Have all written down, or give up after `timeout_s`."""
        if not self._settings.mlflow:
            return
        yield from self._wait()
        yield from self._start(has_ended=True)
        yield from self._wait()

    def _start(self, *, has_ended: bool) -> Iterator[str]:
        every, due = self._settings_of(), tuple(self._due)
        self._due.clear()
        order = {
            "uri": self._store,
            "experiment": self._settings.experiment,
            "splats": self._settings.splats,
            "output": str(self._output.path),
            "settings": {name: every.get(name, {}) for name in due},
            "has_ended": has_ended,
        }
        try:
            self._hook = Hook(PROGRAM, json.dumps(order, default=str).encode(), self._settings.timeout_s)
        except OSError as error:
            yield f"{self.name}: cannot be started ({error.strerror})"

    def _look(self) -> Iterator[str]:
        verdict = self._hook.verdict() if self._hook else None
        if verdict is not None:
            self._hook = None
        if verdict:
            yield f"{self.name}: {verdict}; MLFLOW_TRACKING_URI and its server are the first to look at"

    def _wait(self) -> Iterator[str]:
        while self._hook:
            yield from self._look()
            time.sleep(LOOK_S)
