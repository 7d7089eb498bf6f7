"""A store: a folder, a folder of an ssh host, or a bucket. Files have names, and are whole or absent for every reader.

A folder or host without hard links is an exception, see `FolderStore`. Writing with `once` is a hint, not a guarantee:
some stores let two writers win. So a writer reads the file back.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from splatbatch.errors import StoreError
from splatbatch.files import open_regular

PIECE_BYTES = 4 << 20
"""Size of the pieces in which a file is read, in bytes."""


class Store(Protocol):
    """A place through which machines exchange files. Names are relative, with / between their parts.

    Every call may raise a CutOffError, after which the call may be repeated, or a StoreError, which repeating does not
    cure.
    """

    def read(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Yield the contents of a file from byte `start` on.

        Raises:
            FileNotFoundError: there is no such file.
        """

    def write(self, name: str, content: Path | bytes, *, once: bool = False) -> bool:
        """Write a file, whole or not at all; return whether it was written, as far as the store tells.

        Args:
            name: name of the file in the store.
            content: its contents, or the path of the local file with them.
            once: whether an existing file of that name stays; else it is replaced.

        Raises:
            StoreError: the local file cannot be read, too; see `pieces_of`.
        """

    def names(self, folder: str) -> set[str]:
        """Return the names of the files in a folder, in no order; an empty set if there is no folder."""


def pieces_of(content: Path | bytes) -> Iterator[bytes]:
    """Yield contents that are to be written, or the local file with them, in pieces.

    Raises:
        StoreError: the local file cannot be read, which no store mends; see `unreadable`.
    """
    try:
        with io.BytesIO(content) if isinstance(content, bytes) else open_regular(content) as file:
            while piece := file.read(PIECE_BYTES):
                yield piece
    except OSError as error:
        raise unreadable(content, error) from error


def unreadable(content: Path | bytes, error: OSError) -> StoreError:
    """Return the error for a local file that cannot be read: unlike a cut-off store, it is not tried again."""
    return StoreError(
        f"{content!s}: cannot be read ({error.strerror or error})", "Check the file and its disk, then run again."
    )


def read_whole(store: Store, name: str, most_bytes: int) -> bytes:
    """Return the contents of a file of at most `most_bytes` bytes.

    A larger file is read only up to the piece that exceeds this size; so more bytes, or the whole file, may come.

    Raises:
        FileNotFoundError: there is no such file.
        StoreError: the store refuses the request; a CutOffError if it does not answer.
    """
    found = bytearray()
    for piece in store.read(name):
        found += piece
        if len(found) > most_bytes:
            break
    return bytes(found)
