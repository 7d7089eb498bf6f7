"""The attempts at a patch side by side: what was changed for each, how good it became, what it took, which is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splatbatch.fields import mapping
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.events import AttemptEnded
from splatbatch.output.ledger import judged_attempts
from splatbatch.output.records.attempt import JobSpec
from splatbatch.output.records.metrics import Metrics
from splatbatch.output.records.result import Result
from splatbatch.tasks.fingerprint import leaves, settings_of
from splatbatch.tasks.task import Task


@dataclass(frozen=True)
class AttemptRow:
    """One attempt at a patch."""

    number: int
    outcome: str
    """trained, failed, stopped, or running while no end is known."""
    cause: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings in which it differs from what the YAML says today."""
    psnr_covered: float | None = None
    """On the pixels of held-out photographs that training photographs see, in dB: the figure that decides."""
    psnr: float | None = None
    """On all their pixels."""
    ssim: float | None = None
    num_gaussians: int | None = None
    seconds: float | None = None
    kept: bool = False
    """Its splat is the product."""
    has_splat: bool = False
    """Its splat is still there, so that `accept` can bring it back."""
    covered_set: str = ""
    """Hash of the covered pixels: of another set figures are not compared."""


@dataclass(frozen=True)
class AttemptComparison:
    """`compare PATCH --json`."""

    patch: str
    attempts: tuple[AttemptRow, ...]


def attempts_at(task: Task) -> AttemptComparison:
    """Return the attempts at a task, first to last; what is changed is held against the YAML of today."""
    product, ends, today = task.home.read_result() or Result(), judged_attempts(task.output), settings_of(task.recipe)
    rows = [_row(one, ends.get((task.name, one.number)), product, today) for one in task.home.attempts()]
    return AttemptComparison(task.name, tuple(rows))


def _row(attempt: AttemptFolder, end: AttemptEnded | None, product: Result, today: Mapping[str, Any]) -> AttemptRow:
    kept = product.attempt == attempt.path.name
    own = attempt.read_result() or (product if kept else Result())
    metrics = own.metrics if own.metrics.written else attempt.read_metrics() or Metrics()
    return AttemptRow(
        attempt.number,
        (end and end.outcome) or ("trained" if kept else "running"),
        end.cause if end else "",
        _changes(attempt, today),
        metrics.final.psnr_covered,
        metrics.final.psnr,
        metrics.final.ssim,
        own.num_gaussians or attempt.last_progress().num_gaussians,
        own.seconds if own.seconds is not None else end.seconds if end else None,
        kept,
        attempt.splat.exists(),
        metrics.covered.hash,
    )


def _changes(attempt: AttemptFolder, today: Mapping[str, Any]) -> dict[str, Any]:
    recipe = attempt.read_settings().recipe
    if program := mapping(recipe.get("program")):  # of variables only the names are compared, as `today` has them
        recipe = {**recipe, "program": {**program, "env": sorted(mapping(program.get("env")))}}
    settings = leaves(recipe)
    differing = {key: settings[key] for key, value in leaves(today).items() if settings.get(key, value) != value}
    return differing or (attempt.read_job() or JobSpec()).changes
