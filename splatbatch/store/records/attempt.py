"""What stands in the files of an attempt besides its figures: its orders, its start, its beats, its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from splatbatch.fields import mapping, number
from splatbatch.outcome import Exit, Lost, exit_from_record, exit_to_record
from splatbatch.store.records.fingerprint import Fingerprint
from splatbatch.store.records.record import TypedRecord, environment, reads


@dataclass(frozen=True)
class TimeLimits(TypedRecord):
    """How long an attempt may take."""

    wall_s: float = field(default=float("inf"), metadata=reads(lambda value: _limit(value, float("inf"))))
    grace_s: float = field(default=10.0, metadata=reads(lambda value: _limit(value, 10.0)))
    """Between SIGTERM and SIGKILL."""
    stall_s: float = field(default=0.0, metadata=reads(lambda value: _limit(value, 0.0)))
    """Without any sign of life; 0: any time."""


def _limit(value: object, default: float) -> float:
    known = number(value)
    return default if known is None else max(0.0, known)


@dataclass(frozen=True)
class Claimed(TypedRecord):
    """Under which claim an attempt was made."""

    worker: str = ""
    generation: int = 0
    follows: int | None = None
    """The accepted record that its splat may follow, and no other; None: an earlier version made it."""


@dataclass(frozen=True)
class JobSpec(TypedRecord):
    """job.json: what the supervisor is to run, and what a later run asks before it adopts the attempt."""

    key: str = ""
    argv: tuple[str, ...] = ()
    """Empty: it cannot be started."""
    env: dict[str, str] = field(default_factory=dict, metadata=reads(environment))
    gpu: str | None = None
    """UUID."""
    slot: str = ""
    standby: bool = False
    """It prepares, then waits for go.json."""
    limits: TimeLimits = TimeLimits()
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings in which it differs from the YAML of then."""
    depends_on: Fingerprint = field(default=Fingerprint())
    is_retry: bool = False
    claim: Claimed = Claimed()


@dataclass(frozen=True)
class Go(TypedRecord):
    """go.json: an attempt that stands by may begin, on this GPU."""

    gpu: str | None = None
    slot: str = ""
    env: dict[str, str] = field(default_factory=dict, metadata=reads(environment))
    at: float | None = None
    """Seconds since 1970."""


@dataclass(frozen=True)
class Start(TypedRecord):
    """start.json: the supervisor, and the control group of all that it started."""

    host: str = ""
    pid: int | None = None
    boot_id: str = ""
    started_at: float | None = None
    ticks: int | None = None
    """When the process began, in the kernel's count: tells it from another of the same number."""
    group: str | None = None
    space: str = ""
    """Of its process number: see `processes.pid_space`; empty: an earlier version wrote it."""


@dataclass(frozen=True)
class Heartbeat(TypedRecord):
    """heartbeat.json: moves while the supervisor lives."""

    sequence: int = 0
    child: int | None = None
    below: tuple[str, ...] = ()
    """Processes below it, as number and start: "4711:123456"."""


@dataclass(frozen=True)
class ExitFacts(TypedRecord):
    """exit.json: how the process ended, and what was seen around it."""

    end: Exit = field(default=Lost("unreadable exit record"), metadata=reads(lambda end: end))
    seconds: float | None = None
    ended_at: float | None = None
    out_of_memory: bool = False
    """The kernel's OOM killer struck."""
    kernel_lines: tuple[str, ...] = ()
    disk_free_mib: int | None = None
    """The least that was free while it ran, on the disk of the output folder."""
    own_gpu_peak_mib: float | None = None
    """The most GPU memory that NVML saw it hold."""
    shm_free_mib: int | None = None
    """The same for shared memory."""
    host: str = ""
    pid: int | None = None
    boot_id: str = ""
    stood_by: bool = False
    """To its end: it was never told to go, or had died by then."""

    @classmethod
    def from_record(cls, record: object) -> ExitFacts:
        """Return what a JSON object says; an end that cannot be read counts as lost."""
        found = mapping(record)
        return super().from_record({**found, "end": exit_from_record(found)})

    def to_record(self) -> dict[str, Any]:
        """Return it as a JSON object: the fields of the end stand beside the others."""
        facts = super().to_record()
        del facts["end"]
        return {**exit_to_record(self.end), **facts}


@dataclass(frozen=True)
class AttemptFacts(TypedRecord):
    """What is worth keeping of an attempt that has ended, in the ledger and beside its splat."""

    seconds: float | None = None
    step: int | None = None
    """The last."""
    phase: str | None = None
    gpu_peak_mib: float | None = None
    """The most that was in use on the card."""
    own_gpu_peak_mib: float | None = None
    """The most of it that NVML saw the attempt hold."""
