"""The attempts at a patch side by side: what was changed for each, how good it became, what it took, which is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splatbatch.fields import mapping, number, text, whole
from splatbatch.files import Record, last_line, read_json
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.layout import PatchFolder
from splatbatch.store.ledger import judged_attempts
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
    product = read_json(folder.result) or {}
    return tuple(_row(attempt, ends.get(attempt.number, {}), product, today) for attempt in folder.attempts())


def ends_of(ledger: Any, patch: str) -> dict[int, Record]:
    """Return the `attempt_ended` event of each attempt at a patch."""
    return {number: event for (name, number), event in judged_attempts(ledger).items() if name == patch}


def in_words(changes: Mapping[str, Any]) -> str:
    """Return settings as --set takes them: "training.init_scale=0.3, training.seed=7"."""
    return ", ".join(f"{key}={value}" for key, value in changes.items())


def _row(attempt: AttemptFolder, end: Record, product: Record, today: Mapping[str, Any]) -> AttemptRow:
    kept = text(product.get("attempt")) == attempt.path.name
    own = read_json(attempt.result) or (product if kept else {})
    metrics = mapping(own.get("metrics")) or read_json(attempt.metrics) or {}
    final = mapping(metrics.get("final"))
    seconds = number(own.get("seconds"))
    return AttemptRow(
        attempt.number,
        text(end.get("outcome")) or ("trained" if kept else "running"),
        text(mapping(end.get("diagnosis")).get("cause")) or text(end.get("reason")),
        _changes(attempt, today),
        number(final.get("psnr")),
        number(final.get("ssim")),
        whole(own.get("num_gaussians")) or _last_count(attempt),
        seconds if seconds is not None else number(end.get("seconds")),
        kept,
        attempt.splat.exists(),
    )


def _changes(attempt: AttemptFolder, today: Mapping[str, Any]) -> dict[str, Any]:
    settings = leaves(mapping((read_json(attempt.settings) or {}).get("recipe")))
    now = leaves(today)
    differing = {key: settings[key] for key, value in now.items() if key in settings and settings[key] != value}
    return differing or mapping((read_json(attempt.job) or {}).get("changes"))


def _last_count(attempt: AttemptFolder) -> int | None:
    return whole((last_line(attempt.progress) or {}).get("num_gaussians"))
