"""report.md: the facts as text, for a terminal, a mail or an issue."""

from __future__ import annotations

import re
from collections.abc import Sequence

from splatbatch.failures.causes import title
from splatbatch.output.records.quality import grade_in_words
from splatbatch.output.records.run import TodoItem
from splatbatch.report.comparison import spelt
from splatbatch.report.facts import (
    Report,
    ReportedColors,
    ReportedPartition,
    ReportedPatch,
    ReportedWorker,
    SweepFacts,
)
from splatbatch.report.page.comparison_page import headings_of, is_best, short, shown
from splatbatch.report.quality import exceeded
from splatbatch.report.scene import SEAM_FIGURES, in_words, seam_figures
from splatbatch.report.todo import MOST_NAMED
from splatbatch.report.units import photographs
from splatbatch.report.workers import nodes_of
from splatbatch.scene.patches import list_names
from splatbatch.text import assignments, one_line, plain

SPECIAL = re.compile(r"[\\`*\[|]")
COVERED = "covered dB"
_FIRST = ("patch", "state", "photographs", COVERED, "PSNR dB (before)", "SSIM", "Gaussians", "MiB")
_HEADINGS = (*_FIRST, "seconds", "attempt", "changed")
_OF_WORKERS = ("worker", "node", "job", "since", "attempts", "trained")


def to_markdown(report: Report) -> str:
    """Return the report as Markdown."""
    lines = [
        f"# {_plain(report.summary)}",
        "",
        f"{_plain(report.output)}, {report.written_at}",
        *([f"Frame: {_plain(report.frame.note)}."] if report.frame and report.frame.note else []),
        *(f"{_plain(line)}." for line in report.settled),
        "",
        *([*(f"- {_plain(line)}" for line in report.reconstruction.in_words()), ""] if report.reconstruction else []),
        *_todo(report.todo),
        *([*(f"- {_plain(words)}" for words in report.deadline.words), ""] if report.deadline else []),
        *([*(f"- {_plain(one.words)}" for one in report.afterwards), ""] if report.afterwards else []),
        *_comparison(report.sweep),
        *_patches(report.patches),
        *_workers(report.workers),
        *_scene(report.scene),
    ]
    for patch in report.patches:
        lines += _troubles(patch)
        lines += _quality(patch)
    lines += [line for scene in report.colors for line in _colors(scene)]
    audit = report.audit
    if audit and not audit["verified"]:
        lines += ["", "Sizes of photographs were not verified (`--no-verify`)."]
    elif audit and audit["warnings"]:
        lines += ["", "## Warnings of the audit", "", *(f"- {_plain(warning)}" for warning in audit["warnings"])]
    return "\n".join(lines) + "\n"


def _todo(items: Sequence[TodoItem]) -> list[str]:
    """Return what is to be done and what is worth a look, each with its command."""
    lines: list[str] = []
    for kind, heading in (("do", "To do"), ("look", "Worth a look")):
        of_kind = [item for item in items if item.kind == kind]
        lines += [f"## {heading}", ""] if of_kind else []
        for item in of_kind:
            who = f"{_plain(list_names(item.patches, MOST_NAMED))}: " if item.patches else ""
            # a name may hold markup, and not every reader of Markdown leaves alone what stands in a block
            command = [_plain(item.command)] if "<" in item.command else _as_it_is([item.command])
            lines += [f"- {who}{_plain(item.what)}", "", *command, ""]
    return lines


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows, of Markdown, as a table; the first holds the headings."""
    ruled = [rows[0], ("---",) * len(rows[0]), *rows[1:]]
    return [f"| {' | '.join(row)} |" for row in ruled]


def _quality(patch: ReportedPatch) -> list[str]:
    """Return what an inspection has found to exceed its limits, with advice."""
    if not patch.quality or not (over := exceeded(patch.quality)):
        return []
    heading = f"## {_plain(patch.patch)}: {grade_in_words(patch.quality.grade)}"
    words = (f"{one.name} ({one.value:.3g}, limit {one.limit:.3g}): {one.advice}" for one in over)
    return ["", heading, "", *(f"- {_plain(line)}" for line in words)]


def _comparison(sweep: SweepFacts | None) -> list[str]:
    """Return a sweep's variants with their means, the best of each column in bold."""
    if not sweep:
        return []
    names = (_plain(short(setting)) for setting in sweep.settings)
    rows: list[Sequence[str]] = [("variant", *names, "trained", *headings_of(sweep).values())]
    for row in sweep.variants:
        means = [
            f"**{figure}**" if is_best(sweep, row, key) else figure
            for key in headings_of(sweep)
            for figure in [shown(key, row.mean.of(key))]
        ]
        settings = [_plain(spelt(row.settings[key])) for key in sweep.settings]
        rows.append((_plain(row.variant), *settings, f"{row.trained} of {row.of}", *means))
    return [*_table(rows), ""]


