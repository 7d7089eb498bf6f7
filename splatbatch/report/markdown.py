"""report.md: the facts as text, for a terminal, a mail or an issue."""

from __future__ import annotations

from splatbatch.report.facts import Report
from splatbatch.report.html import render
from splatbatch.report.scene import in_words
from splatbatch.report.workers import nodes_of


def to_markdown(report: Report) -> str:
    """Return the text of report.md: the report as Markdown, without pictures and charts."""
    words = in_words(report.scene) if report.scene else ""
    return render("report.md.j2", report=report, nodes=nodes_of(report.patches), scene_words=words)
