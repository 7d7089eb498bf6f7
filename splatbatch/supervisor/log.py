"""The log of an attempt, bounded in size, with secret values of the environment masked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, quote_plus, urlsplit

from splatbatch.output.records.attempt import WatchSettings

HEAD_BYTES = 1 << 20
"""Bytes at the begin of a log that are kept when it is cut: 1 MiB."""
TAIL_BYTES = 4 << 20
"""Bytes at the end of a log that are kept when it is cut: 4 MiB."""
LARGEST_BYTES = 16 << 20
"""Size of a log at which its middle is cut out: 16 MiB."""
SHORTEST = 8
"""Shortest value, in characters, that is masked; a shorter value may be a common word in logs."""
_NUMBERS = re.compile(r"[-+.,:;\d\s]+")
_RULES = re.compile(r"-+[A-Z \d]+-+")
"""The first or last line of a key in PEM format, which is no secret."""


class BoundedLog:
    """A log file of at most `LARGEST_BYTES`: when it grows larger, its middle is cut out in place.

    The first `HEAD_BYTES` and the last `TAIL_BYTES` stay, with a note about the bytes left out between them.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or make it; output is appended to what it holds.

        Raises:
            OSError: the file cannot be opened.
        """
        # no O_APPEND: with it Linux appends even where pwrite names a place, and the cut is made in place
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._size = os.fstat(self._descriptor).st_size
        self._left_out = 0
        self._note_bytes = 0
        self.said = 0
        """Number of bytes of output so far, with those that were cut out or lost."""

    def write(self, data: bytes) -> None:
        """Append output of the process.

        On a full disk the output is lost without an error, and the training goes on.
        """
        self.said += len(data)
        with suppress(OSError):
            self._size += os.pwrite(self._descriptor, data, self._size)
            if self._size > LARGEST_BYTES:
                self._cut()

    def close(self) -> None:
        """Close the file; it stays on disk."""
        os.close(self._descriptor)

    def _cut(self) -> None:
        """Move the tail up behind the head, in place, so that no free space on the disk is needed."""
        tail = os.pread(self._descriptor, TAIL_BYTES, self._size - TAIL_BYTES)
        self._left_out += self._size - HEAD_BYTES - self._note_bytes - len(tail)
        note = f"\n[splatbatch: {self._left_out} bytes left out here]\n".encode()
        self._note_bytes = len(note)
        self._size = HEAD_BYTES + os.pwrite(self._descriptor, note + tail, HEAD_BYTES)
        os.ftruncate(self._descriptor, self._size)


class Secrets:
    """Replaces secret values of the environment by `[NAME]` in a program's output, as it comes in pieces.

    The end of a piece that may be the beginning of a secret is kept back until the next piece. Values that `shown` of
    the watch settings names, short values, numbers and paths are not masked. Without watch settings nothing is masked.
    """

    def __init__(self, watch: WatchSettings | None) -> None:
        values = {name: value for name, value in watch.env.items() if name not in watch.shown} if watch else {}
        self._names: dict[bytes, bytes] = {}
        for name, value in values.items():
            for form in _forms(value):
                self._names.setdefault(_encoded(form), f"[{name}]".encode())
        # the longest first: a URL is masked before the password in it
        forms = sorted(self._names, key=lambda form: -len(form))
        self._pattern = re.compile(b"|".join(map(re.escape, forms))) if forms else None
        self._longest = max(map(len, forms), default=0)
        self._kept = b""

    def mask(self, data: bytes) -> bytes:
        """Return the masked output up to now; an end that may be the beginning of a secret is kept back."""
        if self._pattern is None:
            return data
        data, shown, place = self._kept + data, b"", 0
        while True:
            cut = self._cut(data, place)
            found = self._pattern.search(data, place)
            if found is None or found.start() >= cut:
                break
            shown += data[place : found.start()] + self._names[found[0]]
            place = found.end()
        self._kept = data[cut:]
        return shown + data[place:cut]

    def rest(self) -> bytes:
        """Return the bytes that were kept back, at the end of the output.

        `SHORTEST` bytes or more of a secret are masked.
        """
        kept, self._kept = self._kept, b""
        if self._pattern and len(kept) >= SHORTEST:
            return next(name for form, name in self._names.items() if form.startswith(kept))
        return kept

    def mask_text(self, text: str) -> str:
        """Return a whole text with its secrets masked; pieces of output go through `mask` instead."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._names[found[0]], _encoded(text)).decode(errors="replace")

    def _cut(self, data: bytes, place: int) -> int:
        """Return where the longest end of the data begins that is the beginning of a secret; its length if none is."""
        for start in range(max(place, len(data) - self._longest + 1), len(data)):
            end = data[start:]
            if any(form.startswith(end) for form in self._names):
                return start
        return len(data)


def shown_anyway(env: Mapping[str, str], filled: Mapping[str, str], shown: Iterable[object]) -> tuple[str, ...]:
    """Return the names of environment variables that need no mask: their values are shown elsewhere, or are short.

    Args:
        env: values as in the YAML, without placeholders, by name.
        filled: values with placeholders filled in, by name.
        shown: texts that are shown anyway: settings, words of the command, names.
    """
    known = {str(one) for one in shown}
    return tuple(name for name, value in filled.items() if value.strip() in known or len(env[name].strip()) < SHORTEST)


def _forms(value: str) -> Iterator[str]:
    """Yield the forms of a secret in a log: plain, in JSON, Python or a URL; also its lines, and its password."""
    for one in dict.fromkeys((value, value.strip(), *_parts(value))):
        # no short word, no number, no path
        if not (len(one) >= SHORTEST and not _NUMBERS.fullmatch(one) and not _is_number(one) and not _is_path(one)):
            continue
        yield from (one, one.replace("\n", "\r\n"), repr(one)[1:-1], repr(_encoded(one))[2:-1])
        yield from (json.dumps(one)[1:-1], json.dumps(one, ensure_ascii=False)[1:-1])
        yield from (quote(_encoded(one)), quote(_encoded(one), safe=""), quote_plus(_encoded(one)))


def _parts(value: str) -> Iterator[str]:
    yield from (line.strip() for line in value.splitlines() if not _RULES.fullmatch(line.strip()))
    try:
        yield urlsplit(value.strip()).password or ""
    except ValueError:  # no URL
        return


def _encoded(text: str) -> bytes:
    """Return a text as bytes, as in the environment of a process; a lone surrogate without a byte becomes "?"."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode(errors="replace")


def _is_number(value: str) -> bool:
    try:
        return float(value) is not None
    except ValueError:
        return False


def _is_path(value: str) -> bool:
    """Return whether a value is a path that exists, or whose folder exists, or a list of such paths."""
    parts = [part for part in value.split(os.pathsep) if part]
    return bool(parts) and all(_exists(Path(part)) for part in parts)


def _exists(path: Path) -> bool:
    try:
        return path.exists() or (path.is_absolute() and path.parent != Path(path.anchor) and path.parent.is_dir())
    except (OSError, ValueError):
        return False
