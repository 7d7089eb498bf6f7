"""Renders an audit for the terminal: one row per camera, findings with remedies, and a summary. Names are escaped."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from splatbatch.groups import grouped
from splatbatch.scene.audit.audit import Audit
from splatbatch.scene.audit.findings import AuditFinding
from splatbatch.scene.audit.photographs import CameraRow
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.photos.headers import size_text
from splatbatch.text import one_line, plural

MOST_LINES = 8
"""Most findings that are printed per patch, severity and kind; the rest is counted: "… and 37 more"."""
_MOST_SIZES = 3
_STYLES = {"error": "red", "warning": "yellow", "info": "cyan"}


def render(audit: Audit) -> list[RenderableType]:
    """Return an audit for rich to print: the camera table, the findings by patch and kind, and a summary line."""
    return [_table(audit), *_details(audit.findings), _summary(audit)]


def _table(audit: Audit) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("patch", "camera", "folder", "model"):
        table.add_column(column, overflow="fold")
    table.add_column("camera size", justify="right")
    table.add_column("images", justify="right")
    table.add_column("photographs", overflow="fold")
    for row in audit.rows:
        prefixes = ", ".join(f"{escape(shown(prefix))}/" for prefix in row.prefixes if prefix)
        name, model = escape(shown(row.patch)), escape(shown(row.model))
        table.add_row(name, str(row.camera_id), prefixes, model, size_text(row.size), str(row.num_images), _sizes(row))
    return table


def _sizes(row: CameraRow) -> str:
    parts = [f"{count} x {size_text(size)}" for size, count in row.sizes[:_MOST_SIZES]]
    if len(row.sizes) > _MOST_SIZES:
        parts.append(f"{len(row.sizes) - _MOST_SIZES} more sizes")
    lost = row.num_images - sum(count for _, count in row.sizes)
    if lost:
        parts.append(f"[red]{lost} unusable[/]")
    is_equal = not lost and [size for size, _ in row.sizes] == [row.size]
    return f"[green]all {size_text(row.size)}[/]" if is_equal else ", ".join(parts)


def _details(findings: Iterable[AuditFinding]) -> Iterable[RenderableType]:
    groups = grouped(((finding.patch, finding.severity, finding.kind), finding) for finding in findings)
    for (patch, severity, kind), group in groups.items():
        yield Text("")
        style = _STYLES[severity]
        why = escape(one_line(group[0].why))
        yield Text.from_markup(f"[bold]{escape(shown(patch))}[/]  [{style}]{severity}[/] {kind}  [dim]{why}[/]")
        for finding in group[:MOST_LINES]:
            yield Text.from_markup(f"  {escape(one_line(f'{finding.subject}: {finding.message}'))}")
        if len(group) > MOST_LINES:
            yield Text(f"  … and {len(group) - MOST_LINES} more")
        for remedy in filter(None, dict.fromkeys(finding.remedy for finding in group)):
            yield Text.from_markup(f"  [cyan]→[/] {escape(one_line(remedy))}")


def _summary(audit: Audit) -> Text:
    errors, warnings, bad = audit.errors(), audit.warnings(), audit.bad_patches()
    photographs = plural(audit.num_photographs, "photograph")
    scope = f"{plural(len(audit.patches), 'patch', 'es')}, {photographs} audited for {escape(audit.trainer)}"
    counts = f"{plural(len(errors), 'error')}, {plural(len(warnings), 'warning')}"
    style = "red" if errors else "yellow" if warnings else "green"
    names = f" in {', '.join(escape(shown(name)) for name in bad)}" if bad else ""
    return Text.from_markup(f"\n{scope}: [{style}]{counts}[/]{names}")
