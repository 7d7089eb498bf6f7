"""What happens to a patch once it is tried: started, ended, tried again, given up, chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from splatbatch.fields import mapping, text, texts
from splatbatch.outcome import (
    Action,
    Diagnosis,
    Exit,
    Failed,
    Made,
    Outcome,
    Stopped,
    Trained,
    exit_from_record,
    exit_to_record,
)
from splatbatch.store.events.event import Event
from splatbatch.store.obstacles import HANGS, INTERNAL_FAULT, UNWRITABLE
from splatbatch.store.records.record import reads


def _diagnosis(value: object) -> Diagnosis | None:
    said = mapping(value)
    if not said:
        return None
    cause, advice, phase = (text(said.get(key)) for key in ("cause", "advice", "phase"))
    return Diagnosis(cause, cast("Action", text(said.get("action"))), advice, texts(said.get("evidence")), phase)


def _exit(value: object) -> Exit | None:
    return exit_from_record(mapping(value)) if mapping(value) else None


@dataclass(frozen=True)
class Gate(Event, event="gate"):
    """A slot was not ready for an attempt for a while."""

    patch: str
    attempt: int | None
    slot: str
    waited_s: float | None
    reason: str


@dataclass(frozen=True)
class AttemptStarted(Event, event="attempt_started"):
    """An attempt begins."""

    patch: str
    attempt: int | None
    key: str
    slot: str
    changes: dict[str, Any]


NOT_COLLECTED = frozenset({UNWRITABLE, INTERNAL_FAULT, HANGS})
"""Causes that leave an attempt as it is: the next run collects it once more."""
FACTS = ("seconds", "step", "phase", "gpu_peak_mib", "own_gpu_peak_mib")


@dataclass(frozen=True)
class AttemptEnded(Event, event="attempt_ended"):
    """An attempt has ended and was judged, or none could be made."""

    patch: str
    attempt: int | None
    outcome: str
    """trained, made (no splat), failed, stopped."""
    exit: Exit | None = field(default=None, metadata=reads(_exit))
    """None: no process was started."""
    seconds: float | None = None
    step: int | None = None
    phase: str | None = None
    gpu_peak_mib: float | None = None
    own_gpu_peak_mib: float | None = None
    num_gaussians: int | None = None
    warnings: tuple[str, ...] | None = None
    diagnosis: Diagnosis | None = field(default=None, metadata=reads(_diagnosis))
    reason: str | None = None
    """Why it was stopped."""
    accepted: bool | None = None
    choice: str = ""
    """Which of two splats was kept, and why."""
    adopted: bool = False
    """By a later run."""
    traceback: str = ""
    """Of a fault of ours."""

    @property
    def is_well(self) -> bool:
        """Return whether it left a product that counts."""
        return self.outcome in ("trained", "made")

    @property
    def is_judged(self) -> bool:
        """Return whether its attempt needs no further look: what was left could be collected, and kept."""
        return self.attempt is not None and self.cause not in NOT_COLLECTED

    @classmethod
    def of(cls, patch: str, attempt: int, outcome: Outcome, **more: Any) -> AttemptEnded:
        """Return the end of an attempt with what came of it."""
        match outcome:
            case Trained(splat=splat, warnings=warnings):
                return cls(patch, attempt, "trained", num_gaussians=splat.num_gaussians, warnings=warnings, **more)
            case Made():
                return cls(patch, attempt, "made", **more)
            case Failed(diagnosis=diagnosis):
                return cls(patch, attempt, "failed", diagnosis=diagnosis, **more)
            case Stopped(reason=reason):
                return cls(patch, attempt, "stopped", reason=reason, **more)

    @property
    def cause(self) -> str:
        """Why it was not trained: the cause of a failure, or why it was stopped."""
        return (self.diagnosis.cause if self.diagnosis else "") or self.reason or ""

    def to_record(self) -> dict[str, Any]:
        """Return it as a line of the ledger."""
        record = super().to_record()
        if self.exit is not None:
            record["exit"] = exit_to_record(self.exit)
        if self.diagnosis is not None:
            record["diagnosis"] = {**vars(self.diagnosis), "evidence": list(self.diagnosis.evidence)}
        return record

    def _says(self, name: str) -> bool:
        return super()._says(name) or (name in FACTS and self.exit is not None)


@dataclass(frozen=True)
class Retried(Event, event="retry"):
    """A patch is to be tried again."""

    patch: str
    wait_s: float | None
    ladder: str
    changes: dict[str, Any]
    trained_in_between: tuple[str, ...]
    """Patches that show that the GPU is not to blame."""


@dataclass(frozen=True)
class GaveUp(Event, event="gave_up"):
    """A patch is not tried again."""

    patch: str
    reason: str
    trained_in_between: tuple[str, ...] | None = None
    key: dict[str, Any] | None = None
    """What must change before it is worth another try; None: another night may do."""
    cause: str = ""


@dataclass(frozen=True)
class StillGivenUp(Event, event="still_given_up"):
    """A patch is left alone, since nothing has changed."""

    patch: str
    reason: str


@dataclass(frozen=True)
class Accepted(Event, event="accepted"):
    """Somebody chose the splat of an attempt."""

    patch: str
    attempt: int | None


@dataclass(frozen=True)
class Restored(Event, event="restored"):
    """A product that was gone came back from an attempt."""

    patch: str
    attempt: str
