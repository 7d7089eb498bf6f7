"""Opens the files of a COLMAP model; a file that cannot be used raises a ModelError that names it."""

from __future__ import annotations

import codecs
import ctypes
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO, TypeVar

from splatbatch.errors import SceneError
from splatbatch.files import MIB, open_regular

T = TypeVar("T")
PARTS = ("cameras", "images", "points3D")
_LFS = b"version https://git-lfs"
_COPY_AGAIN = "Copy the file again, or export the model again (colmap model_converter); a backup may hold a whole one."
_REMEDIES = {
    errno.EACCES: ("no permission to read it", "Give the user who runs splatbatch read access (chmod, chown)."),
    errno.ELOOP: ("symbolic links that run in a circle", "Replace the link by the file that it should point to."),
    errno.EINVAL: ("not a regular file", "Put the file itself there, in place of the folder, pipe or device."),
    errno.ENOTDIR: ("not inside a folder", "Name the folder that holds cameras, images and points3D (.bin or .txt)."),
}
TAKEN = (signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV, signal.SIGILL, signal.SIGFPE, signal.SIGBUS)
"""Signals whose handlers pycolmap replaces when it is imported (by glog's InstallFailureSignalHandler).

With those handlers a batch that was told to end would print a stack trace and die, its attempts with it.
"""
SIGACTION = 256
"""Bytes reserved for a `struct sigaction`; glibc's takes 152."""
_IMPORTING = threading.Lock()


class ModelError(SceneError):
    """Error: a file or folder of a COLMAP model cannot be used.

    `path` is that file or folder, `what` the fault in words, and `hint` what to do.
    """

    def __init__(self, path: Path, what: str, hint: str = _COPY_AGAIN) -> None:
        super().__init__(f"{path}: {what}", hint)
        self.path = path
        self.what = what


class MissingModel(ModelError):
    """Error: there is no COLMAP model, or only some of its files."""


def unreadable(path: Path, error: OSError) -> ModelError:
    """Return the ModelError for a path that the operating system refused to read; `error` is the refusal.

    Its words and hint fit the cause: a broken link, links in a circle, no permission, no regular file (as a pipe), or
    a parent that is no folder. Any other refusal has the words of the operating system. The error is returned, not
    raised.
    """
    if error.errno == errno.ENOENT and path.is_symlink():
        return ModelError(path, f"a link to {path.readlink()}, which does not exist", "Correct the link.")
    return ModelError(path, *_REMEDIES.get(error.errno or 0, (error.strerror or str(error), _COPY_AGAIN)))


def choose_format(folder: Path) -> str:
    """Return the format of the model in a folder: "bin" if all three .bin files exist, else "txt", as in COLMAP.

    Raises:
        MissingModel: the folder does not exist, or neither the .bin nor the .txt files are complete.
        ModelError: the folder cannot be read.
    """
    try:
        names = set(os.listdir(folder))  # noqa: PTH208 - names alone are wanted
    except FileNotFoundError as error:
        if folder.is_symlink():
            raise unreadable(folder, error) from error
        raise MissingModel(folder, "no such folder", "A patch keeps its COLMAP model in sparse/0.") from error
    except OSError as error:
        raise unreadable(folder, error) from error
    for suffix in ("bin", "txt"):
        if all(f"{part}.{suffix}" in names for part in PARTS):
            return suffix
    suffix = "bin" if any(f"{part}.bin" in names for part in PARTS) or not names else "txt"
    missing = ", ".join(f"{part}.{suffix}" for part in PARTS if f"{part}.{suffix}" not in names)
    hint = "A model is cameras, images and points3D, all three .bin or all three .txt."
    if missing == f"points3D.{suffix}":
        hint = f"Copy the file too; or make points from photographs: splatbatch import {quote(str(folder))} NEW"
    raise MissingModel(folder, f"no COLMAP model, {missing} missing{'' if names else ' (the folder is empty)'}", hint)


@contextmanager
def opened(path: Path, most_mib: int | None = None) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file of a model for reading, and yield it with its size in bytes.

    Refused are empty files, git-lfs pointers, files above `most_mib`, and all that is no regular file, as a pipe. A
    .txt file is also refused for a byte order mark (of UTF-8 or UTF-16).

    Args:
        path: path of the file.
        most_mib: largest size that is accepted, in MiB; None: any, for callers that do not read the file whole.

    Raises:
        ModelError: the file cannot be opened or read, or is refused; or the `with` block raises an OSError.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if file.read(len(_LFS)) == _LFS:
                raise ModelError(path, "a git-lfs pointer, not the file itself", "Run `git lfs pull` in its folder.")
            file.seek(0)
            if path.suffix == ".txt" and (encoding := _odd_encoding(file.read(3))):
                remedy = f"Save the file as plain UTF-8 (iconv, or sed -i '1s/^\\xEF\\xBB\\xBF//' {path.name})."
                raise ModelError(path, encoding, remedy)
            file.seek(0)
            if most_mib is not None and size > most_mib * MIB:
                raise ModelError(
                    path, f"has {size // MIB:,} MiB; at most {most_mib} MiB are read", "Export fewer images."
                )
            if size == 0:
                raise ModelError(path, "empty (0 bytes)")
            yield file, size
    except OSError as error:
        raise unreadable(path, error) from error


def _odd_encoding(head: bytes) -> str:
    """Return why the first bytes of a text are not plain UTF-8; empty if they are."""
    if head == codecs.BOM_UTF8:
        return "begins with a byte order mark (BOM), as some editors of Windows write it"
    return (
        "is UTF-16, as some editors of Windows write it"
        if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        else ""
    )


def shown(name: str) -> str:
    """Return a text from a file in a form that is safe to print: control characters and invalid bytes are escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)


def unique_ids(path: Path, items: list[T], key: Callable[[T], int]) -> dict[int, T]:
    """Return the items by id, in their order.

    Args:
        path: file that the items were read from, for the error.
        items: cameras or images of the file.
        key: returns the id of an item.

    Raises:
        ModelError: two items have the same id.
    """
    by_id = {key(item): item for item in items}
    if len(by_id) != len(items):
        raise ModelError(path, f"{len(items)} entries have only {len(by_id)} different ids")
    return by_id


def load_pycolmap() -> Any:
    """Import pycolmap and return the module; signal handlers stay as they are. Safe in any thread.

    The first call takes half a second, for which calls in other threads wait.

    Raises:
        ImportError: pycolmap is not installed, or cannot be loaded.
    """
    with _IMPORTING:  # a second thread would take glog's handlers for those to put back
        kept = {} if "pycolmap" in sys.modules else {number: ctypes.create_string_buffer(SIGACTION) for number in TAKEN}
        for number, action in kept.items():  # Python's own functions set a handler in the main thread alone
            ctypes.CDLL(None).sigaction(number, None, action)
        import pycolmap

        for number, action in kept.items():
            ctypes.CDLL(None).sigaction(number, action, None)
        return pycolmap
