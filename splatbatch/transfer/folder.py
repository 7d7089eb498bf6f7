"""A store in a folder, of this machine or of a shared file system."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path

from splatbatch.errors import CutOffError, StoreError
from splatbatch.files import is_out_of_space, open_regular, write_whole
from splatbatch.output.generations import create_once
from splatbatch.transfer.store import PIECE_BYTES, pieces_of

AWAY = frozenset({errno.ENOTCONN, errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})
"""Error numbers of a mount whose server cannot be reached; such a request may succeed later."""


@dataclass
class FolderStore:
    """A store of files below `folder`, which need not exist before the first file is written.

    A file is written under a temporary name and renamed, so that no reader sees a part of it. With `once` it is linked
    to its name or, where links are impossible, copied; a reader may see a part of the copy.
    """

    folder: Path

    def read(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Yield the contents of a file from byte `start` on.

        Raises:
            FileNotFoundError: there is no such file.
            StoreError: the file cannot be read; a CutOffError if the server of the folder cannot be reached.
        """
        with _store_errors(self.folder), open_regular(self.folder / name) as file:
            file.seek(start)
            while piece := file.read(PIECE_BYTES):
                yield piece

    def write(self, name: str, content: Path | bytes, *, once: bool = False) -> bool:
        """Write a file, whole or not at all; with `once`, do not replace an existing file, but return False.

        Args:
            name: name of the file in the store.
            content: its contents, or the path of the local file with them.
            once: whether an existing file of that name stays.

        Raises:
            StoreError: the local file cannot be read, or the other cannot be written; a CutOffError if the server of
                the folder cannot be reached.
        """
        place = self.folder / name
        target = place.with_name(f".{place.name}.{uuid.uuid4().hex}") if once else place
        with _store_errors(self.folder):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, methodcaller("writelines", pieces_of(content)))
            if not once:
                return True
            try:
                return create_once(target, place)
            finally:
                target.unlink(missing_ok=True)

    def names(self, folder: str) -> set[str]:
        """Return the names of the files in a folder, without temporary ones; an empty set if there is no such folder.

        Raises:
            StoreError: the folder cannot be read; a CutOffError if its server cannot be reached.
        """
        with (
            _store_errors(self.folder),
            contextlib.suppress(FileNotFoundError),
            os.scandir(self.folder / folder) as entries,
        ):
            return {entry.name for entry in entries if entry.name[0] != "." and entry.is_file()}
        return set()


@contextlib.contextmanager
def _store_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError into a CutOffError if the server is away, else a StoreError; FileNotFoundError stays."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        said = f"store {folder}: {error.strerror or error}"
        if error.errno in AWAY:
            raise CutOffError(said) from error
        if is_out_of_space(error):
            raise StoreError(
                f"store {folder}: no space left", "Free space in the store, then run the command again."
            ) from error
        raise StoreError(said, "Choose another folder for the store, or fix its permissions.") from error
