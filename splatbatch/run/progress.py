"""How far the process of a task is, said while it runs."""

from __future__ import annotations

import time

from splatbatch.monitor.messages import PipeWriter
from splatbatch.output.folders import PatchFolder

LOOKS_EVERY_S = 1.0


class ProgressPrinter:
    """Says how far the process of a task is, as its progress.jsonl says from now on."""

    def __init__(self, what: str, home: PatchFolder, lines: PipeWriter) -> None:
        self._what, self._home, self._lines = what, home, lines
        self._earlier, self._looked = home.latest(home.files()), 0.0

    def look(self) -> None:
        """Say it, unless that was said just now; called many times a second."""
        if time.monotonic() - self._looked < LOOKS_EVERY_S:
            return
        self._looked = time.monotonic()
        folder = self._home.latest(self._home.files())
        if folder is not None and folder != self._earlier:
            at = folder.last_progress()
            self._lines.advance(self._what, at.step or 0, at.max_steps or 0, f"steps ({at.phase or 'start'})")
