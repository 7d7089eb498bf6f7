"""Identity: is it still that file, are these the same files? By stat; where that has moved, by content.

Contents that were read are kept by path, size, times and inode in the user's cache: nothing is hashed twice, and a
query writes nothing into an output folder.
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
"""So old a file must be before its stamp tells it from a later state: clocks differ, file systems count in steps."""
MOST_BYTES = 32 << 20
"""Of the stamps that are kept, some 240,000; the older half goes then."""


class FileFact(NamedTuple):
    """What is known of a file; -1 bytes: it is not there."""

    num_bytes: int
    mtime_ns: int = 0
    sha256: str = ""
    """Of its content; empty until it was hashed."""


ABSENT = FileFact(-1)
Files = dict[str, FileFact]
"""By a name that says where it lies: sparse/images.bin, images/left/0001.jpg, masks/left/ (the folder itself)."""


class Stamp(NamedTuple):
    """What tells one state of a file from another; -1 bytes: it is not there."""

    num_bytes: int
    mtime_ns: int = 0
    number: int = 0
    """Its inode: a file that was renamed over another has one of its own."""


def stamp_of(path: str) -> Stamp:
    """Return size, time and number of a file as they are now."""
    stat = _stat(path)
    return Stamp(stat.st_size, stat.st_mtime_ns, stat.st_ino) if stat else Stamp(-1)


def file_fact(path: str | Path) -> FileFact:
    """Return size and time of a file as they are now; a folder has no size."""
    stat = _stat(path)
    return FileFact(0 if S_ISDIR(stat.st_mode) else stat.st_size, stat.st_mtime_ns) if stat else FileFact(-1)


def _stat(path: str | Path) -> os.stat_result | None:
    """Return what the file system says of a file now; None if it is not there."""
    files.note_reading(str(path))
    try:
        return os.stat(path)  # noqa: PTH116 - of thousands of photographs
    except (OSError, ValueError):
        return None


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file, every byte of it read now; empty if it cannot be read."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return ""


def short_hash(text: str) -> str:
    """Return 16 hexadecimal digits that stand for a text."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def hash_of(known: object) -> str:
    """Return 16 hexadecimal digits that stand for what JSON can hold; of anything else its text counts."""
    return short_hash(json.dumps(known, sort_keys=True, default=str))


class Stamps:
    """Contents of files that were read before, kept for all commands of this user.

    One line each, appended by a single write and with a checksum of its own: several processes write at once, and of
    what a crash or a disk has damaged the line alone is lost. It is a cache: all of it may go at any time.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Keep them in the user's cache, or elsewhere; nothing is read until it is needed."""
        self._path = path or own_cache() / "stamps"
        self._lines: dict[bytes, bytes] | None = None

    def get(self, path: str, stat: os.stat_result) -> str:
        """Return the SHA-256 of a file that has been read in just this state; empty if none was."""
        name = _name(path)
        if self._lines is None:
            self._lines = {line[:16]: line for line in _read(self._path).splitlines()}
        said, _, checksum = self._lines.get(name, b"").rpartition(b" ")
        if checksum != b"%08x" % zlib.crc32(said):
            return ""
        _, *state, sha256 = said.split(b" ")
        return sha256.decode() if state == _state(stat) else ""

    def put(self, path: str, stat: os.stat_result, sha256: str) -> None:
        """Take in what a file holds; not of one that has just been written: it may be again, within the same tick."""
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
    numbers = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    return [b"%d" % number for number in numbers]


class FileFacts:
    """Size, time and content of files, each asked for once: patches share their photographs."""

    def __init__(self, stamps: Stamps | None = None, *, reads: bool = True) -> None:
        """Ask files, and what is known of their contents.

        Args:
            stamps: contents that were read before.
            reads: what is not known is read; else it stays unknown.
        """
        self._stamps = stamps or Stamps()
        self.reads = reads
        """Whether what is not known is read."""
        self._facts: dict[str, FileFact] = {}
        self._contents: dict[str, str] = {}

    def of(self, path: str) -> FileFact:
        """Return size and time of a file; folders have no size."""
        if path not in self._facts:
            self._facts[path] = file_fact(path)
        return self._facts[path]

    def sha256(self, path: str) -> str:
        """Return the SHA-256 of a file's content; empty if it cannot be read, or may not be and is not known."""
        if path not in self._contents:
            self._contents[path] = self.known(path) or (self.read_anew(path) if self.reads else "")
        return self._contents[path]

    def known(self, path: str) -> str:
        """Return the SHA-256 of a file as it was read in just this state; empty if it was not; nothing is read."""
        stat = _stat(path)
        return self._stamps.get(path, stat) if stat else ""

    def read_anew(self, path: str) -> str:
        """Return the SHA-256 of a file, every byte of it read now, whatever is known of it; empty if that fails."""
        found = ""
        with contextlib.suppress(OSError, ValueError):
            before = os.stat(path)  # noqa: PTH116
            found = sha256_of(path)
            if found and _state(os.stat(path)) == _state(before):  # noqa: PTH116 - it was not written to meanwhile
                self._stamps.put(path, before, found)
        return found


@dataclass(frozen=True)
class FileDifference:
    """In what some files differ from what was written down of them."""

    changed: tuple[str, ...] = ()
    """Other content, or size; come or gone."""
    unknown: tuple[str, ...] = ()
    """Of the same size, with another time, and its earlier content was not hashed."""
    unread: tuple[str, ...] = ()
    """Of the same size, with another time: reading it tells."""


Verdict = Literal["same", "changed", "unknown", "unread"]
"""See `FileDifference`."""


def compare(path: str | Path, then: FileFact, facts: FileFacts, now: FileFact | None = None) -> Verdict:
    """Compare a file with what was written down of it.

    Args:
        path: where it lies.
        then: what was written down.
        facts: what is known of files, and whether more may be read.
        now: what was written down later; None: the file as it is.
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
    """Compare files with what was written down of them: by size and time, and where the time has moved by content.

    Args:
        then: what was written down.
        now: of the files as they are, or as they were written down later.
        place: where the file of a name lies.
        facts: what is known of files, and whether more may be read.
    """
    found: dict[Verdict, list[str]] = {"same": [], "changed": [], "unknown": [], "unread": []}
    for key in dict.fromkeys((*now, *then)):
        before, after = then.get(key, ABSENT), now.get(key, ABSENT)
        if before[:2] != after[:2] and not (key.endswith("/") and key in then and key in now):
            found[compare(place(key), before, facts, after)].append(key)  # what lies in a folder has its own name
    return FileDifference(tuple(found["changed"]), tuple(found["unknown"]), tuple(found["unread"]))


def with_contents(now: Mapping[str, FileFact], then: Mapping[str, FileFact], differ: FileDifference) -> Files:
    """Return files with the contents that were written down of those that are the same."""
    others = {*differ.changed, *differ.unknown, *differ.unread}
    known = {key: then[key].sha256 for key in now if key in then and key not in others and not now[key].sha256}
    return {key: fact._replace(sha256=known.get(key, fact.sha256)) for key, fact in now.items()}
