"""The state of a product made from inputs: up to date, stale, damaged or missing. One rule for all kinds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from splatbatch.hashing import FileFacts, hash_of
from splatbatch.tasks.patch_state import Damaged, Missing, PatchState, Stale, UpToDate
from splatbatch.text import list_some


def compare_product(
    key: str,
    recorded: str | None,
    place: Path | None = None,
    parts: Mapping[str, str] | None = None,
    facts: FileFacts | None = None,
) -> PatchState:
    """Return how a product stands; its bytes are read only where all else is as it was.

    Args:
        key: of version and inputs, as it would be made now; see `key_of`.
        recorded: the key that its record holds; None: there is no record.
        place: the file or folder that it is; None: its record is all there is of it.
        parts: the SHA-256 of each file of the place, as it was made; without any the product is missing.
        facts: what is known of these files; None: they are read.
    """
    if recorded is None or (place and not parts):
        return Missing()
    if recorded != key:
        return Stale("its inputs have changed")
    made, now = parts or {}, hashes_in(place, facts) if place else {}
    changed = [name for name in dict.fromkeys((*made, *now)) if made.get(name) != now.get(name)]
    return damaged_state(list_some(changed)) if changed else UpToDate()


def damaged_state(part: str) -> Damaged:
    """Return that a part of a product does not hold what was made."""
    return Damaged(f"{part}: damaged on disk", parts=part)


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
