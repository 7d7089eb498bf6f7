"""A log as it is read for a diagnosis: whole or, if it is long, its beginning and its end, and what is left out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from splatbatch.files import MIB, open_regular

HEAD_BYTES, TAIL_BYTES = MIB // 4, MIB * 3 // 4


class Ends(NamedTuple):
    """The beginning and the end of a log: lines after number `after` stand `left_out` lines lower in the file."""

    text: str
    after: int = 0
    left_out: int = 0


def read_ends(path: Path, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> Ends:
    """Return the first and last lines of a log, or all, undecodable bytes replaced; nothing if there is none."""
    try:
        with open_regular(path) as file:
            between = file.seek(0, os.SEEK_END) - tail_bytes
            file.seek(0)
            head = file.read(head_bytes)
            if between <= head_bytes:
                return Ends((head + file.read()).decode("utf-8", errors="replace"))
            head = head[: head.rfind(b"\n") + 1] or head
            file.seek(len(head))
            blocks = iter(lambda: file.read(min(MIB, between - file.tell())), b"")
            lines = head.count(b"\n") + sum(block.count(b"\n") for block in blocks)
            cut, _, whole = file.read().partition(b"\n")
    except OSError:
        return Ends("")
    begin = head.decode("utf-8", errors="replace").removesuffix("\n") + "\n"
    after = begin.count("\n")
    end = (whole or cut).decode("utf-8", errors="replace")
    return Ends(begin + end, after, lines + bool(whole) - after)
