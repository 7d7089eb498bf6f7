"""Reads a log for a diagnosis: the whole log or, if it is long, its beginning and its end."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

from splatbatch.files import MIB, open_regular

HEAD_BYTES, TAIL_BYTES = MIB // 4, MIB * 3 // 4
BOM = "\ufeff"


def read_ends(path: Path, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> tuple[str, int, int]:
    """Return the first and last lines of a log, or all lines if the log is short, with undecodable bytes replaced.

    Args:
        path: the log, in UTF-8, or in UTF-16 with a byte order mark.
        head_bytes: most bytes to read from its beginning.
        tail_bytes: most bytes to read from its end.

    Returns:
        The text, "" if there is no readable log; the number of lines before the gap; the number of lines in the gap.
        Both numbers are 0 if nothing was left out.
    """
    try:
        with open_regular(path) as file:
            between = file.seek(0, os.SEEK_END) - tail_bytes
            file.seek(0)
            head = file.read(head_bytes)
            # PowerShell's `>` writes UTF-16
            encoding = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}.get(head[:2], "utf-8")
            if between <= head_bytes:
                return (head + file.read()).decode(encoding, errors="replace").removeprefix(BOM), 0, 0
            between -= between % 2  # to the middle of no character of UTF-16
            begin = head.decode(encoding, errors="replace").removeprefix(BOM)
            begin = begin[: begin.rfind("\n") + 1] or begin
            blocks = iter(lambda: file.read(min(MIB, between - file.tell())), b"")
            lines = begin.count("\n") + sum(block.count(b"\n") for block in blocks)
            cut, _, whole = file.read().decode(encoding, errors="replace").partition("\n")
    except OSError:
        return "", 0, 0
    begin = begin.removesuffix("\n") + "\n"
    after = begin.count("\n")
    return begin + (whole or cut), after, lines + bool(whole) - after
