"""Comparison of files with their recorded state: by size and time, and by SHA-256 where the time has changed.

Hashes are cached in the user's cache folder by path, size, times and inode. So an unchanged file is usually hashed
once, unless it was younger than `SETTLED_S`, and a query writes nothing into an output folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR
from typing import Literal, NamedTuple

from splatbatch import files
from splatbatch.caches import own_cache
from splatbatch.files import PRIVATE, open_descriptor, open_regular, read_regular, write_whole

SETTLED_S = 5.0
"""Age in seconds from which a file's hash is cached.

A younger file may change again without a new time, since clocks differ and file systems count time in steps.
"""
MOST_BYTES = 32 << 20
"""Largest size of the cache of hashes in bytes, some 240,000 entries; beyond it the older half is dropped."""


class FileFact(NamedTuple):
    """Size, time and hash of a file, as recorded earlier or as found now.

    `num_bytes` is its size: 0 for a folder, -1 if the file does not exist or may not be looked at. `mtime_ns` is its
    modification time in ns since 1970.
    """

    num_bytes: int
    mtime_ns: int = 0
    sha256: str = ""
    """SHA-256 of the content in hexadecimal; empty: it was not hashed."""


ABSENT = FileFact(-1)
"""The `FileFact` of a file that does not exist or may not be looked at."""
Files = dict[str, FileFact]
"""Facts of files, by name: sparse/images.bin, images/left/0001.jpg, or masks/left/ for the folder itself."""


class Stamp(NamedTuple):
    """Size, modification time and inode of a file, to see later whether it has changed.

    `num_bytes` is its size, -1 if the file does not exist or may not be read. `mtime_ns` is its modification time in ns
    since 1970.
    """

    num_bytes: int
    mtime_ns: int = 0
    number: int = 0
    """The inode number; it changes when another file is renamed to this path."""


def stamp_of(path: str | Path) -> Stamp:
    """Return size, time and inode of a file as they are now; size -1 if it does not exist or may not be read."""
    stat = _stat(path)
    return Stamp(stat.st_size, stat.st_mtime_ns, stat.st_ino) if stat else Stamp(-1)


def file_fact(path: str | Path) -> FileFact:
    """Return size and time of a file as they are now, without a hash, since the content is not read.

    A folder has size 0. A file that does not exist or may not be looked at has size -1.
    """
    stat = _stat(path)
    return FileFact(0 if S_ISDIR(stat.st_mode) else stat.st_size, stat.st_mtime_ns) if stat else FileFact(-1)


def _stat(path: str | Path) -> os.stat_result | None:
    """Return the stat of a file now; None if it does not exist or cannot be asked."""
    files.note_reading(str(path))
    try:
        return os.stat(path)  # noqa: PTH116 - of thousands of photographs
    except (OSError, ValueError):
        return None


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, read now without the cache; "" if the file cannot be read."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return ""


def short_hash(text: str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def hash_of(known: object) -> str:
    """Return `short_hash` of a value written as JSON with sorted keys.

    Parts that JSON cannot hold count by their `str`.
    """
    return short_hash(json.dumps(known, sort_keys=True, default=str))


class Stamps:
    """Cache of the SHA-256 of files by path and state (size, times, inode), shared by all commands of this user.

    Each entry is one line with a checksum, appended by a single write. Several processes may write at once, and damage
    costs only the damaged line. The cache may be deleted at any time.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Use the file `path`, by default (None) in the user's cache folder; it is read at the first `get`."""
        self._path = path or own_cache() / "stamps"
        self._lines: dict[bytes, bytes] | None = None

    def get(self, path: str, stat: os.stat_result) -> str:
        """Return the SHA-256 of a file that was hashed in this very state (size, times, inode); "" if none is cached.

        Args:
            path: the file; a relative path is made absolute.
            stat: the stat of the file now.
        """
        name = _name(path)
        if self._lines is None:
            self._lines = {line[:16]: line for line in _read(self._path).splitlines()}
        said, _, checksum = self._lines.get(name, b"").rpartition(b" ")
        if checksum != b"%08x" % zlib.crc32(said):
            return ""
        _, *state, sha256 = said.split(b" ")
        return sha256.decode() if state == _state(stat) else ""

    def put(self, path: str, stat: os.stat_result, sha256: str) -> None:
        """Cache the SHA-256 of a file in a state, unless the file changed within the last `SETTLED_S` seconds.

        Never fails.

        Args:
            path: the file; a relative path is made absolute.
            stat: the stat of the file when it was hashed.
            sha256: the hash in hexadecimal.
        """
        if max(stat.st_mtime_ns, stat.st_ctime_ns) > (time.time() - SETTLED_S) * 1e9:
            return
        said = b" ".join((_name(path), *_state(stat), sha256.encode()))
        line = said + b" %08x" % zlib.crc32(said)
        if self._lines is not None:
            self._lines[line[:16]] = line
        with contextlib.suppress(OSError):  # a cache that cannot be written costs time, and nothing else
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if file_fact(self._path).num_bytes > MOST_BYTES:
                newest = _read(self._path)[-MOST_BYTES // 2 :]
                write_whole(self._path, lambda file: file.write(newest), PRIVATE)
            with open_descriptor(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, PRIVATE
            ) as descriptor:
                os.write(descriptor, b"\n" + line + b"\n")  # after a torn line, on one of its own


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, 2 * MOST_BYTES)
    except OSError:
        return b""


