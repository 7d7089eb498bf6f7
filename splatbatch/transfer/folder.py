"""A store in a folder: of this machine, or one that machines do share."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from splatbatch.errors import CutOffError, StoreError
from splatbatch.files import is_out_of_space, open_regular, sync_folder
from splatbatch.output.generations import create_once
from splatbatch.transfer.store import PIECE_BYTES

AWAY = frozenset({errno.ENOTCONN, errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})
"""What a mount says whose server is away."""


class FolderStore:
    """Files below a folder; each is written beside its place and renamed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Yield what a file holds, from a byte on."""
        with _told(self._folder):
            file = open_regular(self._folder / name)
        with file:
            file.seek(start)
            while piece := _read(file, self._folder):
                yield piece

    def write(self, name: str, content: Path | bytes) -> None:
        """Write a file, whole or not at all."""
        with _told(self._folder), self._aside(name, content) as aside:
            aside.replace(self._folder / name)
            sync_folder(aside.parent)

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless there is one of that name."""
        with _told(self._folder), self._aside(name, content) as aside:
            return create_once(aside, self._folder / name)

    def names(self, folder: str) -> dict[str, int]:
        """Return the names of the files in a folder, each with its size."""
        found: dict[str, int] = {}
        with _told(self._folder), contextlib.suppress(FileNotFoundError), os.scandir(self._folder / folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.name[0] != "." and entry.is_file():
                        found[entry.name] = entry.stat().st_size
        return found

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        with _told(self._folder):
            (self._folder / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _aside(self, name: str, content: Path | bytes) -> Iterator[Path]:
        """Give a file that is on the disk, and has not got its name yet."""
        place = self._folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
        try:
            with aside.open("xb") as file:
                if isinstance(content, bytes):
                    file.write(content)
                else:
                    with open_regular(content) as source:
                        shutil.copyfileobj(source, file, PIECE_BYTES)
                file.flush()
                os.fsync(file.fileno())
            yield aside
        finally:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)


def _read(file: BinaryIO, folder: Path) -> bytes:
    with _told(folder):
        return file.read(PIECE_BYTES)


@contextlib.contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Say of an error what it means for the store."""
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
                f"store {folder}: is full", "Make room there; what was not written is written then."
            ) from error
        raise StoreError(said, "Choose another folder, or mend its permissions.") from error
