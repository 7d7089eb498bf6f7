"""Write the report of a batch: report.json, report.md, report.html."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from splatbatch.config import Variant
from splatbatch.files import Record, write_json, write_text
from splatbatch.report.facts import build
from splatbatch.report.markdown import to_markdown
from splatbatch.report.page.page import to_html
from splatbatch.store.layout import OutputFolder
from splatbatch.tasks.evidence import Standing


def write_report(
    output: OutputFolder,
    names: Sequence[str],
    variants: Iterable[Variant] = (),
    previews_mib: int = 48,
    standing: Standing | None = None,
) -> Record:
    """Write the three reports from the files of a batch; return what report.json holds.

    Args:
        output: where they go.
        names: of patches that belong to the batch, begun or not.
        variants: of the sweep, to be compared.
        previews_mib: how much of the page splats that open in 3D may take; 0: there is no 3D.
        standing: what decides how each patch stands; without it, any product counts that is there.
    """
    report = build(output, names, tuple(variants), standing)
    write_json(output.report("json"), report)
    write_text(output.report("md"), to_markdown(report))
    write_text(output.report("html"), to_html(report, output, previews_mib))
    return report
