"""The morning after: report.html to look at, report.md to read, report.json for programs; the same facts in all."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from splatbatch.config import Variant
from splatbatch.files import write_json, write_text
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.record import in_json
from splatbatch.report.build import build
from splatbatch.report.facts import Report
from splatbatch.report.markdown import to_markdown
from splatbatch.report.page import to_html, to_live_html
from splatbatch.scene.photos.folders import stored_photographs
from splatbatch.tasks.freshness import FreshnessChecker

__all__ = ["build", "to_live_html", "to_markdown", "write_facts", "write_report"]


def write_report(
    output: OutputFolder,
    names: Sequence[str],
    variants: Iterable[Variant] = (),
    previews_mib: int = 48,
    standing: FreshnessChecker | None = None,
) -> Report:
    """Write the three reports from the files of a batch; return what they say.

    Splats that open in 3D may take `previews_mib` of the page; without `standing` any product counts that is there,
    and where the photographs lie is unknown.
    """
    return write_facts(build(output, names, tuple(variants), standing), output, previews_mib, standing)


def write_facts(report: Report, output: OutputFolder, previews_mib: int, standing: FreshnessChecker | None) -> Report:
    """Write the three reports of these facts, and return them."""
    write_json(output.report("json"), in_json(report))
    write_text(output.report("md"), to_markdown(report))
    patches = [task.patch for task in standing.tasks.values()] if standing else []

    def folders(scene: str) -> tuple[Path, ...]:
        """Return where the photographs of a scene lie; "": those of all patches."""
        images = dict.fromkeys(patch.images for patch in patches if scene in ("", patch.name))
        return tuple(stored_photographs(folder)[0] for folder in images)

    write_text(output.report("html"), to_html(report, output, previews_mib, folders))
    return report
