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
"""Number of batches of this user whose cache folders are kept; older ones are deleted."""


def cache_home() -> Path:
    """Return the folder of all caches of this user: $XDG_CACHE_HOME or, if that is not set or empty, ~/.cache.

    A user without a home folder, as in some containers, has `own_scratch()` instead.

    Raises:
        OSError: the scratch folder is needed, and cannot be made.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return own_scratch()


def own_cache() -> Path:
    """Return the cache folder of splatbatch: $SPLATBATCH_CACHE or, without it, `splatbatch` in `cache_home()`."""
    return Path(os.environ.get("SPLATBATCH_CACHE") or cache_home() / "splatbatch")


def own_scratch() -> Path:
    """Make a scratch folder that this user alone can use, if missing; return its path, $TMPDIR/splatbatch-<user id>.

    Without a usable TMPDIR it lies in the first usable one of $TEMP, $TMP, /tmp, /var/tmp, /usr/tmp and the working
    folder. If that path is a link or a file, belongs to another user, or is writable for others, each call makes
    another folder instead.

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
    """Return the folder for the caches of a batch; the folder is not made here.

    The folder lies in `own_cache()`/batches and is named by 16 hexadecimal digits: a hash of the absolute path
    `folder`, the output folder of the batch.
    """
    return own_cache() / "batches" / hashlib.sha256(os.fsencode(os.path.abspath(folder))).hexdigest()[:16]  # noqa: PTH100


def make_cache(folder: Path) -> None:
    """Make the folder for the caches of a batch, if missing; if it is new, delete the oldest beyond `MOST_BATCHES`.

    Args:
        folder: path returned by `cache_of`.

    Raises:
        OSError: the folder cannot be made, or another process deleted a folder beside it meanwhile.
    """
    is_new = not folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    if is_new:
        for old in oldest(folder.parent, MOST_BATCHES):
            shutil.rmtree(old, ignore_errors=True)


def oldest(folder: Path, most: int) -> list[Path]:
    """Return the files and folders in a folder except the newest `most`, by modification time, newest first.

    Raises:
        OSError: the folder cannot be read, or an entry of it was deleted meanwhile.
    """
    return sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)[most:]


def extensions_folder() -> Path:
    """Return the folder in which torch builds C++ and CUDA extensions, without importing torch.

    The folder is $TORCH_EXTENSIONS_DIR or, if that is not set or empty, `torch_extensions` in `cache_home()`.
    """
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cache_home() / "torch_extensions")
