"""frame.json: where the splats of a batch lie in the world of their models."""

from __future__ import annotations

from dataclasses import dataclass, field

from splatbatch.fields import mapping
from splatbatch.store.records.fingerprint import Place, place
from splatbatch.store.records.record import TypedRecord, reads


def _places(value: object) -> dict[str, Place]:
    return {name: place(one) for name, one in mapping(value).items()}


@dataclass(frozen=True)
class Frame(TypedRecord):
    """What is taken off the coordinates of every model; kept, so that patches which are added fit the others."""

    offset: Place = field(default=(0.0, 0.0, 0.0), metadata=reads(place))
    scenes: dict[str, Place] = field(default_factory=dict, metadata=reads(_places))
    """Of each scene that stands by itself; the others have `offset`."""

    def of(self, patch: str) -> Place:
        """Return the offset of a patch."""
        return self.scenes.get(patch, self.offset)
