"""Write the report of a batch: report.json, report.md, report.html."""

from __future__ import annotations

from collections.abc import Sequence

from splatbatch.batch.folder import OutputFolder
from splatbatch.files import Record, write_json, write_text
from splatbatch.report.facts import build
from splatbatch.report.markdown import to_markdown
from splatbatch.report.page import to_html


def write_report(output: OutputFolder, names: Sequence[str]) -> Record:
    """Write the three reports from the files of a batch; return what report.json holds."""
    report = build(output, names)
    write_json(output.report("json"), report)
    write_text(output.report("md"), to_markdown(report))
    write_text(output.report("html"), to_html(report, output))
    return report
