"""The folder of an attempt that inspects a splat: what it is told, what it finds, and the pictures of that."""

from __future__ import annotations

from dataclasses import dataclass

from splatbatch.store.attempt_folder import AttemptFolder, FileIn
from splatbatch.store.records.quality.inspection import Inspection, InspectionSettings

PICTURES = "inspection"


@dataclass(frozen=True)
class InspectingFolder(AttemptFolder):
    """The one place where the file names of an inspection are written down."""

    pictures = FileIn(PICTURES)
    """Training process: a folder of small pictures, one for each figure that has any."""

    def read_inspection_settings(self) -> InspectionSettings:
        """Return what is asked of settings.json; blank without it."""
        return self._read(self.settings, InspectionSettings) or InspectionSettings()

    def read_inspection(self) -> Inspection | None:
        """Return metrics.json; None before the end."""
        return self._read(self.metrics, Inspection)
