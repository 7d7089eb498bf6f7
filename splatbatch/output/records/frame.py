"""frame.json: the offset between the coordinates of the splats of a batch and those of their models."""

from __future__ import annotations

from dataclasses import dataclass, field

from splatbatch.output.records.fingerprint import ORIGIN, FilePlace
from splatbatch.output.records.record import TypedRecord


@dataclass(frozen=True)
class Frame(TypedRecord):
    """The offset that is subtracted from the coordinates of every model, in units of the model.

    The offset is kept in frame.json, so that patches added later fit.
    """

    offset: FilePlace = ORIGIN
    scenes: dict[str, FilePlace] = field(default_factory=dict)
    """Offsets of patches with coordinate systems of their own, by patch; all other patches have `offset`."""

    def of(self, patch: str) -> FilePlace:
        """Return the offset of a patch, by its name: x, y, z in units of the model."""
        return self.scenes.get(patch, self.offset)
