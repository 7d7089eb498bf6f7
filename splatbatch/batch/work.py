"""What the runner keeps of a patch and of a running attempt, and the time it goes by."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from splatbatch.attempt import Attempt, Failed, Outcome, Stopped, Trained
from splatbatch.batch import retry
from splatbatch.executors import Handle, Slot
from splatbatch.scene.patches import Patch


class Clock(Protocol):
    """Time as the runner sees it."""

    def now(self) -> float:
        """Return seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class WallClock:
    """The real time."""

    def now(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass
class Work:
    """A patch on its way: what to change, when it may start, why it failed so far."""

    patch: Patch
    changes: dict[str, Any] = field(default_factory=dict)
    not_before: float = 0.0
    failures: list[retry.Failure] = field(default_factory=list)
    rungs: dict[str, int] = field(default_factory=dict)
    """How many rungs of each ladder were taken."""
    trained_since: list[str] = field(default_factory=list)
    """Patches that were trained after this one failed: they speak for the GPU."""


@dataclass
class Running:
    """An attempt that was submitted."""

    work: Work
    attempt: Attempt
    slot: Slot
    handle: Handle
    beat: int = -1
    beat_seen_at: float = 0.0


def outcome_to_record(outcome: Outcome) -> dict[str, Any]:
    """Return the JSON form of an outcome."""
    match outcome:
        case Trained(splat=splat, warnings=warnings):
            return {"outcome": "trained", "num_gaussians": splat.num_gaussians, "warnings": list(warnings)}
        case Failed(diagnosis=diagnosis):
            return {"outcome": "failed", "diagnosis": {**vars(diagnosis), "evidence": list(diagnosis.evidence)}}
        case Stopped(reason=reason):
            return {"outcome": "stopped", "reason": reason}
