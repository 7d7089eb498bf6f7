"""Cache and scratch folders of this user; all files in them can be made again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from stat import S_ISDIR

MOST_BATCHES = 64
"""Number of batches whose caches are kept."""


def cache_home() -> Path:
    """Return the folder of all caches of this user: $XDG_CACHE_HOME, or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def own_cache() -> Path:
    """Return the cache folder of splatbatch: $SPLATBATCH_CACHE, or `splatbatch` in the user's cache."""
    return Path(os.environ.get("SPLATBATCH_CACHE") or cache_home() / "splatbatch")


def own_scratch() -> Path:
    """Return a scratch folder that this user alone can read and write, and make it: $TMPDIR/splatbatch-UID.

    If that path is a link, belongs to another user, or is writable for others, a new folder is made at each call.

    Raises:
        OSError: the folder cannot be made.
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
    """Return the folder for the caches of a batch, named by a hash of its output folder; it is not made here."""
    return own_cache() / "batches" / hashlib.sha256(os.fsencode(os.path.abspath(folder))).hexdigest()[:16]  # noqa: PTH100


def make_cache(folder: Path) -> None:
    """Make the folder for the caches of a batch; when it is new, delete the oldest beyond `MOST_BATCHES`.

    Raises:
        OSError: the folder cannot be made.
    """
    is_new = not folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    if is_new:
        for old in oldest(folder.parent, MOST_BATCHES):
            shutil.rmtree(old, ignore_errors=True)


def oldest(folder: Path, most: int) -> list[Path]:
    """Return the files and folders in a folder except the newest `most`, by their modification times.

    Raises:
        OSError: one of them was deleted meanwhile.
    """
    return sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)[most:]


def extensions_folder() -> Path:
    """Return the folder in which torch builds extensions (torch.utils.cpp_extension), without importing torch."""
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cache_home() / "torch_extensions")