def _patches(patches: Sequence[ReportedPatch]) -> list[str]:
    """Return the patches as a table: with covered figures where there are such, with nodes where there are several."""
    rows = [(*_HEADINGS, "node"), *((*_row(patch), _plain(patch.node)) for patch in patches)]
    left_out = {COVERED} if all(patch.psnr_covered is None for patch in patches) else set()
    left_out |= {"node"} if len(nodes_of(patches)) < 2 else set()
    kept = [place for place, heading in enumerate(rows[0]) if heading not in left_out]
    return _table([[row[place] for place in kept] for row in rows])


def _workers(workers: Sequence[ReportedWorker]) -> list[str]:
    """Return the workers as a table, where there was more than one."""
    if len(workers) < 2:
        return []
    rows = [[_plain(str(getattr(one, key))) for key in _OF_WORKERS] for one in workers]
    return ["", "## Workers", "", *_table([_OF_WORKERS, *rows])]


def _scene(scene: ReportedPartition | None) -> list[str]:
    """Return the seams of a partition as a table, with what was measured of the merged scene above it."""
    if not scene or not scene.seams:
        return []
    rows = [(_plain(seam.name), *seam_figures(seam), _plain(seam.problem)) for seam in scene.seams]
    return ["", "## Scene", "", _plain(in_words(scene)), "", *_table([("seam", *SEAM_FIGURES, "note"), *rows])]


def _row(patch: ReportedPatch) -> tuple[str, ...]:
    psnr, before = patch.psnr, patch.initial_psnr
    return (
        _plain(patch.patch),
        patch.state,
        _plain(photographs(patch.resolution)),
        shown("psnr_covered", patch.psnr_covered),
        f"{psnr:.2f} ({before:.2f})" if psnr is not None and before is not None else shown("psnr", psnr),
        shown("ssim", patch.ssim),
        f"{patch.num_gaussians:,}" if patch.num_gaussians else "",
        shown("bytes", patch.bytes),
        f"{patch.seconds:.0f}" if patch.seconds is not None else "",
        _plain(patch.attempt),
        _plain(assignments(patch.changes)),
    )


def _troubles(patch: ReportedPatch) -> list[str]:
    even = patch.psnr_even
    evened = [f"PSNR {even:.2f} dB in the evened space, beside that on the photographs as they are"] if even else []
    said = (*patch.outliers, *patch.ended_early, *evened, *patch.warnings)
    lines = [f"- {_plain(words)}" for words in said]
    if patch.cause:
        phase = f" in phase {_plain(patch.phase)}" if patch.phase else ""
        lines = [f"**{_plain(title(patch.cause))}**{phase}: {_plain(patch.advice)}", *lines]
        evidence = "\n".join(patch.evidence).splitlines()
        lines += ["", *_as_it_is(evidence)] if evidence else []
    return ["", f"## {_plain(patch.patch)}", "", *lines] if lines else []


def _colors(scene: ReportedColors) -> list[str]:
    heading = f"Colours of {_plain(scene.scene)}" if scene.scene else "Colours"
    return ["", f"## {heading}", "", *(f"- {_plain(line)}" for line in scene.words)]


def _as_it_is(quoted: Sequence[str]) -> list[str]:
    """Return lines of a log as a block that nothing in them can end; indented, they could be part of a list."""
    longest = max(map(len, re.findall("`+", "\n".join(quoted))), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *map(plain, quoted), fence]


def _plain(text: str) -> str:
    """Return text that others wrote so that Markdown reads text in it: no HTML, table, link, emphasis or line end."""
    return SPECIAL.sub(r"\\\g<0>", one_line(text)).replace("&", "&amp;").replace("<", "&lt;")
