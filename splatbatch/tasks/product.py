"""A product: what is made from inputs, and how it stands: fresh, stale, damaged or missing. One rule for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from splatbatch.hashing import FileFacts, hash_of
from splatbatch.tasks.patch_state import Damaged, Missing, PatchState, Stale, UpToDate
from splatbatch.text import list_some


@dataclass(frozen=True)
class ProductComparison:
    """What would be made now, beside what the record of the last one says."""

    key: str
    """Of version and inputs; see `key_of`."""
    recorded: str | None
    """The key that its record holds; None: there is no record."""
    damage: str = ""
    """Which part does not hold what was made, as far as that is known without a look at its bytes."""
    place: Path | None = None
    """The file or folder that it is; None: its record is all there is of it."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of each file of the place, as it was made; without any the product is missing."""
    facts: FileFacts | None = None
    """What is known of these files; None: they are read."""

    def state(self) -> PatchState:
        """Return how it stands; its bytes are read only where all else is as it was."""
        if self.recorded is None or (self.place and not self.parts):
            return Missing()
        if self.recorded != self.key:
            return Stale("its inputs have changed")
        now = hashes_in(self.place, self.facts) if self.place else {}
        changed = [name for name in dict.fromkeys((*self.parts, *now)) if self.parts.get(name) != now.get(name)]
        part = self.damage or list_some(changed)
        return Damaged(f"{part}: damaged on disk", parts=part) if part else UpToDate()

    @property
    def is_fresh(self) -> bool:
        """Return whether nothing has to be made."""
        return isinstance(self.state(), UpToDate)


def key_of(version: int | str, *inputs: object) -> str:
    """Return the key of a product.

    Args:
        version: of what makes it; a higher one makes it anew.
        inputs: all that decides what is in it, as JSON can hold it.
    """
    return hash_of([version, *inputs])


def hashes_in(place: Path, facts: FileFacts | None = None) -> dict[str, str]:
    """Return the SHA-256 of a file, by its name, or of all files in a folder, by their paths there."""
    facts = facts or FileFacts()
    if place.is_file():
        return {place.name: facts.sha256(str(place))}
    files = sorted(one for one in place.rglob("*") if one.is_file())
    return {one.relative_to(place).as_posix(): facts.sha256(str(one)) for one in files}
