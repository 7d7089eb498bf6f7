"""The DOM of a page as text: an element a line, attributes by name; white space and what files hold are left out."""

from __future__ import annotations

import os
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path

from splatbatch import __version__

VOID = {"br", "col", "hr", "img", "input", "link", "meta"}
CONTENT = {"script", "style", "template"}
"""Elements whose text is a program, a style or a packed file."""
RECORD = "SPLATBATCH_RECORD_DOM"
"""Set, the test writes down the DOM as it is, instead of comparing it."""
VARIES = (
    (re.compile(rf"splatbatch {re.escape(__version__)}"), "splatbatch VERSION"),
    (re.compile(r"Python \d[\w.+]*"), "Python VERSION"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:]+[+-]\d{4}"), "MOMENT"),
)
"""What differs between machines and days, and what stands for it."""
LONGEST = 90
"""Characters of an attribute or a text; of a longer one a checksum stands."""


def compare_dom(page: str, recorded: Path, folder: Path) -> None:
    """Compare the DOM of a page with a recorded one; the folder of the test stands in it as FOLDER."""
    page = page.replace(str(folder), "FOLDER")
    for pattern, word in VARIES:
        page = pattern.sub(word, page)
    found = dom_of(page)
    if os.environ.get(RECORD):
        recorded.write_text(found, encoding="utf-8")
    assert found.splitlines() == recorded.read_text(encoding="utf-8").splitlines(), f"{RECORD}=1 writes it down anew"


def dom_of(page: str) -> str:
    """Return the elements and texts of a page, each on a line, indented by its depth."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open, f"never closed: {reader.open}"
    return "\n".join(reader.lines) + "\n"


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.open: list[str] = []
        self.is_new = False
        """Nothing has come since the last element began."""

    def handle_decl(self, decl: str) -> None:
        self._add(f"!{decl}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        spelled = [name if value is None else f"{name}={_short(value)}" for name, value in sorted(attrs)]
        self._add(" ".join([f"<{tag}>", *spelled]))
        self.is_new = tag not in VOID
        if self.is_new:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> within {self.open}"
        self.open.pop()
        self.is_new = False

    def handle_data(self, data: str) -> None:
        words = " ".join(data.split())
        if words and self.open[-1] in CONTENT and len(words) > LONGEST:
            words = "(content)"
        if words and self.is_new:
            self.lines[-1] += f" | {_short(words)}"
        elif words:
            self._add(f"| {_short(words)}")
        self.is_new = self.is_new and not words

    def _add(self, line: str) -> None:
        self.lines.append(" " * len(self.open) + line)


def _short(text: str) -> str:
    """Return a text that is short enough to read; packed pictures and digests of scripts are left out."""
    text = re.sub(r"base64,[\w+/=]+", "base64,…", text)
    text = re.sub(r"'sha256-[\w+/=]+'", "sha256", text)
    return text if len(text) <= LONGEST else f"{text[:40]}… {zlib.crc32(text.encode()):08x}"
