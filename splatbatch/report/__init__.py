"""The morning after: report.html to look at, report.md to read, report.json for programs; the same facts in all."""

from splatbatch.report.markdown import to_markdown
from splatbatch.report.write import write_report

__all__ = ["to_markdown", "write_report"]
