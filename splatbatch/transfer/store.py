"""A store: a folder, a host's by sftp, or a bucket; small files by name, whole or absent for every reader.

What is made once is a hint here, never a promise: some stores let two win. Its maker reads it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

PIECE_BYTES = 4 << 20
"""That a file is read in."""


class Store(Protocol):
    """Where machines leave files for each other. Names are relative, with / between their parts.

    Every call may raise a CutOffError, after which it may be made again, or a StoreError, after which that is in vain.
    """

    def read(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Yield what a file holds, from a byte on.

        Raises:
            FileNotFoundError: there is none.
        """

    def write(self, name: str, content: Path | bytes, *, once: bool = False) -> bool:
        """Write a file, whole or not at all; return whether we did, as far as the store tells.

        Args:
            name: of the file.
            content: of it, or the file that holds it.
            once: a file of that name stays as it is; else it is replaced.
        """

    def names(self, folder: str) -> set[str]:
        """Return the names of the files in a folder; none if there is no folder."""


def read_whole(store: Store, name: str, most_bytes: int) -> bytes:
    """Return what a small file holds; of a larger one its beginning, which no hash and no JSON parser takes.

    Raises:
        FileNotFoundError: there is none.
    """
    found = bytearray()
    for piece in store.read(name):
        found += piece
        if len(found) > most_bytes:
            break
    return bytes(found)
