"""Where programs of this user keep what they can make again, and their scratch folders."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from stat import S_ISDIR

MOST_BATCHES = 64
"""Whose caches are kept."""


def cache_home() -> Path:
    """Return the folder that all of them lie in."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def own_cache() -> Path:
    """Return the folder of what we have read of files, for all commands of this user."""
    return Path(os.environ.get("SPLATBATCH_CACHE") or cache_home() / "splatbatch")


def own_scratch() -> Path:
    """Return a folder on a local disk that this user alone can read and write: $TMPDIR/splatbatch-UID.

    Where that is a link, another user's, or was open to others, it is left alone: a new folder is made each time.

    Raises:
        OSError: it cannot be made.
    """
    place = Path(tempfile.gettempdir()) / f"splatbatch-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        place.mkdir(mode=0o700)
    found = place.lstat()
    if not S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        return Path(tempfile.mkdtemp(prefix=f"{place.name}-"))
    place.chmod(0o700)  # earlier versions let others read it
    return place


def cache_of(folder: Path) -> Path:
    """Return where a batch's caches lie: by its output folder, into which a query writes nothing."""
    return own_cache() / "batches" / hashlib.sha256(os.fsencode(os.path.abspath(folder))).hexdigest()[:16]  # noqa: PTH100


def make_cache(folder: Path) -> None:
    """Make the folder of a batch's caches; of too many the oldest go.

    Raises:
        OSError: it cannot be made.
    """
    is_new = not folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    if is_new:
        for old in oldest(folder.parent, MOST_BATCHES):
            shutil.rmtree(old, ignore_errors=True)


def oldest(folder: Path, most: int) -> list[Path]:
    """Return what lies in a folder beyond the newest so many.

    Raises:
        OSError: something of it has gone meanwhile.
    """
    return sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)[most:]


def extensions_folder() -> Path:
    """Return where torch builds extensions (torch.utils.cpp_extension); to ask torch itself would import it."""
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cache_home() / "torch_extensions")
