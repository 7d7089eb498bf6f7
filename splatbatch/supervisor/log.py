"""The log of an attempt: everything the process says, but never more than its share of the disk."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

HEAD_BYTES = 1 << 20
TAIL_BYTES = 4 << 20
LARGEST_BYTES = 16 << 20


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
