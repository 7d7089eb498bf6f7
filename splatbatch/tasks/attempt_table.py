"""The attempts at a patch side by side: what was changed for each, how good it became, what it took, which is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splatbatch.fields import mapping, number, text
from splatbatch.files import Record
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.layout import PatchFolder
from splatbatch.store.ledger import judged_attempts
from splatbatch.store.records.attempt import JobSpec
from splatbatch.store.records.metrics import Metrics
from splatbatch.store.records.result import Result
from splatbatch.tasks.plan import leaves


@dataclass(frozen=True)
class AttemptRow:
    """One attempt at a patch."""

    number: int
    outcome: str
    """trained, failed, stopped, or running while no end is known."""
    cause: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings in which it differs from what the YAML says today."""
    psnr: float | None = None
    """On held-out photographs, in dB."""
    ssim: float | None = None
    num_gaussians: int | None = None
    seconds: float | None = None
    kept: bool = False
    """Its splat is the product."""
    has_splat: bool = False
    """Its splat is still there, so that `accept` can bring it back."""


def attempt_rows(folder: PatchFolder, ends: Mapping[int, Record], today: Mapping[str, Any]) -> tuple[AttemptRow, ...]:
    """Return a row for each attempt at a patch, first to last.

    Args:
        folder: of the patch.
        ends: the `attempt_ended` event of each attempt.
        today: the settings that decide what would be computed today.
    """
    product = folder.read_result() or Result()
    return tuple(_row(attempt, ends.get(attempt.number, {}), product, today) for attempt in folder.attempts())


def ends_of(ledger: Any, patch: str) -> dict[int, Record]:
    """Return the `attempt_ended` event of each attempt at a patch."""
    return {number: event for (name, number), event in judged_attempts(ledger).items() if name == patch}


def in_words(changes: Mapping[str, Any]) -> str:
    """Return settings as --set takes them: "training.init_scale=0.3, training.seed=7"."""
    return ", ".join(f"{key}={value}" for key, value in changes.items())


def _row(attempt: AttemptFolder, end: Record, product: Result, today: Mapping[str, Any]) -> AttemptRow:
    kept = product.attempt == attempt.path.name
    own = attempt.read_result() or (product if kept else Result())
    metrics = own.metrics if own.metrics.written else attempt.read_metrics() or Metrics()
    return AttemptRow(
        attempt.number,
        text(end.get("outcome")) or ("trained" if kept else "running"),
        text(mapping(end.get("diagnosis")).get("cause")) or text(end.get("reason")),
        _changes(attempt, today),
        metrics.final.psnr,
        metrics.final.ssim,
        own.num_gaussians or attempt.last_progress().num_gaussians,
        own.seconds if own.seconds is not None else number(end.get("seconds")),
        kept,
        attempt.splat.exists(),
    )


def _changes(attempt: AttemptFolder, today: Mapping[str, Any]) -> dict[str, Any]:
    settings = leaves(attempt.read_settings().recipe)
    now = leaves(today)
    differing = {key: settings[key] for key, value in now.items() if key in settings and settings[key] != value}
    return differing or (attempt.read_job() or JobSpec()).changes
