"""The command that says how far every patch is: it loads no more than it needs, for it is asked often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from splatbatch.batch.batch import Batch, open_batch
from splatbatch.batch.lock import holder
from splatbatch.batch.status import PatchStatus, most_interesting, read_status, summary
from splatbatch.batch.table import batch_eta_s, clock, num_shown, status_table
from splatbatch.commands import watching
from splatbatch.commands.output import open_console, print_json
from splatbatch.files import Record


def status(config: Path | None, names: Sequence[str], *, as_json: bool, watch: bool) -> None:
    """Print how far every patch is, once or until Ctrl-C."""
    batch = open_batch(config, names)
    room = num_shown(len(batch.patches))
    if watch and not as_json:
        watching.watch(lambda: _statuses(batch, names, room))
        return
    statuses, running = _statuses(batch, names, None if as_json else room), holder(batch.output.lock)
    if as_json:
        facts = {"summary": summary(statuses), "run": running, "eta_s": batch_eta_s(statuses)}
        print_json({**facts, "patches": [asdict(one) for one in statuses]})
        return
    console = open_console()
    shown = most_interesting(statuses, room)
    console.print(status_table(shown, console.width))
    if len(shown) < len(statuses):
        console.print(f"… and {len(statuses) - len(shown)} more: --json has all, --patch shows one", markup=False)
    for one in shown:
        for warning in one.warnings:
            console.print(f"{one.patch}: {warning}", markup=False)
    console.print(_last_line(statuses, running), markup=False)


def _last_line(statuses: Sequence[PatchStatus], running: Record | None) -> str:
    """Return how it went so far, who goes on with it, and for how long."""
    who = f"process {running['pid']} on {running['host']}" if running else "nobody"
    eta = batch_eta_s(statuses) if running else None
    to_go = f" About {clock(eta)} to go." if eta is not None else ""
    return f"{summary(statuses)}. Running: {who}.{to_go}"


def _statuses(batch: Batch, names: Sequence[str], in_full: int | None) -> tuple[PatchStatus, ...]:
    chosen = [patch.name for patch in batch.patches]
    found = read_status(batch.output, chosen, in_full)
    return tuple(one for one in found if one.patch in chosen) if names else found