def _name(path: str) -> bytes:
    return short_hash(os.path.abspath(path)).encode()  # noqa: PTH100 - of thousands of photographs


def _state(stat: os.stat_result) -> list[bytes]:
    return [b"%d" % one for one in (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)]


class FileFacts:
    """Size, time and SHA-256 of files; `of` and `sha256` look at each file once, since patches share photographs."""

    def __init__(self, stamps: Stamps | None = None, *, reads: bool = True) -> None:
        """Prepare; no file is asked yet.

        Args:
            stamps: the cache of hashes; None: the user's.
            reads: whether files whose hash is not cached may be read.
        """
        self._stamps = stamps or Stamps()
        self.reads = reads
        """Whether files whose hash is not cached may be read."""
        self._facts: dict[str, FileFact] = {}
        self._contents: dict[str, str] = {}

    def of(self, path: str) -> FileFact:
        """Return size and time of a file as they were at the first call for this path.

        A folder has size 0; a file that does not exist or may not be looked at has size -1.
        """
        if path not in self._facts:
            self._facts[path] = file_fact(path)
        return self._facts[path]

    def sha256(self, path: str) -> str:
        """Return the SHA-256 of a file, from the cache or read at the first call.

        "" if the file cannot be read, or if no hash is cached and `reads` is False.
        """
        if path not in self._contents:
            self._contents[path] = self.known(path) or (self.read_anew(path) if self.reads else "")
        return self._contents[path]

    def known(self, path: str) -> str:
        """Return the cached SHA-256 of a file in its present state; "" if none is cached. The content is not read."""
        stat = _stat(path)
        return self._stamps.get(path, stat) if stat else ""

    def read_anew(self, path: str) -> str:
        """Return the SHA-256 of a file by reading it now; "" if it cannot be read.

        The hash is cached, unless the file changed during the reading or within the last `SETTLED_S` seconds.
        """
        found = ""
        with contextlib.suppress(OSError, ValueError):
            before = os.stat(path)  # noqa: PTH116
            found = sha256_of(path)
            if found and _state(os.stat(path)) == _state(before):  # noqa: PTH116 - it was not written to meanwhile
                self._stamps.put(path, before, found)
        return found


@dataclass(frozen=True)
class FileDifference:
    """Names of files that differ, or may differ, from their recorded size, time and hash.

    Empty where there are none.
    """

    changed: tuple[str, ...] = ()
    """Files with another content or size, new files, files that are gone, and files that cannot be read."""
    unknown: tuple[str, ...] = ()
    """Files of the same size with another time, whose earlier content was never hashed, so that nothing can decide."""
    unread: tuple[str, ...] = ()
    """Files of the same size with another time, which were not read; their content would decide."""


Verdict = Literal["same", "changed", "unknown", "unread"]
"""Result of comparing one file with its recorded fact.

same: size and time are equal, or the content is. The other words are explained at `FileDifference`.
"""


def compare(path: str | Path, then: FileFact, facts: FileFacts, now: FileFact | None = None) -> Verdict:
    """Compare a file with its recorded fact: by size and time, and by SHA-256 where only the time differs.

    Args:
        path: the file.
        then: the recorded fact.
        facts: facts of files now; its `reads` says whether the file may be read.
        now: a fact recorded later, to compare `then` with; None: the file as it is.
    """
    after = now or facts.of(str(path))
    if then[:2] == after[:2]:
        return "same"
    if then.num_bytes != after.num_bytes:
        return "changed"
    if not then.sha256:
        return "unknown"
    if after.sha256:
        return "same" if after.sha256 == then.sha256 else "changed"
    if facts.of(str(path))[:2] != after[:2]:
        return "unread"  # it has moved on since
    content = facts.sha256(str(path))
    if not content:
        return "changed" if facts.reads else "unread"  # what cannot be read is not what it was
    return "same" if content == then.sha256 else "changed"


def difference(
    then: Mapping[str, FileFact], now: Mapping[str, FileFact], place: Callable[[str], str], facts: FileFacts
) -> FileDifference:
    """Compare files with their recorded facts, each as `compare` does; the time of a folder does not count.

    Args:
        then: the recorded facts, by name.
        now: the facts of the files as they are, or as recorded later, by name.
        place: returns the path of a file by its name.
        facts: facts of files now; its `reads` says whether files may be read.
    """
    found: dict[Verdict, list[str]] = {"same": [], "changed": [], "unknown": [], "unread": []}
    for key in dict.fromkeys((*now, *then)):
        before, after = then.get(key, ABSENT), now.get(key, ABSENT)
        if before[:2] != after[:2] and not (key.endswith("/") and key in then and key in now):
            found[compare(place(key), before, facts, after)].append(key)  # what lies in a folder has its own name
    return FileDifference(tuple(found["changed"]), tuple(found["unknown"]), tuple(found["unread"]))


def with_contents(now: Mapping[str, FileFact], then: Mapping[str, FileFact], differ: FileDifference) -> Files:
    """Return the facts `now`, with the hashes that they lack taken from `then`.

    Args:
        now: facts of files, by name.
        then: earlier facts, whose hashes are known.
        differ: the files that differ between the two; they get no hash.
    """
    others = {*differ.changed, *differ.unknown, *differ.unread}
    known = {key: then[key].sha256 for key in now if key in then and key not in others and not now[key].sha256}
    return {key: fact._replace(sha256=known.get(key, fact.sha256)) for key, fact in now.items()}
