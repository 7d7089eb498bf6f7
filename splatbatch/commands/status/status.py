"""The command that says how far every patch is: it loads no more than it needs, for it is asked often."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from splatbatch.commands.output import open_console, print_json
from splatbatch.commands.status import watching
from splatbatch.engines.crew import Crew
from splatbatch.engines.engine import Seen
from splatbatch.errors import SplatbatchError
from splatbatch.monitor.table import batch_eta_s, num_shown, status_table
from splatbatch.plain_text import clock, one_line
from splatbatch.store.claims import AtWork, at_work, in_short, lines_of
from splatbatch.store.index import LEAST_NEWS, Index
from splatbatch.store.lock import holder
from splatbatch.store.records.run import Holder
from splatbatch.store.workers import LOCAL, Watcher
from splatbatch.tasks.batch import Batch, open_batch, refusals
from splatbatch.tasks.evidence import Standing
from splatbatch.tasks.status import PatchStatus, most_interesting, read_status, summary

MOST_AUDITED = 64
"""Patches that are due: their photographs' headers are read, as `plan` reads them."""


@dataclass(frozen=True)
class StatusOptions:
    """What `status` was asked."""

    as_json: bool
    watch: bool
    verify: bool
    """Read every splat and photograph anew."""


def status(config: Path | None, names: Sequence[str], options: StatusOptions) -> None:
    """Print how far every patch is, once or until Ctrl-C."""
    if not options.watch:
        gc.disable()  # one look, then the process ends: to go through its records again and again took a quarter of it
    batch = open_batch(config, names)
    room, index = num_shown(len(batch.tasks)), None
    if len(batch.tasks) >= LEAST_NEWS and not options.verify:
        index = Index(batch.output.index)
    if options.watch and not options.as_json:
        watcher = Watcher(batch.output)
        watching.watch(
            lambda: _statuses(batch, batch.standing(index=index), room), lines=lambda: lines_of(at_work(watcher))
        )
        return
    standing = batch.standing("every byte" if options.verify else "time", index)
    statuses = _statuses(batch, standing, None if options.as_json else room)
    crew = Crew(batch.config.executor, batch.output)
    crew.look()
    running = holder(batch.output.lock)
    statuses = statuses if running else _audited(batch, statuses)
    present = [one for one in at_work(Watcher(batch.output)) if not crew.is_gone(one.worker.job)]
    workers = [one for one in present if one.worker.worker != LOCAL]
    if options.as_json:
        facts = {"summary": summary(statuses), "run": running and running.to_record(), "eta_s": batch_eta_s(statuses)}
        who = [{**one.worker.to_record(), "tasks": one.tasks, "silent_s": one.silent_s} for one in workers]
        jobs = [{"job": handle, **_spell(seen)} for handle, seen in crew.seen.items()]
        print_json({**facts, "workers": who, "jobs": jobs, "patches": [asdict(one) for one in statuses]})
        return
    console = open_console()
    shown = most_interesting(statuses, room)
    console.print(status_table(shown, console.width))
    if len(shown) < len(statuses):
        console.print(f"… and {len(statuses) - len(shown)} more: --json has all, a name shows one", markup=False)
    lines = [f"{one.patch}: {warning}" for one in shown for warning in one.warnings]
    named = [one for one in present if one in workers or one.is_quiet]
    for line in (*lines, *(one.in_words() for one in named), *crew.in_words()):
        console.print(one_line(line), markup=False)
    working = [one for one in workers if not one.is_frozen]
    console.print(one_line(_last_line(statuses, running, working)), markup=False)


def _audited(batch: Batch, statuses: Sequence[PatchStatus]) -> tuple[PatchStatus, ...]:
    """Return the states with what an audit refuses now, as `plan` does: the files may have changed since the last one.

    What is trained and fresh is not looked at, nor are so many patches that the look would take long.
    """
    due = [one.patch for one in statuses if one.state not in ("trained", "running", "refused")]
    if not 0 < len(due) <= MOST_AUDITED:
        return tuple(statuses)
    try:
        reasons = refusals(batch.only(due).audits())
    except SplatbatchError:  # of settings that `plan` tells of
        return tuple(statuses)
    return tuple(
        replace(one, state="refused", cause="audit", advice=reasons[one.patch], given_up=False)
        if one.patch in reasons and one.patch in due
        else one
        for one in statuses
    )


def _spell(seen: Seen) -> dict[str, Any]:
    """Return what an engine says of a worker, for programs."""
    return {"state": type(seen).__name__.lower(), **asdict(seen)}


def _last_line(statuses: Sequence[PatchStatus], running: Holder | None, workers: Sequence[AtWork]) -> str:
    """Return how it went so far, who goes on with it, and for how long."""
    known = [f"process {running.pid} on {running.host}"] if running else []
    known += [in_short(workers) or "1 worker"] if workers else []
    who = " and ".join(known) or "nobody"
    eta = batch_eta_s(statuses) if known else None
    to_go = f" About {clock(eta)} to go." if eta is not None else ""
    return f"{summary(statuses)}. Running: {who}.{to_go}"


def _statuses(batch: Batch, standing: Standing, in_full: int | None) -> tuple[PatchStatus, ...]:
    found = read_status(batch.output, batch.names, in_full, standing)
    standing.keep()
    return found
