"""The morning after: report.json for programs, report.md for people; the same facts in both."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from splatbatch import __version__
from splatbatch.batch.folder import OutputFolder
from splatbatch.batch.ledger import events
from splatbatch.batch.status import PatchStatus, read_status
from splatbatch.files import Record, write_json, write_text

SCHEMA = 1
"""Version of report.json; it rises when a field changes its meaning or goes."""


def write_report(output: OutputFolder, names: Sequence[str]) -> Record:
    """Write report.json and report.md from the files of a batch; return what report.json holds."""
    report = build(output, names)
    write_json(output.report("json"), report)
    write_text(output.report("md"), to_markdown(report))
    return report


def build(output: OutputFolder, names: Sequence[str]) -> Record:
    """Return the facts of a batch."""
    statuses, history = read_status(output, names), events(output.ledger)
    audits = [event for event in history if event["event"] == "audit"]
    return {
        "schema": SCHEMA,
        "version": __version__,
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "output": str(output.path),
        "summary": summary(statuses),
        "counts": {state: sum(status.state == state for status in statuses) for state in _STATES},
        "patches": [_finite(asdict(status)) for status in statuses],
        "audit": audits[-1] if audits else None,
        "events": history,
    }


def summary(statuses: Sequence[PatchStatus]) -> str:
    """Return one line that says how it went: "7 of 8 patches trained; failed: p5"."""
    trained = sum(status.state == "trained" for status in statuses)
    line = f"{trained} of {len(statuses)} patches trained"
    for state in _STATES[1:]:
        names = [status.patch for status in statuses if status.state == state]
        line += f"; {state}: {', '.join(names)}" if names else ""
    return line


def to_markdown(report: Record) -> str:
    """Return the report as Markdown."""
    lines = [
        f"# {_plain(report['summary'])}",
        "",
        f"{_plain(report['output'])}, {report['written_at']}",
        "",
        *_table(report["patches"]),
    ]
    for patch in report["patches"]:
        lines += _troubles(patch)
    audit = report["audit"]
    if audit and not audit.get("verified"):
        lines += ["", "Sizes of photographs were not verified (`--no-verify`)."]
    elif audit and audit.get("warnings"):
        lines += ["", "## Warnings of the audit", "", *(f"- {_plain(warning)}" for warning in audit["warnings"])]
    return "\n".join(lines) + "\n"


_STATES = ("trained", "running", "failed", "stopped", "refused", "waiting")
_HEADINGS = ("patch", "state", "PSNR dB (before)", "Gaussians", "seconds", "attempt", "changed")


def _table(patches: Sequence[Record]) -> list[str]:
    rows = [_HEADINGS, ("---",) * len(_HEADINGS), *(_row(patch) for patch in patches)]
    return [f"| {' | '.join(_plain(cell) for cell in row)} |" for row in rows]


def _row(patch: Record) -> tuple[str, ...]:
    psnr, before = patch["psnr"], patch["initial_psnr"]
    return (
        patch["patch"],
        patch["state"],
        f"{psnr:.2f} ({before:.2f})" if psnr is not None and before is not None else "",
        f"{patch['num_gaussians']:,}" if patch["num_gaussians"] else "",
        f"{patch['seconds']:.0f}" if patch["seconds"] is not None else "",
        patch["attempt"],
        ", ".join(f"{key}={value}" for key, value in patch["changes"].items()),
    )


def _troubles(patch: Record) -> list[str]:
    lines = [f"- {_plain(warning)}" for warning in patch["warnings"]]
    if patch["cause"]:
        phase = f" in phase {_plain(patch['phase'])}" if patch["phase"] else ""
        lines = [f"**{_plain(patch['cause'])}**{phase}: {_plain(patch['advice'])}", *lines]
        evidence = "\n".join(patch["evidence"]).splitlines()
        lines += ["", *(f"    {line}" for line in evidence)] if evidence else []
    return ["", f"## {_plain(patch['patch'])}", "", *lines] if lines else []


def _plain(text: str) -> str:
    """Escape what Markdown would read as a table, as HTML or as more lines."""
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def _finite(record: Record) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()
    }
