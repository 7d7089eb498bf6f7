"""Pictures of an inspection: read from the folder of its attempt, as far as the page has room."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from splatbatch.files import read_regular
from splatbatch.report.facts import Quality
from splatbatch.report.page.html import Html, tag
from splatbatch.report.page.pictures import Budget

MOST_BYTES = 60_000
"""A larger file is none of ours."""


@dataclass(frozen=True)
class Pictures:
    """The folder of an inspection's pictures; its names come from a record that anybody may have changed."""

    folder: Path
    budget: Budget

    @classmethod
    def of_quality(cls, quality: Quality | None, budget: Budget) -> Pictures:
        """Return those of what the report knows of an inspection."""
        return cls(Path(quality.pictures if quality else ""), budget)

    def of(self, name: str, words: str) -> Html | None:
        """Return a picture by the name of its file; None where there is none, or no room."""
        data = self._read(name)
        if not data or not self.budget.take(len(data) * 4 // 3):
            return None
        source = f"data:image/webp;base64,{base64.b64encode(data).decode()}"
        caption = tag("figcaption", words, class_="quiet")
        return tag("figure", tag("img", src=source, alt=words, loading="lazy"), caption)

    def all_of(self, named: Mapping[str, str]) -> list[Html]:
        """Return pictures by the words below them."""
        found = (self.of(name, words) for words, name in named.items())
        return [one for one in found if one is not None]

    def _read(self, name: str) -> bytes:
        """Return a WebP of ours; empty if it is none, or lies elsewhere."""
        if not name or Path(name).name != name:
            return b""
        path = self.folder / name
        try:
            data = read_regular(path, MOST_BYTES)
        except (OSError, ValueError):
            return b""
        return data if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else b""
