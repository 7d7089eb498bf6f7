"""Who has trained the batch: a row for each worker, where there was more than one."""

from __future__ import annotations

from collections.abc import Sequence

from splatbatch.report.facts import Worker
from splatbatch.report.page.html import Html, table, tag
from splatbatch.report.units import duration
from splatbatch.report.workers import HEADINGS

WORDS = ("worker", "node", "job", "since", "is training")
MOST_WORKERS = 200
"""One that is killed and started anew is another one."""


def workers_section(workers: Sequence[Worker]) -> Html:
    """Return the workers as a table that sorts; nothing where one has done all."""
    if len(workers) < 2:
        return Html("")
    shown = sorted(workers, key=lambda one: (one.has_ended, -one.trained))[:MOST_WORKERS]
    rows = table(HEADINGS, [_row(one) for one in workers if one in shown], WORDS, name="Workers")
    left = len(workers) - len(shown)
    return tag("div", rows, tag("p", f"{left:,} more are in report.json.", class_="quiet") if left else Html(""))


def _row(one: Worker) -> Html:
    seconds = tag("td", duration(one.seconds), class_="number", data_value=one.seconds)
    figures = [tag("td", str(count), class_="number", data_value=count) for count in (one.attempts, one.trained)]
    words = [tag("td", word) for word in (one.worker, one.node, one.job, one.since)]
    now = "has ended" if one.has_ended else ", ".join(one.running)
    return tag("tr", *words, *figures, seconds, tag("td", now))
