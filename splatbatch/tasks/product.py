"""The state of a product that is no accepted splat: up to date, stale, damaged or missing, by a hash of its inputs.

Such products are stages of a reconstruction, inspections, evaluations and published files. Accepted splats of patches
are judged by `tasks.freshness` instead.
"""

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
    """Return the state of a product; its files are read only if its key has not changed.

    Args:
        key: key that the product would have if it were made now; see `key_of`.
        recorded: key in its record; None: there is no record, and the product is missing.
        place: file or folder of the product; None: the product is only its record.
        parts: SHA-256 of each file in the place, when it was made, by path there; with a place but no parts, the
            product is missing. A file that cannot be read counts as changed.
        facts: known hashes of files; None: hashes in the user's cache count while size and time are the same.
    """
    if recorded is None or (place and not parts):
        return Missing()
    if recorded != key:
        return Stale("its inputs have changed")
    made, now = parts or {}, hashes_in(place, facts) if place else {}
    changed = [name for name in dict.fromkeys((*made, *now)) if made.get(name) != now.get(name)]
    return damaged_state(list_some(changed)) if changed else UpToDate()


def damaged_state(part: str) -> Damaged:
    """Return the state `Damaged` for a product of which this part has changed on disk.

    Args:
        part: names of the changed files, or words on missing ones; for the message.
    """
    return Damaged(f"{part}: damaged on disk", parts=part)


def key_of(version: int | str, *inputs: object) -> str:
    """Return the key of a product: a hash of the version of its program and of all its inputs.

    Args:
        version: version of the program; with another version the product is made again.
        inputs: all values that decide the content of the product, as JSON can hold them.
    """
    return hash_of([version, *inputs])


def hashes_in(place: Path, facts: FileFacts | None = None) -> dict[str, str]:
    """Return the SHA-256 of a file, by its name, or of all files in a folder, by their paths relative to it.

    The result is empty if the place does not exist. A file that cannot be read has an empty hash.

    Args:
        place: file or folder.
        facts: known hashes of files; None: hashes in the user's cache count while size and time are the same.
    """
    facts = facts or FileFacts()
    if place.is_file():
        return {place.name: facts.sha256(str(place))}
    files = sorted(one for one in place.rglob("*") if one.is_file())
    return {one.relative_to(place).as_posix(): facts.sha256(str(one)) for one in files}
