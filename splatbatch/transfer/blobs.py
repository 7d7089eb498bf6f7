"""Blobs: file contents in a store, named by their SHA-256; a content that patches share lies there once.

Every fetched blob is checked against its name. A courier is a helper process that makes the calls to a store, so that
its caller never hangs; see `transfer.courier`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from splatbatch.errors import StoreError
from splatbatch.files import fault_of_name, is_out_of_space
from splatbatch.hashing import sha256_of
from splatbatch.output.records.record import TypedRecord
from splatbatch.transfer.courier import Courier, patiently
from splatbatch.transfer.store import Store

BLOBS = "blobs"
AT_ONCE = 8
"""Number of parallel transfers between this machine and a store."""
TRIES = 3
"""How often a blob that does not match its SHA-256 is fetched again, before it counts as damaged in the store."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
R = TypeVar("R")


@dataclass(frozen=True)
class FileRef(TypedRecord):
    """Reference to a file of a bundle, or of an attempt; the content of the file is a blob in a store."""

    name: str = ""
    """Path relative to the folder of the bundle or attempt, with / between its parts."""
    sha256: str = ""
    num_bytes: int = 0
    mtime_ns: int = 0
    """Modification time of an attempt's file in ns since 1970, by the clock of its machine; 0: not recorded."""


def blob(sha256: str) -> str:
    """Return the name of a blob in a store: blobs/<SHA-256>."""
    return f"{BLOBS}/{sha256}"


def names(store: Store, folder: str) -> list[str]:
    """Return the names of the files in a folder of a store, in no order; runs in the courier process.

    Raises:
        StoreError: the store refuses the request.
        CutOffError: the store does not answer.
    """
    return [*store.names(folder)]


def distinct(pieces: Iterable[FileRef]) -> list[FileRef]:
    """Return one file for each distinct content, in the order of the files, so that each blob is transferred once."""
    return list({piece.sha256: piece for piece in pieces}.values())


def at_once(call: Callable[..., R], *items: Iterable[object]) -> list[R]:
    """Call a function with each item, or with one item of each of several lists, and return all results in order.

    `AT_ONCE` calls run in parallel threads. The first error, in the order of the items, is raised.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(call, *items))


def put(store: Store, files: Sequence[tuple[str, Path | bytes]]) -> None:
    """Put files into a store in parallel; runs in the courier process.

    If the connection is cut off, the upload of that file begins again until it succeeds.

    Args:
        store: the store.
        files: each file's name in the store, and its contents or the path of a local file.

    Raises:
        StoreError: the store refuses a file, or a local file cannot be read.
    """
    contents = dict(files)
    at_once(partial(patiently, store.write), contents.keys(), contents.values())


def fetch(store: Store, folder: Path, pieces: Sequence[FileRef]) -> list[str]:
    """Fetch the blobs of files into a folder, named by their hashes; runs in the courier process.

    A whole blob in the folder is not fetched again; a cut-off download resumes where it ended.

    Args:
        store: the store.
        folder: the local folder; made if missing.
        pieces: the files.

    Returns:
        For each file, in their order: "" if its blob is in the folder. "missing" if the store has none, or the file has
        no valid hash. "damaged" if what the store has does not match the hash, also after `TRIES` repetitions.

    Raises:
        StoreError: the store refuses a request.
        CutOffError: the store does not answer.
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return at_once(partial(_fetch_one, store, folder), pieces)


def fetch_all(courier: Courier, folder: Path, pieces: Sequence[FileRef]) -> dict[FileRef, str]:
    """Fetch the blobs of files into a local folder; return "damaged" or "missing" for each faulty file, see `fetch`.

    The result is empty if all were fetched. Of several files with the same content only one is returned.

    Args:
        courier: the courier of the store.
        folder: the local folder; made if missing.
        pieces: the files.

    Raises:
        StoreError: the store refuses a request.
        OSError: the folder cannot be written.
        StopRequested: a stop was requested during the wait. Other errors: see `Courier.run`.
    """
    wanted = distinct(pieces)
    faults = courier.ask(fetch, folder, wanted)
    return {piece: fault for piece, fault in zip(wanted, faults, strict=True) if fault}


def _fetch_one(store: Store, folder: Path, piece: FileRef) -> str:
    sha256, num_bytes = piece.sha256, piece.num_bytes
    if not _SHA256.fullmatch(sha256):  # it could be a path
        return "missing"
    target, part = folder / sha256, folder / f".{sha256}.part"
    if target.exists() and sha256_of(target) == sha256:
        return ""
    for _ in range(TRIES + 1):
        start = part.stat().st_size if part.exists() and part.stat().st_size < num_bytes else 0
        try:
            with part.open("ab" if start else "wb") as file:
                file.writelines(store.read(blob(sha256), start) if num_bytes else ())
        except FileNotFoundError:
            part.unlink(missing_ok=True)
            return "missing"
        if sha256_of(part) == sha256:
            part.replace(target)
            return ""
        part.unlink(missing_ok=True)
    return "damaged"


def lay(pieces: Iterable[FileRef], place: Path, folder: Path, put: Callable[[Path, Path], object] = os.link) -> None:
    """Lay out fetched blobs as named files in a folder; no file is written outside of the folder.

    Args:
        pieces: the files, by name and hash.
        place: folder of the fetched blobs, named by their hashes.
        folder: target folder; made if missing. A file of the same name is replaced.
        put: makes a file from a blob: a hard link, or a copy.

    Raises:
        StoreError: a name leads out of the folder, or the file cannot be written there.
        OSError: the disk is full, or the folder cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for piece in pieces:
        if why := fault_of_name(piece.name):
            raise StoreError(why)
        target = folder / piece.name
        if any(above.is_symlink() for above in target.parents[: piece.name.count("/")]):
            raise StoreError(f"{piece.name!r} is refused: one of its folders is a link")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            put(place / piece.sha256, target)
            if piece.mtime_ns:
                os.utime(target, ns=(time.time_ns(), piece.mtime_ns))
        except (OSError, ValueError) as error:
            if is_out_of_space(error):
                raise
            raise StoreError(f"{piece.name!r} cannot be written ({error})") from error
