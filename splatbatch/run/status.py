"""The current state of a batch and its workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatbatch.cluster.job import WorkerJob
from splatbatch.cluster.workers import RequestedWorkers
from splatbatch.monitor.table import batch_eta_s, num_shown
from splatbatch.output.claims import AtWork, at_work, in_short
from splatbatch.output.exclusive import holder
from splatbatch.output.records.run import WorkerRecord
from splatbatch.output.workers import LOCAL, Watcher
from splatbatch.tasks.audits import with_refusals
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.freshness import FreshnessChecker
from splatbatch.tasks.status import PatchStatus, read_status, summary

if TYPE_CHECKING:
    from splatbatch.report.facts import Report


@dataclass(frozen=True)
class Status:
    """Output of `status --json`: the state of every patch, and the workers and jobs of the batch.

    `run` is the `train` that holds the output folder, null if there is none. `eta_s` are the seconds until the end,
    null if unknown.
    """

    summary: str
    run: WorkerRecord | None
    eta_s: float | None
    workers: tuple[AtWork, ...]
    jobs: tuple[WorkerJob, ...]
    patches: tuple[PatchStatus, ...]


def describe_workers(running: WorkerRecord | None, workers: Sequence[AtWork]) -> list[str]:
    """Return one text for the run that holds the output folder of a batch, and one for its other workers.

    []: neither runs.
    """
    known = [f"process {running.pid} on {running.host}"] if running else []
    return [*known, *([in_short(workers) or "1 worker"] if workers else [])]


def states_in_view(batch: Batch) -> tuple[PatchStatus, ...]:
    """Return the state of every patch, with all figures of as many as a table shows, in natural order of their names.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the output folder.
    """
    return read_status(batch.output, batch.names, num_shown(len(batch.tasks)), batch.standing())


def current_states(
    batch: Batch, standing: FreshnessChecker | None = None, in_full: int | None = None
) -> tuple[PatchStatus, ...]:
    """Return the state of every patch; unless a `train` runs, patches that the audit refuses are marked.

    Too many due patches are not audited for this; see `with_refusals`.

    Args:
        batch: the batch.
        standing: decides which splats are up to date; None: the files are examined anew.
        in_full: number of patches of which all figures are read, the most interesting ones; None: all.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the output folder.
        OSError: a mask was removed during the audit.
    """
    found = read_status(batch.output, batch.names, in_full, standing or batch.standing())
    return found if holder(batch.output) else with_refusals(batch, found)


def report_of(batch: Batch, standing: FreshnessChecker) -> Report:
    """Return the facts of the report on the current state of a batch.

    `standing` decides which splats are up to date.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the output folder.
        OSError: a mask was removed during the audit.
    """
    from splatbatch.report.build import build

    variants = tuple(batch.config.variants.values())
    return build(batch.output, batch.names, variants, standing, current_states(batch, standing))


def standings(batch: Batch, *, verify: bool, in_full: int | None) -> tuple[Status, list[str]]:
    """Return the current state of a batch and its workers, and lines on the workers; asks the engine, writes nothing.

    Args:
        batch: the batch.
        verify: whether every splat and photograph is read, not only its size and time.
        in_full: number of patches with warnings and other details; None: all.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the output folder.
        OSError: a mask was removed during the audit.
    """
    statuses = current_states(batch, batch.standing("every byte" if verify else "time"), in_full)
    running, crew = holder(batch.output), RequestedWorkers(batch.output)
    crew.look()
    present = tuple(one for one in at_work(Watcher(batch.output)) if not crew.is_dead(one.job))
    workers, jobs = tuple(one for one in present if one.worker != LOCAL), tuple(crew.jobs.values())
    lines = [one.in_words() for one in present if one in workers or one.is_quiet]
    return Status(summary(statuses), running, batch_eta_s(statuses), workers, jobs, statuses), [
        *lines,
        *crew.in_words(),
    ]
