"""An attempt that has ended: what stands in its folder is read once, however many ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splatbatch.store.attempt_folder import AttemptFolder, Kind
from splatbatch.store.records.progress import Progress


@dataclass(frozen=True)
class EndedAttempt(AttemptFolder):
    """The folder of an attempt that has ended: its records change no more, and each is read once."""

    _known: dict[Path, Any] = field(default_factory=dict, compare=False, repr=False)

    def _read(self, path: Path, kind: type[Kind]) -> Kind | None:
        if path not in self._known:
            self._known[path] = super()._read(path, kind)
        known: Kind | None = self._known[path]
        return known

    def _read_lines(self, path: Path, kind: type[Kind]) -> Sequence[Kind]:
        if path not in self._known:
            self._known[path] = super()._read_lines(path, kind)
        known: Sequence[Kind] = self._known[path]
        return known

    def last_progress(self) -> Progress:
        """Return the latest line of progress.jsonl; blank if it never began."""
        return next(reversed(self.read_progress()), Progress())
