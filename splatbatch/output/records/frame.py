"""frame.json: where the splats of a batch lie in the world of their models."""

from __future__ import annotations

from dataclasses import dataclass, field

from splatbatch.output.records.fingerprint import ORIGIN, FilePlace
from splatbatch.output.records.record import TypedRecord


@dataclass(frozen=True)
class Frame(TypedRecord):
    """What is taken off the coordinates of every model; kept, so that patches which are added fit the others."""

    offset: FilePlace = ORIGIN
    scenes: dict[str, FilePlace] = field(default_factory=dict)
    """Of each scene that stands by itself; the others have `offset`."""

    def of(self, patch: str) -> FilePlace:
        """Return the offset of a patch."""
        return self.scenes.get(patch, self.offset)
