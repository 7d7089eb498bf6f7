"""The report of a batch as report.html, report.md and report.json, all made from the same facts."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from splatbatch.config import Variant
from splatbatch.files import write_json, write_text
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.record import in_json
from splatbatch.report.build import build
from splatbatch.report.facts import Report
from splatbatch.report.html import environment
from splatbatch.report.markdown import to_markdown
from splatbatch.report.page import to_html, to_live_html
from splatbatch.scene.photos.folders import stored_photographs
from splatbatch.tasks.freshness import FreshnessChecker

__all__ = ["build", "load", "to_live_html", "to_markdown", "write_facts", "write_report"]


def load() -> None:
    """Import and compile what a report needs, so that a child forked later writes its report in half the time.

    Raises:
        ImportError, OSError: files of splatbatch, or of a package that it needs, are gone.
    """
    # the formats that Pillow imports when it opens the first picture
    from PIL import (  # noqa: F401
        BmpImagePlugin,
        GifImagePlugin,
        ImageOps,
        JpegImagePlugin,
        PngImagePlugin,
        PpmImagePlugin,
        TiffImagePlugin,
    )

    for name in environment(is_html=True).list_templates(["j2"]):
        environment(is_html=name.endswith(".html.j2")).get_template(name)


def write_report(
    output: OutputFolder,
    names: Sequence[str],
    variants: Iterable[Variant] = (),
    previews_mib: int = 48,
    standing: FreshnessChecker | None = None,
) -> Report:
    """Write report.json, report.md and report.html of a batch, from the files of its output folder; return the facts.

    Args:
        output: the output folder; the reports are written into it, and earlier ones replaced. Missing or
            outdated previews of splats are written there, too.
        names: names of the tasks to report; without `standing`, tasks that the folder has are added.
        variants: variants of a sweep; empty: the batch is no sweep.
        previews_mib: most MiB of report.html for splats that open in 3D; 0: none.
        standing: decides which products are up to date, and names the folders of photographs. None: every existing
            product counts as up to date, and the scene, maps and pictures of colour correction are left out.

    Raises:
        LaterFormatError: a later version of splatbatch wrote a record of the output folder.
        OSError: a report cannot be written.
    """
    return write_facts(build(output, names, tuple(variants), standing), output, previews_mib, standing)


def write_facts(report: Report, output: OutputFolder, previews_mib: int, standing: FreshnessChecker | None) -> Report:
    """Write report.json, report.md and report.html of these facts, and return the facts.

    Each file is written whole or not at all, and replaces an earlier one.

    Args:
        report: the facts.
        output: the output folder, which gets the files, and has the pictures and curves for the page. Missing or
            outdated previews of splats are written there, too.
        previews_mib: most MiB of report.html for splats that open in 3D; 0: none.
        standing: names the folders of photographs; None: the page has no pictures of colour correction.

    Raises:
        OSError: a report cannot be written.
    """
    write_json(output.report("json"), in_json(report))
    write_text(output.report("md"), to_markdown(report))
    patches = [task.patch for task in standing.tasks.values()] if standing else []

    def folders(scene: str) -> tuple[Path, ...]:
        """Return the folders of a scene's photographs; of all patches if the scene is ""."""
        images = dict.fromkeys(patch.images for patch in patches if scene in ("", patch.name))
        return tuple(stored_photographs(folder)[0] for folder in images)

    write_text(output.report("html"), to_html(report, output, previews_mib, folders))
    return report
