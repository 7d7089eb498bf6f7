"""The certificate of a splat, as a page of the report shows it: grade, figures with limits, hold-out map, hashes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from splatbatch.plain_text import counted
from splatbatch.report.page.html import Html, table, tag
from splatbatch.report.page.quality.plots import holdout_map
from splatbatch.report.quality import FIGURES, figure_row
from splatbatch.store.records.quality import Certificate, grade_in_words

MOST_INPUTS = 300
WORDS = ("figure", "state", "what", "", "file", "sha256", "made with")


def certificate_page(said: Certificate, cameras: Mapping[str, Mapping[str, float]]) -> Html:
    """Return all that a certificate says, folded."""
    parts = [
        tag("p", f"{_grade(said.grade)}. Check it: splatbatch inspect --check {said.patch}", class_="quiet"),
        table(("", "sha256"), _rows(_hashes(said)), WORDS),
        table(FIGURES, _rows(figure_row(one) for one in said.figures), WORDS),
    ]
    if (drawn := holdout_map(cameras, said.holdout)) is not None:
        parts.append(drawn)
    parts += [table(("made with", "version"), _rows(sorted(said.made_with.items())), (*WORDS, "version"))]
    parts += [*_inputs(said), tag("details", tag("summary", "Settings"), tag("pre", _spelt(said.settings)))]
    return tag("details", tag("summary", "Certificate"), *parts, class_="certificate")


def _grade(grade: str) -> str:
    return grade_in_words(grade).replace("grade", "Grade", 1)


def _hashes(said: Certificate) -> Iterator[tuple[str, str]]:
    count = "" if said.num_gaussians is None else f", {said.num_gaussians:,} Gaussians"
    yield f"splat.ply{count}", said.splat
    yield "settings", said.settings_hash
    yield "this certificate", said.seal


def _inputs(said: Certificate) -> Iterator[Html]:
    listed = sorted(said.inputs.items())[:MOST_INPUTS]
    more = len(said.inputs) - len(listed)
    note = [tag("p", f"For {more:,} more, see certificate.json.", class_="quiet")] if more else []
    files = table(("file", "sha256"), _rows(listed), WORDS)
    yield tag("details", tag("summary", f"{counted(len(said.inputs), 'file')} that it was made from"), files, *note)


def _rows(cells: Iterable[Iterable[str]]) -> list[Html]:
    return [tag("tr", *(tag("td", word) for word in row)) for row in cells]


def _spelt(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, indent=1, sort_keys=True, default=str)
