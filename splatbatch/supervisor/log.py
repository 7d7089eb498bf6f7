"""The log of an attempt: no more than its share of the disk, and values of the environment masked in it."""

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
TAIL_BYTES = 4 << 20
LARGEST_BYTES = 16 << 20
SHORTEST = 8
"""Characters: a shorter value is a word of many logs."""
_NUMBERS = re.compile(r"[-+.,:;\d\s]+")
_RULES = re.compile(r"-+[A-Z \d]+-+")
"""First and last line of a key in PEM format."""


class BoundedLog:
    """Appends to a file; when it grows too large its middle is cut out. The first error and the last words stay."""

    def __init__(self, path: Path) -> None:
        # no O_APPEND: with it Linux appends even where pwrite names a place, and the cut is made in place
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._size = os.fstat(self._descriptor).st_size
        self._left_out = 0
        self._note_bytes = 0
        self.said = 0
        """Bytes the process has said so far, also those that are not kept."""

    def write(self, data: bytes) -> None:
        """Append what the process said; what a full disk does not take is lost, and the training goes on."""
        self.said += len(data)
        with suppress(OSError):
            self._size += os.pwrite(self._descriptor, data, self._size)
            if self._size > LARGEST_BYTES:
                self._cut()

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _cut(self) -> None:
        """Move the tail up to the head: in place, so that it needs no room on the disk and no time to sync."""
        tail = os.pread(self._descriptor, TAIL_BYTES, self._size - TAIL_BYTES)
        self._left_out += self._size - HEAD_BYTES - self._note_bytes - len(tail)
        note = f"\n[splatbatch: {self._left_out} bytes left out here]\n".encode()
        self._note_bytes = len(note)
        self._size = HEAD_BYTES + os.pwrite(self._descriptor, note + tail, HEAD_BYTES)
        os.ftruncate(self._descriptor, self._size)


class Secrets:
    """Masks what a program says, piece by piece as it comes: what may begin a secret waits for the next piece."""

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
        """Return what may be shown by now; an end that may be the beginning of a secret is kept back."""
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
        """Return what was kept back: nothing follows. As much of a secret as would be one by itself is masked."""
        kept, self._kept = self._kept, b""
        if self._pattern is None:
            return kept
        if len(kept) >= SHORTEST:
            return next(name for form, name in self._names.items() if form.startswith(kept))
        return kept

    def mask_text(self, text: str) -> str:
        """Return a whole text without them."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._names[found[0]], _encoded(text)).decode(errors="replace")

    def _cut(self, data: bytes, place: int) -> int:
        """Return where the longest end begins, from a place on, that is the beginning of a secret."""
        for start in range(max(place, len(data) - self._longest + 1), len(data)):
            end = data[start:]
            if any(form.startswith(end) for form in self._names):
                return start
        return len(data)


def shown_anyway(env: Mapping[str, str], filled: Mapping[str, str], shown: Iterable[object]) -> tuple[str, ...]:
    """Return the variables whose values say no more than what is shown of a recipe.

    Args:
        env: values as they stand in the YAML, placeholders left out.
        filled: the same, with what stands for the placeholders.
        shown: settings, words of the command, names.
    """
    known = {str(one) for one in shown}
    return tuple(name for name, value in filled.items() if value.strip() in known or len(env[name].strip()) < SHORTEST)


def _forms(value: str) -> Iterator[str]:
    """Yield how a secret may be spelled: as it is, in JSON, in Python, in a URL, line by line, its password alone."""
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
    """Return the bytes of a text as the environment of a process holds them; of half a character that it cannot, ?."""
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
    """Return whether a value is a path that exists, or may soon, or a list of such paths."""
    parts = [part for part in value.split(os.pathsep) if part]
    return bool(parts) and all(_exists(Path(part)) for part in parts)


def _exists(path: Path) -> bool:
    try:
        return path.exists() or (path.is_absolute() and path.parent != Path(path.anchor) and path.parent.is_dir())
    except (OSError, ValueError):
        return False
